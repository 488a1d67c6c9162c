package lang

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidemarkdb/tidemark/fault"
)

// excerptRunes is how much of a line an error shows at most; more would bury
// the caret.
const excerptRunes = 100

// SyntaxError is the first mistake of a script. It is of the kind
// fault.Syntax, and its message shows the line with a caret under the mistake.
type SyntaxError struct {
	// Line and Column are counted from 1; a column is a rune.
	Line, Column int
	// Found is what stands there, and Expected what the grammar wants; both
	// are empty where the mistake is of another sort.
	Found, Expected string

	reported error
}

// Error returns the kind and the message.
func (e *SyntaxError) Error() string { return e.reported.Error() }

// Unwrap returns the *fault.Error that holds the kind and the message.
func (e *SyntaxError) Unwrap() error { return e.reported }

// place is a point in the source.
type place struct{ offset, line, column int }

func newSyntaxError(source string, at place, problem string, args ...any) *SyntaxError {
	message := fmt.Sprintf("line %d, column %d: ", at.line, at.column) + fmt.Sprintf(problem, args...)
	return &SyntaxError{
		Line:     at.line,
		Column:   at.column,
		reported: fault.New(fault.Syntax, "%s", message+excerpt(source, at.offset)),
	}
}

// excerpt is the line that holds offset and, under it, a line with a caret.
// Tabs before the caret are tabs in both, so that the caret stands right
// however wide the reader's tabs are. Of a long line, a part is shown.
func excerpt(source string, offset int) string {
	end := len(source)
	if i := strings.IndexByte(source[offset:], '\n'); i >= 0 {
		end = offset + i
	}
	start := strings.LastIndexByte(source[:offset], '\n') + 1
	masked := maskPasswords(source[:end])
	before := strings.ToValidUTF8(masked[start:offset], "?")
	after := strings.ToValidUTF8(strings.TrimSuffix(masked[offset:], "\r"), "?")
	if shown := excerptRunes * 2 / 3; utf8.RuneCountInString(before) > shown {
		runes := []rune(before)
		before = "…" + string(runes[len(runes)-shown:])
	}
	if shown := excerptRunes - utf8.RuneCountInString(before); utf8.RuneCountInString(after) > shown {
		after = string([]rune(after)[:shown]) + "…"
	}
	padding := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, before)
	return "\n" + before + after + "\n" + padding + "^"
}

// maskPasswords returns source with asterisks, one a byte, in place of what may
// be a password: what stands in quotes after the word PASSWORD; once there was the
// word USER, all in quotes after that word up to the end of the statement, and
// what follows it without quotes; and after DEFINE USER or ALTER USER all in quotes
// but the name, for the word may be misspelled. A password is never shown, also
// not to say that the statement around it is wrong.
func maskPasswords(source string) string {
	masked := maskedText{source: source}
	var before string
	// ofUser says that there was the word USER; changes that the statement defines
	// or alters one, and named that it has named it.
	var ofUser, changes, named bool
	for i := 0; i < len(source); {
		switch {
		case isLetter(source[i]):
			start := i
			for i < len(source) && (isLetter(source[i]) || isDigit(source[i])) {
				i++
			}
			switch word := source[start:i]; {
			case strings.EqualFold(word, "USER"):
				ofUser, named = true, false
				changes = strings.EqualFold(before, "DEFINE") || strings.EqualFold(before, "ALTER")
			case strings.EqualFold(word, "PASSWORD"):
				i = masked.maskAfter(i, ofUser)
			}
			before = source[start:i]
		case changes && isQuote(source[i]) && !named:
			named = true
			i = quotedEnd(source, i)
		case changes && isQuote(source[i]):
			i = masked.maskQuoted(i)
		default:
			changes = changes && source[i] != ';'
			i++
		}
	}
	return masked.String()
}

// maskedText is a source of which bytes are masked.
type maskedText struct {
	source string
	// masked is nil before the first byte.
	masked []byte
}

func (m *maskedText) String() string {
	if m.masked == nil {
		return m.source
	}
	return string(m.masked)
}

func (m *maskedText) mask(from, to int) {
	if m.masked == nil {
		m.masked = []byte(m.source)
	}
	for i := from; i < to; i++ {
		m.masked[i] = '*'
	}
}

// maskAfter masks what may be a password from after the word, and returns where
// that ends.
func (m *maskedText) maskAfter(i int, ofUser bool) int {
	for i < len(m.source) && isSpace(m.source[i]) {
		i++
	}
	if !ofUser {
		return m.maskQuoted(i)
	}
	if rest := m.source[i:]; rest != "" && (isLetter(rest[0]) || isDigit(rest[0])) && !startsRole(rest) {
		end := strings.IndexFunc(rest, func(r rune) bool { return r == ';' || r < utf8.RuneSelf && isSpace(byte(r)) })
		if end < 0 {
			end = len(rest)
		}
		m.mask(i, i+end)
		i += end
	}
	for i < len(m.source) && m.source[i] != ';' {
		if next := m.maskQuoted(i); next > i {
			i = next
		} else {
			i++
		}
	}
	return i
}

// maskQuoted masks what is quoted at i, if anything is, and returns where that
// ends.
func (m *maskedText) maskQuoted(i int) int {
	if i == len(m.source) || !isQuote(m.source[i]) {
		return i
	}
	end := quotedEnd(m.source, i)
	inside := end
	if m.source[end-1] == m.source[i] && end > i+1 {
		inside = end - 1
	}
	m.mask(i+1, inside)
	return end
}

func isQuote(b byte) bool { return b == '\'' || b == '"' }

// quotedEnd is where what is quoted at i has ended: after its quote, or where the
// source ends.
func quotedEnd(source string, i int) int {
	quote := source[i]
	for i++; i < len(source) && source[i] != quote; i++ {
		if source[i] == '\\' && i+1 < len(source) {
			i++
		}
	}
	return min(i+1, len(source))
}

// startsRole reports whether a text goes on with ROLE, as after a password that
// was left out.
func startsRole(text string) bool {
	return len(text) >= 5 && strings.EqualFold(text[:4], "ROLE") && isSpace(text[4])
}
