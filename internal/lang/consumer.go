package lang

import (
	"strings"

	"github.com/tidemarkdb/tidemark/value"
)

// DefineTopicConsumer is DEFINE TOPIC CONSUMER: a topic read into a table.
type DefineTopicConsumer struct {
	node
	Name        string
	IfNotExists bool
	Overwrite   bool
	From        QualifiedName
	// Group is a string or a parameter.
	Group Expression
	Landing
}

// DefineKafkaConsumer is DEFINE KAFKA CONSUMER: a Kafka topic read into a
// table.
type DefineKafkaConsumer struct {
	node
	Name        string
	IfNotExists bool
	Overwrite   bool
	// Brokers are strings or parameters, as are Topic and Group.
	Brokers []Expression
	// With are settings of the Kafka client, in order; no two have one name.
	With   []Setting
	Topic  Expression
	Group  Expression
	Format string
	Landing
}

// Landing is what both kinds of consumer say of where messages land.
type Landing struct {
	Into QualifiedName
	// Identity is the field of the message that is the record's key.
	Identity value.Path
	// Map is at least one mapping.
	Map []Mapping
	// Quarantine is ON FAILURE quarantine; otherwise it is stop.
	Quarantine bool
	// Parallelism is nil where it is not given.
	Parallelism Expression
}

// QualifiedName is a table or a topic, in a database if one is named.
type QualifiedName struct {
	// Database is "" for the one in use.
	Database string
	Name     string
}

// Setting is one setting of a Kafka client.
type Setting struct {
	Name  string
	Value Expression
}

// Mapping says which field of the message becomes which of the record.
type Mapping struct {
	From value.Path
	To   string
}

// ResumeConsumer is ALTER TOPIC CONSUMER or ALTER KAFKA CONSUMER … RESUME.
type ResumeConsumer struct {
	node
	// Kind is TopicConsumer or KafkaConsumer.
	Kind Kind
	Name string
}

func (*DefineTopicConsumer) statement() {}
func (*DefineKafkaConsumer) statement() {}
func (*ResumeConsumer) statement()      {}

// String is text that parses to the same statement.
func (s *DefineTopicConsumer) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *DefineKafkaConsumer) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *ResumeConsumer) String() string { return text(s) }

// String is the name as statements write it.
func (n QualifiedName) String() string {
	if n.Database == "" {
		return value.QuoteIdentifier(n.Name)
	}
	return value.QuoteIdentifier(n.Database) + "." + value.QuoteIdentifier(n.Name)
}

// parseDefineTopicConsumer parses the declaration of a topic consumer.
//
//	define topic consumer = "DEFINE" "TOPIC" "CONSUMER" [ existence ] name
//	                        "FROM" qualified name "GROUP" quoted landing
func (p *parser) parseDefineTopicConsumer(start place) Statement {
	p.expect("TOPIC", "CONSUMER")
	s := &DefineTopicConsumer{}
	s.IfNotExists, s.Overwrite = p.parseExistence("FROM")
	s.Name = p.parseName("a consumer")
	p.expect("FROM")
	s.From = p.parseQualifiedName("a topic")
	p.expect("GROUP")
	s.Group = p.parseQuoted("the name of a group")
	s.Landing = p.parseLanding()
	s.node = p.span(start)
	return s
}

// parseDefineKafkaConsumer parses the declaration of a Kafka consumer.
//
//	define kafka consumer = "DEFINE" "KAFKA" "CONSUMER" [ existence ] name
//	                        "FROM" quoted { "," quoted } [ "WITH" "(" setting { "," setting } ")" ]
//	                        "TOPIC" quoted "GROUP" quoted "FORMAT" name landing
//	setting               = ( field path | string ) "=" value
func (p *parser) parseDefineKafkaConsumer(start place) Statement {
	p.expect("KAFKA", "CONSUMER")
	s := &DefineKafkaConsumer{}
	s.IfNotExists, s.Overwrite = p.parseExistence("FROM")
	s.Name = p.parseName("a consumer")
	p.expect("FROM")
	for more := true; more; more = p.acceptSign(",") {
		s.Brokers = append(s.Brokers, p.parseQuoted("the address of a broker"))
	}
	if p.accept("WITH") {
		s.With = p.parseSettings()
	}
	if !p.accept("TOPIC") {
		expected := []string{"TOPIC"}
		if s.With == nil {
			expected = []string{"','", "WITH", "TOPIC"}
		}
		p.fail(expected...)
	}
	s.Topic = p.parseQuoted("the name of a Kafka topic")
	p.expect("GROUP")
	s.Group = p.parseQuoted("the name of a Kafka group")
	p.expect("FORMAT")
	s.Format = p.parseName("a format")
	s.Landing = p.parseLanding()
	s.node = p.span(start)
	return s
}

func (p *parser) parseSettings() []Setting {
	var settings []Setting
	p.expectSign("(")
	for more := true; more; more = p.acceptSign(",") {
		at := p.begin()
		setting := Setting{}
		if t := p.current(); t.kind == tokenString {
			quoted := p.next()
			setting.Name = p.nameOf(&quoted)
		} else {
			setting.Name = strings.Join(p.parseFieldPath("a setting"), ".")
		}
		for _, earlier := range settings {
			if earlier.Name == setting.Name {
				p.refuse(at, "the setting %s was given already", setting.Name)
			}
		}
		p.expectSign("=")
		setting.Value = p.parseValue("the value of a setting")
		settings = append(settings, setting)
	}
	p.expectSign(")", "','")
	return settings
}

// parseLanding parses where a consumer's messages land; its clauses have an
// order.
//
//	landing = "INTO" qualified name "IDENTITY" field path "MAP" mapping { "," mapping }
//	          "ON" "FAILURE" ( "stop" | "quarantine" ) [ "PARALLELISM" value ]
//	mapping = field path "AS" name
func (p *parser) parseLanding() Landing {
	var l Landing
	p.expect("INTO")
	l.Into = p.parseQualifiedName("a table")
	p.expect("IDENTITY")
	l.Identity = p.parseFieldPath("a field")
	p.expect("MAP")
	for more := true; more; more = p.acceptSign(",") {
		mapping := Mapping{From: p.parseFieldPath("a field")}
		p.expect("AS")
		mapping.To = p.parseName("a field")
		l.Map = append(l.Map, mapping)
	}
	if !p.at("ON") {
		p.fail("','", "ON FAILURE")
	}
	p.expect("ON", "FAILURE")
	if !p.accept("stop") {
		if !p.accept("quarantine") {
			p.fail("stop", "quarantine")
		}
		l.Quarantine = true
	}
	if !p.accept("PARALLELISM") {
		p.expectEnd("PARALLELISM")
		return l
	}
	l.Parallelism = p.parseValue("a number of members")
	return l
}

// parseQualifiedName parses a name in a database.
//
//	qualified name = [ name "." ] name
func (p *parser) parseQualifiedName(what string) QualifiedName {
	n := QualifiedName{Name: p.parseName(what)}
	if p.acceptSign(".") {
		n = QualifiedName{Database: n.Name, Name: p.parseName(what)}
	}
	return n
}

// parseAlter parses a change of a definition.
//
//	alter           = alter topic | alter group | alter user | resume consumer
//	resume consumer = "ALTER" ( "TOPIC" | "KAFKA" ) "CONSUMER" name "RESUME"
func (p *parser) parseAlter(start place) Statement {
	p.expect("ALTER")
	s := &ResumeConsumer{}
	switch {
	case p.isConsumer("RESUME"):
		p.expect("TOPIC", "CONSUMER")
		s.Kind = TopicConsumer
	case p.accept("KAFKA"):
		p.expect("CONSUMER")
		s.Kind = KafkaConsumer
	case p.at("TOPIC"):
		return p.parseAlterTopic(start)
	case p.at("GROUP"):
		return p.parseAlterGroup(start)
	case p.at("USER"):
		return p.parseAlterUser(start)
	default:
		p.fail("what to alter: TOPIC, GROUP, USER, TOPIC CONSUMER or KAFKA CONSUMER")
	}
	s.Name = p.parseName("a consumer")
	p.expect("RESUME")
	s.node = p.span(start)
	return s
}

func (s *DefineTopicConsumer) print(p *printer) {
	p.word("DEFINE TOPIC CONSUMER")
	p.flag("IF NOT EXISTS", s.IfNotExists)
	p.flag("OVERWRITE", s.Overwrite)
	p.name(s.Name)
	p.word("FROM " + s.From.String())
	p.clause("GROUP", s.Group)
	s.printLanding(p)
}

func (s *DefineKafkaConsumer) print(p *printer) {
	p.word("DEFINE KAFKA CONSUMER")
	p.flag("IF NOT EXISTS", s.IfNotExists)
	p.flag("OVERWRITE", s.Overwrite)
	p.name(s.Name)
	p.word("FROM")
	list(p, s.Brokers, p.value)
	if s.With != nil {
		p.word("WITH")
		p.open("(")
		list(p, s.With, func(setting Setting) {
			p.word(setting.text())
			p.word("=")
			p.value(setting.Value)
		})
		p.sign(")")
	}
	p.clause("TOPIC", s.Topic)
	p.clause("GROUP", s.Group)
	p.word("FORMAT")
	p.name(s.Format)
	s.printLanding(p)
}

// text is the setting's name as a statement writes it: in words where it is
// words joined by dots, as those of Kafka are.
func (s Setting) text() string {
	if name := value.Path(strings.Split(s.Name, ".")).String(); name == s.Name {
		return name
	}
	return value.String(s.Name).String()
}

func (l *Landing) printLanding(p *printer) {
	p.word("INTO " + l.Into.String())
	p.word("IDENTITY " + l.Identity.String())
	p.word("MAP")
	list(p, l.Map, func(m Mapping) {
		p.word(m.From.String())
		p.word("AS")
		p.name(m.To)
	})
	if l.Quarantine {
		p.word("ON FAILURE quarantine")
	} else {
		p.word("ON FAILURE stop")
	}
	p.clause("PARALLELISM", l.Parallelism)
}

func (s *ResumeConsumer) print(p *printer) {
	p.word("ALTER " + string(s.Kind))
	p.name(s.Name)
	p.word("RESUME")
}
