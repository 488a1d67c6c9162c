package lang

import "github.com/tidemarkdb/tidemark/value"

// DefineGroup is DEFINE GROUP.
type DefineGroup struct {
	node
	// Name is a string or a parameter.
	Name        Expression
	IfNotExists bool
	Topic       string
	GroupClauses
	// KeyedBy is nil for a group that is not keyed.
	KeyedBy value.Path
}

// AlterGroup is ALTER GROUP: what it gives replaces what the definition has,
// and what it drops is taken away.
type AlterGroup struct {
	node
	// Name is a string or a parameter.
	Name  Expression
	Topic string
	// StartAt is nil where the group's place stays.
	StartAt Expression
	// Pause and Resume are not given together.
	Pause, Resume bool
	GroupClauses
	// Drops are the clauses dropped, in the order of the constants.
	Drops []GroupClause
}

// GroupClauses are the clauses of a group; nil, or "", is one that is not
// given.
type GroupClauses struct {
	// AckDeadline is always given in a DefineGroup.
	AckDeadline Expression
	Deliveries  Expression
	InFlight    Expression
	// Backoff is given with at least one duration.
	Backoff []Expression
	// DeadLetter is a topic.
	DeadLetter string
}

// DropGroup is DROP GROUP.
type DropGroup struct {
	node
	// Name is a string or a parameter.
	Name  Expression
	Topic string
}

// GroupClause is a clause of a group that ALTER GROUP … DROP names.
type GroupClause string

// The clauses of a group that can be dropped.
const (
	ClauseDeliveries GroupClause = "DELIVERIES"
	ClauseInFlight   GroupClause = "IN FLIGHT"
	ClauseBackoff    GroupClause = "BACKOFF"
	ClauseDeadLetter GroupClause = "DEAD LETTER"
)

var groupClauses = []GroupClause{ClauseDeliveries, ClauseInFlight, ClauseBackoff, ClauseDeadLetter}

func (*DefineGroup) statement() {}
func (*AlterGroup) statement()  {}
func (*DropGroup) statement()   {}

// String is text that parses to the same statement.
func (s *DefineGroup) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *AlterGroup) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *DropGroup) String() string { return text(s) }

// parseDefineGroup parses the definition of a group.
//
//	define group = "DEFINE" "GROUP" [ if not exists ] quoted "ON" "TOPIC" name
//	               "ACK" "DEADLINE" value { group clause | "KEYED" "BY" field path }   in any order
func (p *parser) parseDefineGroup(start place) Statement {
	p.expect("GROUP")
	s := &DefineGroup{}
	s.IfNotExists = p.parseIfNotExists()
	s.Name, s.Topic = p.parseGroupName()
	clauses := append(s.clauses(p),
		words("KEYED BY", func() { s.KeyedBy = p.parseFieldPath("a field") }))
	p.parseClauses(clauses...)
	if s.AckDeadline == nil {
		p.fail("ACK DEADLINE: how long a worker may hold a message has no default")
	}
	s.node = p.span(start)
	return s
}

// parseGroupName parses which group of which topic.
func (p *parser) parseGroupName() (name Expression, topic string) {
	name = p.parseQuoted("the name of a group")
	p.expect("ON", "TOPIC")
	return name, p.parseName("a topic")
}

// parseAlterGroup parses the change of a group.
//
//	alter group  = "ALTER" "GROUP" quoted "ON" "TOPIC" name group change { group change }
//	group change = group clause | "START" "AT" value | "PAUSE" | "RESUME"
//	             | "DROP" ( "DELIVERIES" | "IN" "FLIGHT" | "BACKOFF" | "DEAD" "LETTER" [ "TO" ] )
func (p *parser) parseAlterGroup(start place) Statement {
	p.expect("GROUP")
	s := &AlterGroup{}
	s.Name, s.Topic = p.parseGroupName()
	resume := words("RESUME", func() { s.Resume = true })
	resume.name = "PAUSE"
	clauses := append(s.clauses(p),
		words("START AT", func() { s.StartAt = p.parseValue("a position") }),
		words("PAUSE", func() { s.Pause = true }),
		resume)
	dropped := map[GroupClause]bool{}
	for _, c := range groupClauses {
		drop := words("DROP "+string(c), func() {
			dropped[c] = true
			if c == ClauseDeadLetter {
				p.accept("TO")
			}
		})
		drop.name = string(c)
		clauses = append(clauses, drop)
	}
	p.parseSomeClauses(clauses...)
	for _, c := range groupClauses {
		if dropped[c] {
			s.Drops = append(s.Drops, c)
		}
	}
	s.node = p.span(start)
	return s
}

// clauses are the clauses that a group is defined and altered with.
//
//	group clause = "ACK" "DEADLINE" value | "DELIVERIES" value | "IN" "FLIGHT" value
//	             | "BACKOFF" value { "," value } | "DEAD" "LETTER" "TO" name
func (c *GroupClauses) clauses(p *parser) []clause {
	deadLetter := words("DEAD LETTER TO", func() { c.DeadLetter = p.parseName("a topic") })
	deadLetter.name = string(ClauseDeadLetter)
	return []clause{
		words("ACK DEADLINE", func() { c.AckDeadline = p.parseValue("a duration") }),
		words("DELIVERIES", func() { c.Deliveries = p.parseValue("a number of deliveries") }),
		words("IN FLIGHT", func() { c.InFlight = p.parseValue("a number of messages") }),
		words("BACKOFF", func() { c.Backoff = p.parseValues("a duration") }),
		deadLetter,
	}
}

// parseDropGroup parses the end of a group.
//
//	drop group = "DROP" "GROUP" quoted "ON" "TOPIC" name
func (p *parser) parseDropGroup(start place) Statement {
	p.expect("GROUP")
	s := &DropGroup{}
	s.Name, s.Topic = p.parseGroupName()
	s.node = p.span(start)
	return s
}

func (s *DefineGroup) print(p *printer) {
	p.word("DEFINE GROUP")
	p.flag("IF NOT EXISTS", s.IfNotExists)
	p.groupName(s.Name, s.Topic)
	s.printClauses(p)
	if s.KeyedBy != nil {
		p.word("KEYED BY " + s.KeyedBy.String())
	}
}

func (s *AlterGroup) print(p *printer) {
	p.word("ALTER GROUP")
	p.groupName(s.Name, s.Topic)
	p.clause("START AT", s.StartAt)
	p.flag("PAUSE", s.Pause)
	p.flag("RESUME", s.Resume)
	s.printClauses(p)
	for _, c := range s.Drops {
		p.word("DROP " + string(c))
	}
}

func (s *DropGroup) print(p *printer) {
	p.word("DROP GROUP")
	p.groupName(s.Name, s.Topic)
}

func (p *printer) groupName(name Expression, topic string) {
	p.value(name)
	p.word("ON TOPIC")
	p.name(topic)
}

func (c *GroupClauses) printClauses(p *printer) {
	p.clause("ACK DEADLINE", c.AckDeadline)
	p.clause("DELIVERIES", c.Deliveries)
	p.clause("IN FLIGHT", c.InFlight)
	if c.Backoff != nil {
		p.word("BACKOFF")
		list(p, c.Backoff, p.value)
	}
	if c.DeadLetter != "" {
		p.word("DEAD LETTER TO")
		p.name(c.DeadLetter)
	}
}
