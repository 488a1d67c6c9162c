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

// maskPasswords returns source with asterisks, one a byte, in place of what
// stands in quotes after the word PASSWORD: a password is never shown, also
// not to say that the statement around it is wrong.
func maskPasswords(source string) string {
	const keyword = "password"
	var masked []byte
	for i := 0; i+len(keyword) <= len(source); {
		if !strings.EqualFold(source[i:i+len(keyword)], keyword) {
			i++
			continue
		}
		i += len(keyword)
		for i < len(source) && isSpace(source[i]) {
			i++
		}
		if i == len(source) || source[i] != '\'' && source[i] != '"' {
			continue
		}
		quote := source[i]
		for i++; i < len(source) && source[i] != quote; i++ {
			if masked == nil {
				masked = []byte(source)
			}
			masked[i] = '*'
			if source[i] == '\\' && i+1 < len(source) {
				i++
				masked[i] = '*'
			}
		}
	}
	if masked == nil {
		return source
	}
	return string(masked)
}
