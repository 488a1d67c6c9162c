package lang

import (
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/value"
)

// Literal is a constant: also an array, an object or a record id whose parts
// are all constant.
type Literal struct {
	node
	Value value.Value
}

// Parameter is a value that travels beside the text.
type Parameter struct {
	node
	// Name is without the dollar sign.
	Name string
}

// Path is what stands at a place inside a value: a.b or a[0], of the record at
// hand, or of another value as in $order.lines[0].
type Path struct {
	node
	// Root is the value in which the path begins, nil for the record at hand.
	// It is itself no path.
	Root Expression
	// Parts lead from there inwards; without a Root, the first is a field.
	Parts []Part
}

// Part is one step of a path: the field of a name or, where Index is not nil,
// the element at an index.
type Part struct {
	Field string
	Index Expression
}

// Call is a call of a function. Which functions there are is not the grammar's
// business.
type Call struct {
	node
	// Function is in lower case: functions, like keywords, go by any.
	Function  string
	Arguments []Expression
}

// ArrayExpression is an array of which at least one element is not constant.
type ArrayExpression struct {
	node
	Elements []Expression
}

// ObjectExpression is an object of which at least one field is not constant.
type ObjectExpression struct {
	node
	// Fields are as written; no two have one name.
	Fields []Field
}

// Field is a field of an ObjectExpression.
type Field struct {
	Name  string
	Value Expression
}

// RecordExpression is a record id whose key is a parameter.
type RecordExpression struct {
	node
	Table string
	Key   Expression
}

func (*Literal) expression()          {}
func (*Parameter) expression()        {}
func (*Path) expression()             {}
func (*Call) expression()             {}
func (*ArrayExpression) expression()  {}
func (*ObjectExpression) expression() {}
func (*RecordExpression) expression() {}

// String is text that parses to the same expression.
func (e *Literal) String() string { return e.Value.String() }

// String is text that parses to the same expression.
func (e *Parameter) String() string { return text(e) }

// String is text that parses to the same expression.
func (e *Path) String() string { return text(e) }

// String is text that parses to the same expression.
func (e *Call) String() string { return text(e) }

// String is text that parses to the same expression.
func (e *ArrayExpression) String() string { return text(e) }

// String is text that parses to the same expression.
func (e *ObjectExpression) String() string { return text(e) }

// String is text that parses to the same expression.
func (e *RecordExpression) String() string { return text(e) }

// Names returns the path as names, and whether it is one of names alone.
func (e *Path) Names() (value.Path, bool) {
	if e.Root != nil {
		return nil, false
	}
	names := make(value.Path, len(e.Parts))
	for i, part := range e.Parts {
		if part.Index != nil {
			return nil, false
		}
		names[i] = part.Field
	}
	return names, true
}

// reserved are the words that mean something where an expression begins, so
// that a field of such a name is written in backquotes. Everywhere else they
// are names like any other.
var reserved = []string{"none", "null", "true", "false", "not", "and", "or", "select"}

// parseOperand parses what operators stand between.
//
//	operand = literal | array | object | record id
//	        | ( parameter | name | call | "(" expression ")" ) { part }
//	        | "(" select ")"
//	literal = "none" | "null" | "true" | "false" | int | float | duration | string | datetime | uuid | bytes
//	call    = word "(" [ expression { "," expression } ] ")"
func (p *parser) parseOperand() Expression {
	start := p.begin()
	switch t := p.current(); t.kind {
	case tokenInt, tokenFloat, tokenDuration:
		v := p.parseNumber("")
		return p.literal(start, v)
	case tokenString, tokenDatetime, tokenUUID, tokenBytes:
		v := p.parseText()
		return p.literal(start, v)
	case tokenParameter:
		return p.parseParts(start, p.parseParameter())
	case tokenWord, tokenQuotedWord:
		return p.parseWord(start)
	case tokenSign:
		switch p.text(t) {
		case "(":
			return p.parseParentheses(start)
		case "[":
			return p.parseArray(start)
		case "{":
			return p.parseObject(start)
		}
	}
	p.fail("a value")
	return nil
}

// parseParameter parses a parameter.
//
//	parameter = "$" word
func (p *parser) parseParameter() Expression {
	start := p.begin()
	t := p.next()
	return &Parameter{node: p.span(start), Name: p.text(&t)[1:]}
}

// parseWord parses an operand that begins with an identifier.
func (p *parser) parseWord(start place) Expression {
	t := p.current()
	if p.isSign(p.peek(1), ":") {
		return p.parseRecordID()
	}
	if t.kind == tokenWord {
		if v, ok := p.constant(t); ok {
			p.next()
			return p.literal(start, v)
		}
		if isReserved(p.text(t)) {
			p.fail("a value")
		}
		if p.isSign(p.peek(1), "(") {
			return p.parseParts(start, p.parseCall(start))
		}
	}
	first := p.next()
	return p.parsePartsAfter(start, nil, []Part{{Field: p.nameOf(&first)}})
}

func isReserved(word string) bool {
	return slices.ContainsFunc(reserved, func(r string) bool { return strings.EqualFold(r, word) })
}

func (p *parser) parseCall(start place) Expression {
	function := p.next()
	p.expectSign("(")
	var arguments []Expression
	if !p.isSign(p.current(), ")") {
		arguments = p.parseExpressions()
	}
	p.expectSign(")", "','")
	return &Call{node: p.span(start), Function: strings.ToLower(p.text(&function)), Arguments: arguments}
}

// parseExpressions parses expressions separated by commas.
func (p *parser) parseExpressions() []Expression {
	expressions := []Expression{p.parseExpression()}
	for p.acceptSign(",") {
		expressions = append(expressions, p.parseExpression())
	}
	return expressions
}

func (p *parser) parseParentheses(start place) Expression {
	p.next()
	if p.is(p.current(), "SELECT") && !p.isSign(p.peek(1), ":") {
		p.enter()
		defer p.leave(p.operators)
		query := p.parseSelect(p.begin())
		p.expectSign(")")
		return &Subquery{node: p.span(start), Select: query}
	}
	inner := p.parseExpression()
	p.expectSign(")", "an operator")
	return p.parseParts(start, inner)
}

// parseParts parses the steps of a path that begins in a value, if there are
// any.
//
//	part = "." name | "[" expression "]"
func (p *parser) parseParts(start place, root Expression) Expression {
	if t := p.current(); !p.isSign(t, ".") && !p.isSign(t, "[") {
		return root
	}
	if path, ok := root.(*Path); ok {
		return p.parsePartsAfter(start, path.Root, slices.Clone(path.Parts))
	}
	return p.parsePartsAfter(start, root, nil)
}

func (p *parser) parsePartsAfter(start place, root Expression, parts []Part) Expression {
	for {
		switch {
		case len(parts) > MaxOperators:
			p.refuse(start, "the path has more than %d parts", MaxOperators)
		case p.acceptSign("."):
			parts = append(parts, Part{Field: p.parseName("a field")})
		case p.acceptSign("["):
			index := p.parseExpression()
			p.expectSign("]")
			parts = append(parts, Part{Index: index})
		default:
			return &Path{node: p.span(start), Root: root, Parts: parts}
		}
	}
}

// parseFieldPath parses the name of a field, or of one in a field that is an
// object, where a declaration wants one.
//
//	field path = name { "." name }
func (p *parser) parseFieldPath(what string) value.Path {
	path := value.Path{p.parseName(what)}
	for p.acceptSign(".") {
		path = append(path, p.parseName("a field"))
	}
	return path
}

// parseArray parses an array; one of literals is a literal.
//
//	array = "[" [ expression { "," expression } ] "]"
func (p *parser) parseArray(start place) Expression {
	p.next()
	var elements []Expression
	if !p.isSign(p.current(), "]") {
		elements = p.parseExpressions()
	}
	p.expectSign("]", "','")
	values := make([]value.Value, len(elements))
	for i, element := range elements {
		literal, ok := element.(*Literal)
		if !ok {
			return &ArrayExpression{node: p.span(start), Elements: elements}
		}
		values[i] = literal.Value
	}
	return p.literal(start, value.Array(values...))
}

// parseObject parses an object; one of literals is a literal. A field that is
// none is absent, so a literal does not have it.
//
//	object = "{" [ field { "," field } ] "}"
//	field  = ( name | string ) ":" expression
func (p *parser) parseObject(start place) Expression {
	p.next()
	object := value.Object{}
	var fields []Field
	constant := true
	for more := !p.isSign(p.current(), "}"); more; more = p.acceptSign(",") {
		at := p.begin()
		name := p.parseKey()
		if _, twice := object[name]; twice {
			p.refuse(at, "the object has a field %s already", value.QuoteIdentifier(name))
		}
		p.expectSign(":")
		e := p.parseExpression()
		fields = append(fields, Field{name, e})
		if literal, ok := e.(*Literal); ok {
			object[name] = literal.Value
		} else {
			object[name] = value.None()
			constant = false
		}
	}
	p.expectSign("}", "','")
	if !constant {
		return &ObjectExpression{node: p.span(start), Fields: fields}
	}
	for _, field := range fields {
		if object[field.Name].IsNone() {
			delete(object, field.Name)
		}
	}
	return p.literal(start, value.Fields(object))
}

// parseKey parses the name of a field of an object.
func (p *parser) parseKey() string {
	switch p.current().kind {
	case tokenWord, tokenQuotedWord, tokenString:
		t := p.next()
		return p.nameOf(&t)
	}
	p.fail("the name of a field")
	return ""
}

// parseRecordID parses an identity; one with a constant key is a literal.
//
//	record id = name ":" key
func (p *parser) parseRecordID() Expression {
	start := p.begin()
	table := p.parseName("a table")
	p.next()
	key := p.parseRecordKey()
	if literal, ok := key.(*Literal); ok {
		return p.literal(start, value.Record(value.RecordID{Table: table, Key: literal.Value}))
	}
	return &RecordExpression{node: p.span(start), Table: table, Key: key}
}

// parseRecordKey parses the key of an identity.
//
//	key = [ "-" ] int | string | uuid | parameter
func (p *parser) parseRecordKey() Expression {
	start := p.begin()
	switch t := p.current(); {
	case t.kind == tokenInt, p.isSign(t, "-") && p.peek(1).kind == tokenInt:
		return p.parseUnary(precedenceUnary)
	case t.kind == tokenString, t.kind == tokenUUID:
		v := p.parseText()
		return p.literal(start, v)
	case t.kind == tokenParameter:
		return p.parseParameter()
	}
	p.fail("a key: an int, a string in quotes, a uuid u'…' or a parameter")
	return nil
}

func (e *Literal) print(p *printer) { p.word(e.Value.String()) }

func (e *Parameter) print(p *printer) { p.word("$" + e.Name) }

func (e *Path) print(p *printer) {
	if e.Root == nil && p.atValue {
		p.atValue = false
		p.parenthesized(e)
		return
	}
	switch e.Root.(type) {
	case nil:
		p.word(quoteName(e.Parts[0].Field, reserved))
	case *Parameter, *Call:
		e.Root.print(p)
	default:
		p.parenthesized(e.Root)
	}
	for i, part := range e.Parts {
		switch {
		case part.Index != nil:
			p.sign("[")
			p.joined = true
			part.Index.print(p)
			p.sign("]")
		case i > 0 || e.Root != nil:
			p.sign("." + value.QuoteIdentifier(part.Field))
		}
	}
}

func (e *Call) print(p *printer) {
	p.word(e.Function)
	p.sign("(")
	p.joined = true
	list(p, e.Arguments, func(argument Expression) { argument.print(p) })
	p.sign(")")
}

func (e *ArrayExpression) print(p *printer) {
	p.open("[")
	list(p, e.Elements, func(element Expression) { element.print(p) })
	p.sign("]")
}

func (e *ObjectExpression) print(p *printer) {
	p.word("{")
	list(p, e.Fields, func(field Field) {
		p.word(value.QuoteIdentifier(field.Name))
		p.sign(":")
		field.Value.print(p)
	})
	p.word("}")
}

func (e *RecordExpression) print(p *printer) {
	p.word(value.QuoteIdentifier(e.Table))
	p.sign(":")
	p.joined = true
	e.Key.print(p)
}
