package lang

import (
	"strings"

	"github.com/tidemarkdb/tidemark/value"
)

// DefineTopic is DEFINE TOPIC.
type DefineTopic struct {
	node
	Name        string
	IfNotExists bool
	TopicClauses
}

// AlterTopic is ALTER TOPIC: the clauses that it gives replace those of the
// definition, and those that it drops are taken away.
type AlterTopic struct {
	node
	Name string
	TopicClauses
	// Drops are the clauses dropped, in the order of the constants.
	Drops []TopicClause
}

// TopicClauses are the clauses of a topic; nil is one that is not given.
type TopicClauses struct {
	Retain      Expression
	RetainBytes Expression
	MaxBytes    Expression
	Deduplicate *Deduplicate
	Public      *Public
}

// Deduplicate is DEDUPLICATE window ON field.
type Deduplicate struct {
	Window Expression
	Field  value.Path
}

// Public is PUBLIC RATE n PER d.
type Public struct {
	Rate, Per Expression
}

// TopicClause is a clause of a topic that ALTER TOPIC … DROP names.
type TopicClause string

// The clauses of a topic.
const (
	ClauseRetain      TopicClause = "RETAIN"
	ClauseRetainBytes TopicClause = "RETAIN BYTES"
	ClauseMaxBytes    TopicClause = "MAX BYTES"
	ClauseDeduplicate TopicClause = "DEDUPLICATE"
	ClausePublic      TopicClause = "PUBLIC"
)

var topicClauses = []TopicClause{ClauseRetain, ClauseRetainBytes, ClauseMaxBytes, ClauseDeduplicate, ClausePublic}

func (*DefineTopic) statement() {}
func (*AlterTopic) statement()  {}

// String is text that parses to the same statement.
func (s *DefineTopic) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *AlterTopic) String() string { return text(s) }

// parseDefineTopicOrConsumer parses what begins with DEFINE TOPIC.
func (p *parser) parseDefineTopicOrConsumer(start place) Statement {
	if p.isConsumer("FROM") {
		return p.parseDefineTopicConsumer(start)
	}
	return p.parseDefineTopic(start)
}

// isConsumer reports whether TOPIC CONSUMER comes next and means a consumer,
// not a topic of that name: what follows the word tells. A name follows that of
// a consumer, and then a word; what follows a topic's is a clause or nothing.
func (p *parser) isConsumer(afterName string) bool {
	if !p.at("TOPIC", "CONSUMER") || !isName(p.peek(2)) {
		return false
	}
	for _, word := range []string{"RETAIN", "MAX", "DEDUPLICATE", "PUBLIC", "DROP"} {
		if p.is(p.peek(2), word) {
			return p.is(p.peek(3), afterName)
		}
	}
	return true
}

// parseDefineTopic parses the definition of a topic.
//
//	define topic = "DEFINE" "TOPIC" [ if not exists ] name { topic clause }
func (p *parser) parseDefineTopic(start place) Statement {
	p.expect("TOPIC")
	s := &DefineTopic{}
	s.IfNotExists = p.parseIfNotExists()
	s.Name = p.parseName("a topic")
	p.parseClauses(s.clauses(p)...)
	s.node = p.span(start)
	return s
}

// parseAlterTopic parses the change of a topic.
//
//	alter topic  = "ALTER" "TOPIC" name topic change { topic change }
//	topic change = topic clause | "DROP" ( "RETAIN" [ "BYTES" ] | "MAX" "BYTES" | "DEDUPLICATE" | "PUBLIC" )
func (p *parser) parseAlterTopic(start place) Statement {
	p.expect("TOPIC")
	s := &AlterTopic{Name: p.parseName("a topic")}
	clauses := s.clauses(p)
	dropped := map[TopicClause]bool{}
	for _, c := range topicClauses {
		drop := words("DROP "+string(c), func() { dropped[c] = true })
		drop.name = string(c)
		clauses = append(clauses, drop)
	}
	p.parseSomeClauses(clauses...)
	for _, c := range topicClauses {
		if dropped[c] {
			s.Drops = append(s.Drops, c)
		}
	}
	s.node = p.span(start)
	return s
}

// clauses are the clauses of a topic.
//
//	topic clause = "RETAIN" value | "RETAIN" "BYTES" value | "MAX" "BYTES" value
//	             | "DEDUPLICATE" value "ON" field path | "PUBLIC" "RATE" value "PER" value
func (c *TopicClauses) clauses(p *parser) []clause {
	return []clause{
		words("RETAIN", func() { c.Retain = p.parseValue("a duration") }),
		words("RETAIN BYTES", func() { c.RetainBytes = p.parseValue("a number of bytes") }),
		words("MAX BYTES", func() { c.MaxBytes = p.parseValue("a number of bytes") }),
		words("DEDUPLICATE", func() {
			c.Deduplicate = &Deduplicate{Window: p.parseValue("a duration")}
			p.expect("ON")
			c.Deduplicate.Field = p.parseFieldPath("a field")
		}),
		words("PUBLIC", func() {
			p.expect("RATE")
			c.Public = &Public{Rate: p.parseValue("a number of messages")}
			p.expect("PER")
			c.Public.Per = p.parseValue("a duration")
		}),
	}
}

func (s *DefineTopic) print(p *printer) {
	p.word("DEFINE TOPIC")
	p.flag("IF NOT EXISTS", s.IfNotExists)
	p.name(s.Name)
	s.printClauses(p)
}

func (s *AlterTopic) print(p *printer) {
	p.word("ALTER TOPIC")
	p.name(s.Name)
	s.printClauses(p)
	for _, c := range s.Drops {
		p.word("DROP " + string(c))
	}
}

func (c *TopicClauses) printClauses(p *printer) {
	if c.Retain != nil && beginsWithBytes(c.Retain) {
		p.word("RETAIN")
		p.parenthesized(c.Retain)
	} else {
		p.clause("RETAIN", c.Retain)
	}
	p.clause("RETAIN BYTES", c.RetainBytes)
	p.clause("MAX BYTES", c.MaxBytes)
	if c.Deduplicate != nil {
		p.clause("DEDUPLICATE", c.Deduplicate.Window)
		p.word("ON " + c.Deduplicate.Field.String())
	}
	if c.Public != nil {
		p.clause("PUBLIC RATE", c.Public.Rate)
		p.clause("PER", c.Public.Per)
	}
}

// beginsWithBytes reports whether an expression's text begins with what could
// be the second word of RETAIN BYTES, as the record id bytes:1 does.
func beginsWithBytes(e Expression) bool {
	const keyword = "bytes"
	text := e.String()
	return len(text) >= len(keyword) && strings.EqualFold(text[:len(keyword)], keyword)
}
