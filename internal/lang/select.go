package lang

// Select is SELECT.
type Select struct {
	node
	// Projections are nil for SELECT *.
	Projections []Projection
	From        *Target
	Where       Expression
	GroupBy     []Expression
	OrderBy     []Ordering
	Limit       Expression
	Start       Expression
}

// Projection is one field of what a SELECT answers.
type Projection struct {
	Expression Expression
	// Alias is "" where there is no AS.
	Alias string
}

// Ordering is one of the expressions that an answer is sorted by.
type Ordering struct {
	Expression Expression
	Descending bool
}

func (*Select) statement() {}

// String is text that parses to the same statement.
func (s *Select) String() string { return text(s) }

// Name is the name of the field that the projection answers: its alias or, for
// want of one, its text. A field is named by its name, in no backquotes, and a
// call without arguments by its function: count() answers a field count.
func (p Projection) Name() string {
	if p.Alias != "" {
		return p.Alias
	}
	switch e := p.Expression.(type) {
	case *Call:
		if len(e.Arguments) == 0 {
			return e.Function
		}
	case *Path:
		if names, ok := e.Names(); ok && len(names) == 1 {
			return names[0]
		}
	}
	return p.Expression.String()
}

// parseSelect parses a question about rows.
//
//	select     = "SELECT" ( "*" | projection { "," projection } ) "FROM" target [ "WHERE" expression ]
//	             [ "GROUP" "BY" expression { "," expression } ] [ "ORDER" "BY" ordering { "," ordering } ]
//	             [ "LIMIT" value ] [ "START" value ]
//	projection = expression [ "AS" name ]
//	ordering   = expression [ "ASC" | "DESC" ]
func (p *parser) parseSelect(start place) *Select {
	p.expect("SELECT")
	s := &Select{}
	if !p.acceptSign("*") {
		s.Projections = p.parseProjections()
	}
	if !p.accept("FROM") {
		if s.Projections == nil {
			p.fail("FROM")
		}
		p.fail("','", "AS", "FROM")
	}
	s.From = p.parseTarget()
	expected := []string{"WHERE", "GROUP BY", "ORDER BY", "LIMIT", "START"}
	if p.accept("WHERE") {
		s.Where = p.parseExpression()
		expected = []string{"an operator", "GROUP BY", "ORDER BY", "LIMIT", "START"}
	}
	if p.accept("GROUP") {
		p.expect("BY")
		s.GroupBy = p.parseExpressions()
		expected = []string{"','", "an operator", "ORDER BY", "LIMIT", "START"}
	}
	if p.accept("ORDER") {
		p.expect("BY")
		s.OrderBy = p.parseOrderings()
		expected = []string{"','", "an operator", "ASC", "DESC", "LIMIT", "START"}
	}
	if p.accept("LIMIT") {
		s.Limit = p.parseValue("a number of rows")
		expected = []string{"START"}
	}
	if p.accept("START") {
		s.Start = p.parseValue("a number of rows")
		expected = nil
	}
	p.expectEnd(expected...)
	s.node = p.span(start)
	return s
}

func (p *parser) parseProjections() []Projection {
	if p.at("FROM") && isName(p.peek(1)) && !p.at("FROM", "FROM") && !p.at("FROM", "AS") && !p.isWordOperator(p.peek(1)) {
		p.fail("'*'", "a value")
	}
	var projections []Projection
	for more := true; more; more = p.acceptSign(",") {
		projection := Projection{Expression: p.parseExpression()}
		if p.accept("AS") {
			projection.Alias = p.parseName("a field")
		}
		projections = append(projections, projection)
	}
	return projections
}

func (p *parser) parseOrderings() []Ordering {
	var orderings []Ordering
	for more := true; more; more = p.acceptSign(",") {
		ordering := Ordering{Expression: p.parseExpression()}
		if !p.accept("ASC") {
			ordering.Descending = p.accept("DESC")
		}
		orderings = append(orderings, ordering)
	}
	return orderings
}

func (s *Select) print(p *printer) {
	p.word("SELECT")
	if s.Projections == nil {
		p.word("*")
	}
	list(p, s.Projections, func(projection Projection) {
		projection.Expression.print(p)
		if projection.Alias != "" {
			p.word("AS")
			p.name(projection.Alias)
		}
	})
	p.word("FROM")
	s.From.print(p)
	p.where(s.Where)
	if s.GroupBy != nil {
		p.word("GROUP BY")
		list(p, s.GroupBy, func(e Expression) { e.print(p) })
	}
	if s.OrderBy != nil {
		p.word("ORDER BY")
		list(p, s.OrderBy, func(o Ordering) {
			o.Expression.print(p)
			p.flag("DESC", o.Descending)
		})
	}
	p.clause("LIMIT", s.Limit)
	p.clause("START", s.Start)
}
