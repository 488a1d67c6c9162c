package lang

import "strings"

// tokenKind says what a token is. Keywords are words like any other: the
// parser knows them by where they stand.
type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenQuotedWord // `in backquotes`
	tokenParameter  // $name
	tokenInt
	tokenFloat
	tokenDuration
	tokenString   // '…' or "…"
	tokenDatetime // d'…'
	tokenUUID     // u'…'
	tokenBytes    // b'…'
	tokenSign     // punctuation and operators, told apart by their text
)

// token is one word of the source.
type token struct {
	kind tokenKind
	// escaped says that quotes hold a backslash, so that what they quote is
	// not simply what stands between them.
	escaped bool
	place
	end int
}

// lexer cuts a source into tokens, one at a time. Columns are counted as it
// goes: that of an offset is its distance from the start of its line, less the
// bytes that only continue a rune.
type lexer struct {
	source string
	offset int

	line          int
	lineStart     int
	continuations int
}

// scan returns the next token; at the end of the source, tokenEnd for ever.
func (l *lexer) scan() token {
	l.skipSpace()
	t := token{place: l.here(), end: l.offset}
	if l.offset == len(l.source) {
		return t
	}
	c := l.source[l.offset]
	switch {
	case isLetter(c):
		t.kind = tokenWord
		if quoted := quotedKind(c); quoted != tokenEnd && l.peekQuote(1) {
			t.kind = quoted
			l.offset++
			t.escaped = l.scanQuoted(t.place)
			break
		}
		l.skipWord()
	case isDigit(c):
		t.kind = l.scanNumber(t.place)
	case c == '\'' || c == '"':
		t.kind = tokenString
		t.escaped = l.scanQuoted(t.place)
	case c == '`':
		t.kind = tokenQuotedWord
		t.escaped = l.scanQuoted(t.place)
	case c == '$':
		t.kind = tokenParameter
		l.offset++
		if l.offset == len(l.source) || !isLetter(l.source[l.offset]) {
			panic(newSyntaxError(l.source, t.place, "after $ stands the name of a parameter, such as $name"))
		}
		l.skipWord()
	default:
		t.kind = tokenSign
		l.offset += signLength(l.source[l.offset:])
		if l.offset == t.offset {
			r := []rune(l.source[l.offset:min(len(l.source), l.offset+4)])[0]
			panic(newSyntaxError(l.source, t.place, "%q begins nothing of the language; a name or a text with it stands in quotes", r))
		}
	}
	t.end = l.offset
	return t
}

// signLength is the length of the punctuation or operator that text begins
// with, or 0.
func signLength(text string) int {
	switch text[0] {
	case ';', ',', '.', ':', '(', ')', '[', ']', '{', '}', '=', '+', '-', '*', '/', '%', '|':
		return 1
	case '<', '>':
		if len(text) > 1 && text[1] == '=' {
			return 2
		}
		return 1
	case '!':
		if len(text) > 1 && text[1] == '=' {
			return 2
		}
	}
	return 0
}

// here is the place of the lexer's offset.
func (l *lexer) here() place {
	return place{offset: l.offset, line: l.line, column: l.offset - l.lineStart - l.continuations + 1}
}

// skipSpace passes over spaces and comments: -- and // to the end of the line,
// /* to */.
func (l *lexer) skipSpace() {
	for l.offset < len(l.source) {
		rest := l.source[l.offset:]
		switch {
		case isSpace(rest[0]):
			l.pass(1)
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "//"):
			length := strings.IndexByte(rest, '\n')
			if length < 0 {
				length = len(rest)
			}
			l.pass(length)
		case strings.HasPrefix(rest, "/*"):
			length := strings.Index(rest[2:], "*/")
			if length < 0 {
				panic(newSyntaxError(l.source, l.here(), "the comment that begins here is never closed with */"))
			}
			l.pass(length + 4)
		default:
			return
		}
	}
}

// pass moves over n bytes that may hold line ends and runes of several bytes.
func (l *lexer) pass(n int) {
	for end := l.offset + n; l.offset < end; l.offset++ {
		switch c := l.source[l.offset]; {
		case c == '\n':
			l.line++
			l.lineStart, l.continuations = l.offset+1, 0
		case c&0xC0 == 0x80:
			l.continuations++
		}
	}
}

// scanQuoted passes over what stands in quotes, the lexer standing at the
// opening one, and reports whether there is a backslash in it.
func (l *lexer) scanQuoted(start place) (escaped bool) {
	quote := l.source[l.offset]
	end := l.offset + 1
	for ; end < len(l.source) && l.source[end] != quote; end++ {
		if l.source[end] == '\\' {
			escaped = true
			end++
		}
	}
	if end >= len(l.source) {
		panic(newSyntaxError(l.source, start, "the quote that begins here is never closed with %c", quote))
	}
	l.pass(end + 1 - l.offset)
	return escaped
}

// peekQuote reports whether a quote of a string stands n bytes on.
func (l *lexer) peekQuote(n int) bool {
	return l.offset+n < len(l.source) && (l.source[l.offset+n] == '\'' || l.source[l.offset+n] == '"')
}

func (l *lexer) skipWord() {
	for l.offset < len(l.source) && (isLetter(l.source[l.offset]) || isDigit(l.source[l.offset])) {
		l.offset++
	}
}

func (l *lexer) skipDigits() {
	for l.offset < len(l.source) && isDigit(l.source[l.offset]) {
		l.offset++
	}
}

// scanNumber passes over an int, a float or a duration.
//
//	int      = digits
//	float    = digits "." digits [ exponent ] | digits exponent
//	exponent = ( "e" | "E" ) [ "+" | "-" ] digits
//	duration = digits unit { digits unit }
func (l *lexer) scanNumber(start place) tokenKind {
	kind := tokenInt
	l.skipDigits()
	if l.digitAt(1) && l.source[l.offset] == '.' {
		kind = tokenFloat
		l.offset++
		l.skipDigits()
	}
	if l.offset < len(l.source) && l.source[l.offset]|0x20 == 'e' {
		signed := 1
		if l.offset+1 < len(l.source) && (l.source[l.offset+1] == '+' || l.source[l.offset+1] == '-') {
			signed = 2
		}
		if l.digitAt(signed) {
			kind = tokenFloat
			l.offset += signed
			l.skipDigits()
		}
	}
	end := l.offset
	// A unit is ASCII but for µ, which has two code points.
	for l.offset < len(l.source) {
		if rest := l.source[l.offset:]; strings.HasPrefix(rest, "µ") || strings.HasPrefix(rest, "μ") {
			l.pass(2)
		} else if isLetter(rest[0]) || isDigit(rest[0]) {
			l.offset++
		} else {
			break
		}
	}
	switch {
	case l.offset == end:
		return kind
	case kind == tokenFloat:
		panic(newSyntaxError(l.source, start, "found %s, expected a number, or a duration in whole numbers such as 1h30m", l.source[start.offset:l.offset]))
	}
	return tokenDuration
}

// digitAt reports whether a digit stands n bytes on.
func (l *lexer) digitAt(n int) bool {
	return l.offset+n < len(l.source) && isDigit(l.source[l.offset+n])
}

func quotedKind(prefix byte) tokenKind {
	switch prefix {
	case 'd':
		return tokenDatetime
	case 'u':
		return tokenUUID
	case 'b':
		return tokenBytes
	}
	return tokenEnd
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' }
