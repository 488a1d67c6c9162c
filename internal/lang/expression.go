package lang

import (
	"slices"
	"strings"
)

// Operator is the sign or word of an operation, as statements write it.
type Operator string

// The operators. Negate and Not stand before one operand, the others between
// two.
const (
	Or             Operator = "OR"
	And            Operator = "AND"
	Not            Operator = "NOT"
	Equal          Operator = "="
	NotEqual       Operator = "!="
	Less           Operator = "<"
	LessOrEqual    Operator = "<="
	Greater        Operator = ">"
	GreaterOrEqual Operator = ">="
	In             Operator = "IN"
	Contains       Operator = "CONTAINS"
	Add            Operator = "+"
	Subtract       Operator = "-"
	Multiply       Operator = "*"
	Divide         Operator = "/"
	Remainder      Operator = "%"
	Negate         Operator = "-"
)

// precedence says how closely an operator binds.
type precedence int

const (
	precedenceOr precedence = iota + 1
	precedenceAnd
	precedenceNot
	precedenceComparison
	precedenceAdditive
	precedenceMultiplicative
	precedenceUnary
	precedenceOperand
)

// Unary is an operation on one operand: NOT, or a minus before what is no
// number.
type Unary struct {
	node
	Operator Operator
	Operand  Expression
}

// Binary is an operation on two operands.
type Binary struct {
	node
	Operator    Operator
	Left, Right Expression
}

// Subquery is a SELECT in parentheses. The grammar has it so that whoever runs
// the tree can say where it is refused.
type Subquery struct {
	node
	Select *Select
}

func (*Unary) expression()    {}
func (*Binary) expression()   {}
func (*Subquery) expression() {}

// String is text that parses to the same expression.
func (e *Unary) String() string { return text(e) }

// String is text that parses to the same expression.
func (e *Binary) String() string { return text(e) }

// String is text that parses to the same expression.
func (e *Subquery) String() string { return text(e) }

// parseExpression parses an expression between two brackets, or a whole one.
//
//	expression     = or
//	or             = and { "OR" and }
//	and            = not { "AND" not }
//	not            = "NOT" not | comparison
//	comparison     = additive [ compare additive ]
//	compare        = "=" | "!=" | "<" | "<=" | ">" | ">=" | "IN" | "CONTAINS"
//	additive       = multiplicative { ( "+" | "-" ) multiplicative }
//	multiplicative = unary { ( "*" | "/" | "%" ) unary }
//	unary          = "-" unary | operand
func (p *parser) parseExpression() Expression {
	p.enter()
	defer p.leave(p.operators)
	p.operators = 0
	return p.parseBinary(precedenceOr)
}

// parseBinary parses an expression whose operators bind at least as closely as
// minimum, by climbing: what follows an operator binds closer than it.
func (p *parser) parseBinary(minimum precedence) Expression {
	start := p.begin()
	left := p.parseUnary(minimum)
	compared := false
	for {
		operator, binds := p.binaryOperator()
		if p.at("NOT", "IN") || p.at("NOT", "CONTAINS") {
			p.refuse(p.begin(), "NOT stands before what it negates: NOT a IN b")
		}
		if binds == 0 || binds < minimum {
			return left
		}
		if binds == precedenceComparison && compared {
			p.refuse(p.begin(), "comparisons do not chain; join two with AND, or put one in parentheses")
		}
		compared = binds == precedenceComparison
		if p.operators++; p.operators > MaxOperators {
			p.refuse(p.begin(), "the expression has more than %d operators in a row", MaxOperators)
		}
		p.next()
		right := p.parseBinary(binds + 1)
		left = &Binary{node: p.span(start), Operator: operator, Left: left, Right: right}
	}
}

// parseUnary parses what binary operators join: an operand with the signs
// before it or, where the context binds loosely enough, a negation.
func (p *parser) parseUnary(minimum precedence) Expression {
	t := p.current()
	switch {
	case p.isSign(t, "-"):
		return p.parseMinus()
	case minimum <= precedenceNot && p.is(t, "NOT") && !p.isSign(p.peek(1), ":"):
		start := p.begin()
		p.enter()
		defer p.leave(p.operators)
		p.next()
		operand := p.parseBinary(precedenceNot)
		return &Unary{node: p.span(start), Operator: Not, Operand: operand}
	}
	return p.parseOperand()
}

// parseMinus parses a minus and what it stands before. With a number it is one
// literal, so that the least int can be written.
func (p *parser) parseMinus() Expression {
	start := p.begin()
	p.next()
	if t := p.current(); t.kind == tokenInt || t.kind == tokenFloat || t.kind == tokenDuration {
		v := p.parseNumber("-")
		return p.literal(start, v)
	}
	p.enter()
	defer p.leave(p.operators)
	operand := p.parseUnary(precedenceUnary)
	return &Unary{node: p.span(start), Operator: Negate, Operand: operand}
}

// binaryOperator is the operator that the current token is, and how closely it
// binds; 0 for a token that is none.
func (p *parser) binaryOperator() (Operator, precedence) {
	t := p.current()
	if t.kind == tokenSign {
		operator := Operator(p.text(t))
		return operator, operator.binds()
	}
	for _, operator := range wordOperators {
		if p.is(t, string(operator)) {
			return operator, operator.binds()
		}
	}
	return "", 0
}

// wordOperators are the operators between two operands that are words.
var wordOperators = [...]Operator{And, Or, In, Contains}

func (p *parser) isWordOperator(t *token) bool {
	return slices.ContainsFunc(wordOperators[:], func(o Operator) bool { return p.is(t, string(o)) })
}

// binds is how closely an operator between two operands binds; 0 for what is
// none.
func (o Operator) binds() precedence {
	switch o {
	case Or:
		return precedenceOr
	case And:
		return precedenceAnd
	case Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, In, Contains:
		return precedenceComparison
	case Add, Subtract:
		return precedenceAdditive
	case Multiply, Divide, Remainder:
		return precedenceMultiplicative
	}
	return 0
}

// precedenceOf is how closely the outermost operator of an expression binds.
func precedenceOf(e Expression) precedence {
	switch e := e.(type) {
	case *Unary:
		if e.Operator == Not {
			return precedenceNot
		}
		return precedenceUnary
	case *Binary:
		return e.Operator.binds()
	}
	return precedenceOperand
}

// operand prints an expression in a place that takes what binds at least as
// closely as minimum, in parentheses where it binds less.
func (p *printer) operand(e Expression, minimum precedence) {
	if precedenceOf(e) >= minimum {
		e.print(p)
		return
	}
	p.parenthesized(e)
}

func (p *printer) parenthesized(e Node) {
	p.open("(")
	e.print(p)
	p.sign(")")
}

func (e *Unary) print(p *printer) {
	if e.Operator == Not {
		p.word("NOT")
		p.operand(e.Operand, precedenceNot)
		return
	}
	number := isNumber(e.Operand)
	nested, ok := e.Operand.(*Unary)
	switch {
	case ok && nested.Operator == Negate, number && strings.HasPrefix(e.Operand.String(), "-"):
		// Two minus signs in a row would begin a comment.
		p.word("-")
	case number:
		// The minus would become part of the number.
		p.open("-")
		p.parenthesized(e.Operand)
		return
	default:
		p.open("-")
	}
	p.operand(e.Operand, precedenceUnary)
}

func (e *Binary) print(p *printer) {
	binds := precedenceOf(e)
	left := binds
	if binds == precedenceComparison {
		left = binds + 1
	}
	p.operand(e.Left, left)
	p.word(string(e.Operator))
	p.operand(e.Right, binds+1)
}

func (e *Subquery) print(p *printer) { p.parenthesized(e.Select) }
