package lang

// Define is DEFINE NAMESPACE, DATABASE, COLLECTION or SPACE: of what has a
// name and nothing else.
type Define struct {
	node
	Kind        Kind
	Name        string
	IfNotExists bool
}

// DefineTable is DEFINE TABLE: records of one shape.
type DefineTable struct {
	node
	Name        string
	IfNotExists bool
	Overwrite   bool
	Fields      []FieldDefinition
}

// FieldDefinition is one field of a table.
type FieldDefinition struct {
	Name string
	// Type is one of FieldTypes.
	Type string
	// Nullable is "| null".
	Nullable bool
	Required bool
	// Default and Assert are nil where they are not given.
	Default, Assert Expression
}

// FieldTypes are the types that a field of a table may have.
var FieldTypes = []string{
	"bool", "int", "float", "string", "bytes", "uuid", "datetime", "duration", "array", "object", "any", "record",
}

// Use is USE NAMESPACE or USE DATABASE.
type Use struct {
	node
	Kind Kind
	Name string
}

// Drop is DROP of what a name alone finds: NAMESPACE, DATABASE, COLLECTION,
// TABLE, SPACE, TOPIC, TOPIC CONSUMER or KAFKA CONSUMER.
type Drop struct {
	node
	Kind Kind
	Name string
}

// Info is INFO FOR something. Name is "" for what has none: STORE, NAMESPACE
// and DATABASE (those in use), TOPIC CONSUMERS and KAFKA CONSUMERS.
type Info struct {
	node
	Kind Kind
	Name string
}

func (*Define) statement()      {}
func (*DefineTable) statement() {}
func (*Use) statement()         {}
func (*Drop) statement()        {}
func (*Info) statement()        {}

// String is text that parses to the same statement.
func (s *Define) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *DefineTable) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Use) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Drop) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Info) String() string { return text(s) }

var definitions []production

func init() {
	definitions = []production{
		{"NAMESPACE", parseDefineOf(Namespace, "a namespace")},
		{"DATABASE", parseDefineOf(Database, "a database")},
		{"COLLECTION", parseDefineOf(Collection, "a collection")},
		{"TABLE", (*parser).parseDefineTable},
		{"SPACE", parseDefineOf(Space, "a space")},
		{"TOPIC", (*parser).parseDefineTopicOrConsumer},
		{"GROUP", (*parser).parseDefineGroup},
		{"KAFKA", (*parser).parseDefineKafkaConsumer},
		{"USER", (*parser).parseDefineUser},
	}
}

// parseDefine parses a definition.
//
//	define = "DEFINE" ( "NAMESPACE" | "DATABASE" | "COLLECTION" | "SPACE" ) [ if not exists ] name
//	       | define table | define topic | define group | define topic consumer
//	       | define kafka consumer | define user
func (p *parser) parseDefine(start place) Statement {
	p.expect("DEFINE")
	return p.choose(definitions, start, "what to define: NAMESPACE, DATABASE, COLLECTION, TABLE, SPACE, TOPIC, GROUP, TOPIC CONSUMER, KAFKA CONSUMER or USER")
}

func parseDefineOf(kind Kind, what string) func(*parser, place) Statement {
	return func(p *parser, start place) Statement {
		p.next()
		s := &Define{Kind: kind}
		s.IfNotExists = p.parseIfNotExists()
		s.Name = p.parseName(what)
		s.node = p.span(start)
		return s
	}
}

// parseDefineTable parses the definition of a table.
//
//	define table = "DEFINE" "TABLE" [ if not exists | "OVERWRITE" ] name
//	               "(" [ field definition { "," field definition } ] ")"
func (p *parser) parseDefineTable(start place) Statement {
	p.expect("TABLE")
	s := &DefineTable{}
	s.IfNotExists, s.Overwrite = p.parseExistence("")
	s.Name = p.parseName("a table")
	p.expectSign("(")
	for more := !p.isSign(p.current(), ")"); more; more = p.acceptSign(",") {
		at := p.begin()
		field := p.parseFieldDefinition()
		for _, earlier := range s.Fields {
			if earlier.Name == field.Name {
				p.refuse(at, "the table has a field %s already", field.Name)
			}
		}
		s.Fields = append(s.Fields, field)
	}
	p.expectSign(")", "','")
	s.node = p.span(start)
	return s
}

// parseFieldDefinition parses one field of a table.
//
//	field definition = name type [ "|" "null" ] { "REQUIRED" | "DEFAULT" expression | "ASSERT" expression }
//	type             = "bool" | "int" | "float" | "string" | "bytes" | "uuid" | "datetime" | "duration"
//	                 | "array" | "object" | "any" | "record"
func (p *parser) parseFieldDefinition() FieldDefinition {
	field := FieldDefinition{Name: p.parseName("a field")}
	for _, known := range FieldTypes {
		if p.is(p.current(), known) {
			field.Type = known
		}
	}
	if field.Type == "" {
		p.fail(FieldTypes...)
	}
	p.next()
	if p.acceptSign("|") {
		p.expect("null")
		field.Nullable = true
	}
	atEnd := func() bool { return p.isSign(p.current(), ",") || p.isSign(p.current(), ")") }
	p.parseClausesUntil(atEnd, "')'", []clause{
		words("REQUIRED", func() { field.Required = true }),
		words("DEFAULT", func() { field.Default = p.parseExpression() }),
		words("ASSERT", func() { field.Assert = p.parseExpression() }),
	})
	return field
}

// parseUse parses the choice of a namespace or a database.
//
//	use = "USE" ( "NAMESPACE" | "DATABASE" ) name
func (p *parser) parseUse(start place) Statement {
	p.expect("USE")
	s := &Use{}
	switch {
	case p.accept("NAMESPACE"):
		s.Kind, s.Name = Namespace, p.parseName("a namespace")
	case p.accept("DATABASE"):
		s.Kind, s.Name = Database, p.parseName("a database")
	default:
		p.fail("NAMESPACE", "DATABASE")
	}
	s.node = p.span(start)
	return s
}

// parseDrop parses the end of a definition.
//
//	drop = "DROP" ( "NAMESPACE" | "DATABASE" | "COLLECTION" | "TABLE" | "SPACE" | "TOPIC"
//	              | "TOPIC" "CONSUMER" | "KAFKA" "CONSUMER" ) name
//	     | drop group | drop user
func (p *parser) parseDrop(start place) Statement {
	p.expect("DROP")
	s := &Drop{}
	switch {
	case p.at("GROUP"):
		return p.parseDropGroup(start)
	case p.at("USER"):
		return p.parseDropUser(start)
	case p.accept("NAMESPACE"):
		s.Kind = Namespace
	case p.accept("DATABASE"):
		s.Kind = Database
	case p.accept("COLLECTION"):
		s.Kind = Collection
	case p.accept("TABLE"):
		s.Kind = Table
	case p.accept("SPACE"):
		s.Kind = Space
	case p.at("TOPIC", "CONSUMER") && isName(p.peek(2)):
		p.accept("TOPIC", "CONSUMER")
		s.Kind = TopicConsumer
	case p.accept("TOPIC"):
		s.Kind = Topic
	case p.accept("KAFKA"):
		p.expect("CONSUMER")
		s.Kind = KafkaConsumer
	default:
		p.fail("what to drop: NAMESPACE, DATABASE, COLLECTION, TABLE, SPACE, TOPIC, GROUP, TOPIC CONSUMER, KAFKA CONSUMER or USER")
	}
	s.Name = p.parseName(s.Kind.noun())
	s.node = p.span(start)
	return s
}

// parseInfo parses a question about something that is defined.
//
//	info = "INFO" "FOR" ( "STORE" | "NAMESPACE" | "DATABASE" | "TABLE" name | "TOPIC" name
//	     | ( "TOPIC" | "KAFKA" ) ( "CONSUMERS" | "CONSUMER" name ) )
func (p *parser) parseInfo(start place) Statement {
	p.expect("INFO", "FOR")
	s := &Info{}
	named := false
	switch {
	case p.accept("STORE"):
		s.Kind = Store
	case p.accept("NAMESPACE"):
		s.Kind = Namespace
	case p.accept("DATABASE"):
		s.Kind = Database
	case p.accept("TABLE"):
		s.Kind, named = Table, true
	case p.accept("TOPIC", "CONSUMERS"):
		s.Kind = TopicConsumers
	case p.at("TOPIC", "CONSUMER") && isName(p.peek(2)):
		p.accept("TOPIC", "CONSUMER")
		s.Kind, named = TopicConsumer, true
	case p.accept("TOPIC"):
		s.Kind, named = Topic, true
	case p.accept("KAFKA", "CONSUMERS"):
		s.Kind = KafkaConsumers
	case p.accept("KAFKA"):
		if !p.accept("CONSUMER") {
			p.fail("CONSUMER", "CONSUMERS")
		}
		s.Kind, named = KafkaConsumer, true
	default:
		p.fail("what to inform about: STORE, NAMESPACE, DATABASE, TABLE, TOPIC, TOPIC CONSUMER, TOPIC CONSUMERS, KAFKA CONSUMER or KAFKA CONSUMERS")
	}
	if named {
		s.Name = p.parseName(s.Kind.noun())
	}
	s.node = p.span(start)
	return s
}

// noun is the kind as a sentence names it.
func (k Kind) noun() string {
	switch k {
	case Namespace:
		return "a namespace"
	case Database:
		return "a database"
	case Collection:
		return "a collection"
	case Table:
		return "a table"
	case Space:
		return "a space"
	case Topic:
		return "a topic"
	}
	return "a consumer"
}

func (s *Define) print(p *printer) {
	p.word("DEFINE " + string(s.Kind))
	p.flag("IF NOT EXISTS", s.IfNotExists)
	p.name(s.Name)
}

func (s *DefineTable) print(p *printer) {
	p.word("DEFINE TABLE")
	p.flag("IF NOT EXISTS", s.IfNotExists)
	p.flag("OVERWRITE", s.Overwrite)
	p.name(s.Name)
	p.open("(")
	list(p, s.Fields, func(field FieldDefinition) {
		p.name(field.Name)
		p.word(field.Type)
		p.flag("| null", field.Nullable)
		p.flag("REQUIRED", field.Required)
		p.fieldClause("DEFAULT", field.Default)
		p.fieldClause("ASSERT", field.Assert)
	})
	p.sign(")")
}

func (p *printer) fieldClause(keyword string, e Expression) {
	if e != nil {
		p.word(keyword)
		e.print(p)
	}
}

func (s *Use) print(p *printer) {
	p.word("USE " + string(s.Kind))
	p.name(s.Name)
}

func (s *Drop) print(p *printer) {
	p.word("DROP " + string(s.Kind))
	p.name(s.Name)
}

func (s *Info) print(p *printer) {
	p.word("INFO FOR " + string(s.Kind))
	if s.Name != "" {
		p.name(s.Name)
	}
}
