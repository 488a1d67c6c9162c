package lang

import "github.com/tidemarkdb/tidemark/value"

// Target is a table, a collection, a space or a topic, or one row of it.
type Target struct {
	node
	Table string
	// Key is nil for all of it.
	Key Expression
}

// Create is CREATE: one row, or one message.
type Create struct {
	node
	Target *Target
	Value  Expression
}

// Insert is INSERT INTO: the rows of an array, or one.
type Insert struct {
	node
	Table string
	Rows  Expression
}

// Upsert is UPSERT: a row, in place of the one that is there.
type Upsert struct {
	node
	// Target has a key.
	Target *Target
	Value  Expression
}

// Update is UPDATE: fields of the rows of a target that a condition is true
// for.
type Update struct {
	node
	Target *Target
	Set    []Assignment
	Where  Expression
}

// Assignment gives a field of a record a value.
type Assignment struct {
	Field value.Path
	Value Expression
}

// Delete is DELETE: the rows of a target that a condition is true for.
type Delete struct {
	node
	Target *Target
	Where  Expression
}

func (*Create) statement() {}
func (*Insert) statement() {}
func (*Upsert) statement() {}
func (*Update) statement() {}
func (*Delete) statement() {}

// String is text that stands for the same target in a statement.
func (t *Target) String() string { return text(t) }

// String is text that parses to the same statement.
func (s *Create) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Insert) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Upsert) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Update) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Delete) String() string { return text(s) }

// parseTarget parses what a statement is about.
//
//	target = name [ ":" key ]
func (p *parser) parseTarget() *Target {
	start := p.begin()
	t := &Target{Table: p.parseName("a table or topic")}
	if p.acceptSign(":") {
		t.Key = p.parseRecordKey()
	}
	t.node = p.span(start)
	return t
}

// parseCreate parses a new row.
//
//	create = "CREATE" target "=" expression
func (p *parser) parseCreate(start place) Statement {
	p.expect("CREATE")
	s := &Create{Target: p.parseTarget()}
	if s.Target.Key == nil {
		p.expectSign("=", "':'")
	} else {
		p.expectSign("=")
	}
	s.Value = p.parseExpression()
	p.expectEnd()
	s.node = p.span(start)
	return s
}

// parseInsert parses new rows.
//
//	insert = "INSERT" "INTO" name expression
func (p *parser) parseInsert(start place) Statement {
	p.expect("INSERT", "INTO")
	s := &Insert{Table: p.parseName("a table or topic"), Rows: p.parseExpression()}
	s.node = p.span(start)
	return s
}

// parseUpsert parses a row that replaces another.
//
//	upsert = "UPSERT" name ":" key "=" expression
func (p *parser) parseUpsert(start place) Statement {
	p.expect("UPSERT")
	s := &Upsert{Target: p.parseTarget()}
	if s.Target.Key == nil {
		p.fail("':' and the record's key")
	}
	p.expectSign("=")
	s.Value = p.parseExpression()
	s.node = p.span(start)
	return s
}

// parseUpdate parses a change of rows.
//
//	update     = "UPDATE" target "SET" assignment { "," assignment } [ "WHERE" expression ]
//	assignment = field path "=" expression
func (p *parser) parseUpdate(start place) Statement {
	p.expect("UPDATE")
	s := &Update{Target: p.parseTarget()}
	p.expect("SET")
	s.Set = []Assignment{p.parseAssignment()}
	for p.acceptSign(",") {
		s.Set = append(s.Set, p.parseAssignment())
	}
	s.Where = p.parseWhere("','")
	s.node = p.span(start)
	return s
}

func (p *parser) parseAssignment() Assignment {
	a := Assignment{Field: p.parseFieldPath("a field")}
	p.expectSign("=")
	a.Value = p.parseExpression()
	return a
}

// parseDelete parses the removal of rows.
//
//	delete = "DELETE" target [ "WHERE" expression ]
func (p *parser) parseDelete(start place) Statement {
	p.expect("DELETE")
	s := &Delete{Target: p.parseTarget()}
	s.Where = p.parseWhere()
	s.node = p.span(start)
	return s
}

// parseWhere parses the condition that a statement may end with; before names
// what else may stand where there is none.
func (p *parser) parseWhere(before ...string) Expression {
	if !p.accept("WHERE") {
		p.expectEnd(append(before, "WHERE")...)
		return nil
	}
	where := p.parseExpression()
	p.expectEnd("an operator")
	return where
}

func (t *Target) print(p *printer) {
	p.name(t.Table)
	if t.Key != nil {
		p.sign(":")
		p.joined = true
		t.Key.print(p)
	}
}

func (s *Create) print(p *printer) { p.assignment("CREATE", s.Target, s.Value) }

func (s *Upsert) print(p *printer) { p.assignment("UPSERT", s.Target, s.Value) }

func (p *printer) assignment(keyword string, target *Target, value Expression) {
	p.word(keyword)
	target.print(p)
	p.word("=")
	value.print(p)
}

func (s *Insert) print(p *printer) {
	p.word("INSERT INTO")
	p.name(s.Table)
	s.Rows.print(p)
}

func (s *Update) print(p *printer) {
	p.word("UPDATE")
	s.Target.print(p)
	p.word("SET")
	list(p, s.Set, func(a Assignment) {
		p.word(a.Field.String())
		p.word("=")
		a.Value.print(p)
	})
	p.where(s.Where)
}

func (s *Delete) print(p *printer) {
	p.word("DELETE")
	s.Target.print(p)
	p.where(s.Where)
}

func (p *printer) where(condition Expression) {
	if condition != nil {
		p.word("WHERE")
		condition.print(p)
	}
}
