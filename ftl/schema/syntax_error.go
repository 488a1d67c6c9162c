package schema

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidemarkdb/tidemark/fault"
)

// excerptRunes is how much of a line an error shows on either side of the
// mistake; more would bury the caret.
const excerptRunes = 60

// SyntaxError is the first mistake of a text. It is of the kind fault.Syntax,
// and its message shows the line with a caret under the mistake.
type SyntaxError struct {
	// Line and Column are counted from 1; a column is a rune.
	Line, Column int

	reported error
}

// Error returns the kind and the message.
func (e *SyntaxError) Error() string { return e.reported.Error() }

// Unwrap returns the *fault.Error that holds the kind and the message.
func (e *SyntaxError) Unwrap() error { return e.reported }

func newSyntaxError(text string, offset int, problem string) *SyntaxError {
	start := strings.LastIndexByte(text[:offset], '\n') + 1
	line := strings.Count(text[:start], "\n") + 1
	column := utf8.RuneCountInString(text[start:offset]) + 1
	return &SyntaxError{
		Line:     line,
		Column:   column,
		reported: fault.New(fault.Syntax, "%s", fmt.Sprintf("line %d, column %d: %s%s", line, column, problem, excerpt(text[start:], offset-start))),
	}
}

// excerpt is the first line of text and, under it, a caret at the offset. Tabs
// before it are tabs in both lines, so that it stands right at any width.
func excerpt(text string, offset int) string {
	line := text
	if i := strings.IndexByte(text[offset:], '\n'); i >= 0 {
		line = text[:offset+i]
	}
	before := []rune(strings.ToValidUTF8(line[:offset], "?"))
	after := []rune(strings.ToValidUTF8(strings.TrimSuffix(line[offset:], "\r"), "?"))
	if cut := len(before) - excerptRunes; cut > 0 {
		before = append([]rune("…"), before[cut:]...)
	}
	if len(after) > excerptRunes {
		after = append(after[:excerptRunes], '…')
	}
	padding := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(before))
	return "\n" + string(before) + string(after) + "\n" + padding + "^"
}
