// Package lang is the statement language: its text and its tree. Parse turns a
// script into statements, and every statement prints back to text that parses
// to the same tree.
//
// It knows no storage: whether a topic exists, a function is known or a LIMIT
// is in bounds is for whoever runs the tree. So the parser is wide (a clause's
// value may be any expression that names no field, a parameter stands wherever
// a value may stand) and the binder strict.
//
// Three ideas carry it. Keywords are contextual: the lexer knows words, and
// each production asks for the word it needs, so a topic may be called limit.
// Constants become values at once: a Literal holds a value.Value, also for an
// array, an object or a record id all of whose parts are constant. And the
// first mistake ends the parse: the parser panics with it privately, and the
// functions of this file, the only entries, turn that into a *SyntaxError.
//
// The whole grammar stands in grammar.txt, and in pieces over the methods.
package lang

import (
	"unicode/utf8"
)

// Bounds of what parses. A tree is walked by recursive functions, here and in
// whoever runs it, and a goroutine whose stack outgrows its limit ends the
// process; so what a caller may send is bounded where it is read.
const (
	// MaxDepth is how deep an expression may nest: brackets of any sort, NOT
	// and signs all count. It is the depth to which a value may nest.
	MaxDepth = 64

	// MaxOperators is how many operators may follow one another between two
	// brackets: a chain a AND b AND … is as deep a tree as it is long. IN with
	// an array takes the place of longer ones.
	MaxOperators = 1000

	// MaxSourceBytes is the largest script: its tree is some twenty times as
	// large, and all in memory. Whoever receives scripts sets lower limits.
	MaxSourceBytes = 64 << 20
)

// Script is a parsed script.
type Script struct {
	// Source is the text that was parsed.
	Source string
	// Statements are the script's statements, in order.
	Statements []Statement
}

// Text returns the source text of one of the script's statements as it was
// written, without the semicolon, for showing it; passwords in it are masked.
func (s *Script) Text(statement Statement) string {
	span := statement.Span()
	return maskPasswords(s.Source[span.Start:span.End])
}

// Node is a part of the tree.
type Node interface {
	// Span is where the node stands in the source; zero for a node that was
	// not parsed.
	Span() Span
	// String is text that parses to the same node.
	String() string

	print(p *printer)
}

// Statement is one statement of a script.
type Statement interface {
	Node
	statement()
}

// Expression is what has a value.
type Expression interface {
	Node
	expression()
}

// Span is a place in the source.
type Span struct {
	// Start and End are offsets in bytes; End is exclusive.
	Start, End int
	// Line and Column are those of Start, counted from 1; a column is a rune.
	Line, Column int
}

// node is what every node embeds.
type node struct{ span Span }

// Span is where the node stands in the source.
func (n node) Span() Span { return n.span }

// Parse parses a script. Its error is a *SyntaxError: nothing of a script that
// holds one may run.
func Parse(source string) (script *Script, err error) {
	p, err := newParser(source)
	if err != nil {
		return nil, err
	}
	defer p.recoverSyntaxError(&err)
	return &Script{Source: source, Statements: p.parseScript()}, nil
}

// ParseExpression parses one expression, as definitions keep them for DEFAULT
// and ASSERT. Its error is a *SyntaxError.
func ParseExpression(source string) (expression Expression, err error) {
	p, err := newParser(source)
	if err != nil {
		return nil, err
	}
	defer p.recoverSyntaxError(&err)
	expression = p.parseExpression()
	if p.current().kind != tokenEnd {
		p.fail("the end of the expression")
	}
	return expression, nil
}

func newParser(source string) (*parser, error) {
	p := &parser{lexer: lexer{source: source, line: 1}}
	if len(source) > MaxSourceBytes {
		return nil, newSyntaxError("", place{line: 1, column: 1}, "the script has %d bytes; %d are the limit, send it in parts", len(source), MaxSourceBytes)
	}
	if !utf8.ValidString(source) {
		return nil, invalidUTF8(source)
	}
	return p, nil
}

// invalidUTF8 is the error for a source that is no text, at its first bad byte.
func invalidUTF8(source string) error {
	at := place{line: 1, column: 1}
	for at.offset < len(source) {
		r, size := utf8.DecodeRuneInString(source[at.offset:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at.offset += size
		at.column++
		if r == '\n' {
			at.line, at.column = at.line+1, 1
		}
	}
	return newSyntaxError(source, at, "the byte 0x%02x is not valid UTF-8", source[at.offset])
}
