package lang

import (
	"strings"

	"github.com/tidemarkdb/tidemark/value"
)

// parser is a recursive-descent parser over a script, a method a production.
// It is the lexer, a few tokens ahead of what was consumed.
type parser struct {
	lexer

	// ahead are the tokens scanned and not consumed, the current one first.
	// The grammar never looks further than three past it.
	ahead  [4]token
	queued int

	// previous is where the token consumed last ended.
	previous int

	// depth is how many expressions stand around the current token, and
	// operators how many the innermost of them has had.
	depth, operators int
}

// recoverSyntaxError turns the parser's private panic into an error.
func (p *parser) recoverSyntaxError(err *error) {
	switch mistake := recover().(type) {
	case nil:
	case *SyntaxError:
		*err = mistake
	default:
		panic(mistake)
	}
}

// peek returns the token n past the current one.
func (p *parser) peek(n int) *token {
	for p.queued <= n {
		p.ahead[p.queued] = p.scan()
		p.queued++
	}
	return &p.ahead[n]
}

func (p *parser) current() *token { return p.peek(0) }

// next consumes the current token.
func (p *parser) next() token {
	t := *p.current()
	p.queued--
	copy(p.ahead[:p.queued], p.ahead[1:])
	p.previous = t.end
	return t
}

// text is a token as it is written.
func (p *parser) text(t *token) string { return p.source[t.offset:t.end] }

// is reports whether a token is the given keyword, in any case.
func (p *parser) is(t *token, keyword string) bool {
	return t.kind == tokenWord && t.end-t.offset == len(keyword) && strings.EqualFold(p.text(t), keyword)
}

// isSign reports whether a token is the given punctuation or operator.
func (p *parser) isSign(t *token, sign string) bool {
	return t.kind == tokenSign && p.text(t) == sign
}

// isName reports whether a token can be an identifier.
func isName(t *token) bool { return t.kind == tokenWord || t.kind == tokenQuotedWord }

// at reports whether the keywords come next.
func (p *parser) at(keywords ...string) bool {
	for i, keyword := range keywords {
		if !p.is(p.peek(i), keyword) {
			return false
		}
	}
	return true
}

// accept consumes the keywords if all of them come next.
func (p *parser) accept(keywords ...string) bool {
	if !p.at(keywords...) {
		return false
	}
	for range keywords {
		p.next()
	}
	return true
}

// expect consumes the keywords.
func (p *parser) expect(keywords ...string) {
	for _, keyword := range keywords {
		if !p.is(p.current(), keyword) {
			p.fail(keyword)
		}
		p.next()
	}
}

// acceptSign consumes the punctuation if it comes next.
func (p *parser) acceptSign(sign string) bool {
	if !p.isSign(p.current(), sign) {
		return false
	}
	p.next()
	return true
}

// expectSign consumes the punctuation; expected names what else may stand
// there.
func (p *parser) expectSign(sign string, expected ...string) {
	if !p.acceptSign(sign) {
		p.fail(append(expected, "'"+sign+"'")...)
	}
}

// atEnd reports whether the statement ends here.
func (p *parser) atEnd() bool {
	t := p.current()
	return t.kind == tokenEnd || p.isSign(t, ";")
}

// fail ends the parse: the current token is none of what is expected.
func (p *parser) fail(expected ...string) {
	p.failAt(p.current(), expected...)
}

func (p *parser) failAt(t *token, expected ...string) {
	found, wanted := p.describe(t), alternatives(expected)
	err := newSyntaxError(p.source, t.place, "found %s, expected %s", found, wanted)
	err.Found, err.Expected = found, wanted
	panic(err)
}

// refuse ends the parse with a mistake of another sort.
func (p *parser) refuse(at place, problem string, args ...any) {
	panic(newSyntaxError(p.source, at, problem, args...))
}

// describe is a token as an error names it.
func (p *parser) describe(t *token) string {
	const shown = 30
	text := maskPasswords(p.source[:t.end])[t.offset:]
	switch t.kind {
	case tokenEnd:
		return "the end of the script"
	case tokenSign:
		return "'" + text + "'"
	}
	line, _, several := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > shown {
		line, several = string(runes[:shown]), true
	}
	if several {
		line += "…"
	}
	return line
}

// alternatives joins what may stand in a place into a phrase.
func alternatives(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// span is what a node that begins with the given token covers: up to the token
// consumed last.
func (p *parser) span(from place) node {
	return node{Span{Start: from.offset, End: p.previous, Line: from.line, Column: from.column}}
}

// begin is where the current token stands, for span.
func (p *parser) begin() place { return p.current().place }

// parseName parses an identifier; what names what it is the name of.
//
//	name = word | "`" text "`"
func (p *parser) parseName(what string) string {
	if !isName(p.current()) {
		p.fail("the name of " + what)
	}
	t := p.next()
	name := p.nameOf(&t)
	if name == "" {
		p.refuse(t.place, "the name of %s is empty", what)
	}
	return name
}

// nameOf is the name that a word, quoted or not, is.
func (p *parser) nameOf(t *token) string {
	if t.kind == tokenWord {
		return p.text(t)
	}
	return p.unquote(t, t.offset)
}

// parseQuoted parses what is a string or comes in a parameter: the names of
// readers, groups and users, which programs make up, and passwords.
//
//	quoted = string | parameter
func (p *parser) parseQuoted(what string) Expression {
	switch start := p.begin(); p.current().kind {
	case tokenString:
		v := p.parseText()
		return p.literal(start, v)
	case tokenParameter:
		return p.parseParameter()
	}
	p.fail(what+" in quotes", "a parameter")
	return nil
}

// parseValue parses the value of a clause. No field is in sight there, so a
// bare word is a mistake, and most often a value that was left out.
//
//	value = additive
func (p *parser) parseValue(what string) Expression {
	p.enter()
	defer p.leave(p.operators)
	p.operators = 0
	if t := p.current(); p.atEnd() || isName(t) && !p.isValueWord(t) && !p.isSign(p.peek(1), "(") && !p.isSign(p.peek(1), ":") {
		p.fail(what)
	}
	return p.parseBinary(precedenceAdditive)
}

func (p *parser) isValueWord(t *token) bool {
	return p.is(t, "none") || p.is(t, "null") || p.is(t, "true") || p.is(t, "false")
}

// parseValues parses values separated by commas.
func (p *parser) parseValues(what string) []Expression {
	values := []Expression{p.parseValue(what)}
	for p.acceptSign(",") {
		values = append(values, p.parseValue(what))
	}
	return values
}

// parseIfNotExists parses what may stand before the name of a definition. A
// thing called if is told apart by what follows.
//
//	if not exists = "IF" "NOT" "EXISTS"
func (p *parser) parseIfNotExists() bool { return p.accept("IF", "NOT", "EXISTS") }

// parseExistence parses what may stand before a name that can be defined
// again. A thing called overwrite is told apart by what follows: the word that
// comes after a name, or a sign.
//
//	existence = if not exists | "OVERWRITE"
func (p *parser) parseExistence(afterName string) (ifNotExists, overwrite bool) {
	if p.parseIfNotExists() {
		return true, false
	}
	named := !isName(p.peek(1)) || p.is(p.peek(1), afterName) && !p.is(p.peek(2), afterName)
	return false, !named && p.accept("OVERWRITE")
}

// clause is one of several clauses of a statement that come in any order.
type clause struct {
	// keywords begin the clause.
	keywords []string
	// name is what the clause sets: two clauses of one name exclude each other.
	name string
	// parse reads what follows the keywords.
	parse func()
}

// words begin a clause; more than one where what the clause sets has another
// name than the words that begin it.
func words(keywords string, parse func()) clause {
	return clause{keywords: strings.Fields(keywords), name: keywords, parse: parse}
}

// parseClauses parses clauses in any order, each at most once, up to the end
// of the statement.
func (p *parser) parseClauses(clauses ...clause) {
	p.parseClausesUntil(p.atEnd, "';'", clauses)
}

// parseSomeClauses is parseClauses where there must be one.
func (p *parser) parseSomeClauses(clauses ...clause) {
	if p.atEnd() {
		p.failClause(clauses, 0, "")
	}
	p.parseClauses(clauses...)
}

// parseClausesUntil parses clauses up to an end that errors name as given.
func (p *parser) parseClausesUntil(atEnd func() bool, end string, clauses []clause) {
	given := make([]givenClause, 0, len(clauses))
	for !atEnd() {
		start := p.begin()
		c := p.parseClauseKeywords(clauses, end)
		for _, earlier := range given {
			if earlier.name == c.name {
				p.refuse(start, "%s was given already, on line %d", c.name, earlier.line)
			}
		}
		given = append(given, givenClause{c.name, start.line})
		c.parse()
	}
}

// givenClause is a clause that was parsed, and where.
type givenClause struct {
	name string
	line int
}

// parseClauseKeywords consumes the keywords of the clause that comes next: of
// those that fit, the longest, since RETAIN begins RETAIN BYTES.
func (p *parser) parseClauseKeywords(clauses []clause, end string) *clause {
	var best *clause
	begun := 0
	for i := range clauses {
		fitting := 0
		for fitting < len(clauses[i].keywords) && p.is(p.peek(fitting), clauses[i].keywords[fitting]) {
			fitting++
		}
		if fitting == len(clauses[i].keywords) && (best == nil || fitting > len(best.keywords)) {
			best = &clauses[i]
		}
		begun = max(begun, fitting)
	}
	if best == nil {
		p.failClause(clauses, begun, end)
	}
	for range best.keywords {
		p.next()
	}
	return best
}

// failClause ends the parse where no clause fits: at the first word that is
// wrong, naming all that could stand there after the words that are right, and
// the end unless that is "".
func (p *parser) failClause(clauses []clause, begun int, end string) {
	var expected []string
	for _, c := range clauses {
		if len(c.keywords) > begun && p.at(c.keywords[:begun]...) {
			expected = append(expected, strings.Join(c.keywords[begun:], " "))
		}
	}
	if begun == 0 && end != "" {
		expected = append(expected, end)
	}
	p.failAt(p.peek(begun), expected...)
}

// enter counts a level of nesting; leave goes back out, to a number of
// operators.
func (p *parser) enter() {
	if p.depth == MaxDepth {
		p.refuse(p.begin(), "the expression nests more than %d deep", MaxDepth)
	}
	p.depth++
}

func (p *parser) leave(operators int) {
	p.depth--
	p.operators = operators
}

func (p *parser) literal(from place, v value.Value) *Literal {
	return &Literal{node: p.span(from), Value: v}
}
