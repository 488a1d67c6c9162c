package extract

import (
	"cmp"
	"fmt"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Diagnostic is one thing that is wrong in the source.
type Diagnostic struct {
	// Position is where it stands; without a file it is about none.
	Position token.Position
	// End is the column after it, on the same line; 0 where it is one place.
	End int
	// Message says what is wrong and, after a semicolon, what would have been
	// accepted.
	Message string
}

// String returns file:line:column and the message.
func (d Diagnostic) String() string { return d.in("") }

func (d Diagnostic) in(base string) string {
	if d.Position.Filename == "" {
		return d.Message
	}
	at := d.Position
	at.Filename = shorter(base, at.Filename)
	return at.String() + ": " + d.Message
}

// Diagnostics are what is wrong in the source, by file and line.
type Diagnostics []Diagnostic

// Error returns the diagnostics, one a line.
func (ds Diagnostics) Error() string {
	var lines []string
	for _, d := range ds {
		lines = append(lines, d.String())
	}
	return strings.Join(lines, "\n")
}

// Render returns the diagnostics for people: each with its line of the source,
// underlined, and files named from the folder base.
func (ds Diagnostics) Render(base string) string {
	var text strings.Builder
	for _, d := range ds {
		text.WriteString(d.in(base) + "\n" + d.excerpt())
	}
	return text.String()
}

// excerpt is the line of the source and what underlines it, or nothing where
// the file cannot be read.
func (d Diagnostic) excerpt() string {
	content, err := os.ReadFile(d.Position.Filename)
	lines := strings.Split(string(content), "\n")
	if err != nil || d.Position.Line < 1 || d.Position.Line > len(lines) || d.Position.Column < 1 {
		return ""
	}
	line := strings.TrimSuffix(lines[d.Position.Line-1], "\r")
	start := min(d.Position.Column-1, len(line))
	end := min(max(d.End-1, start+1), len(line))
	padding := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, line[:start])
	marks := "^"
	if start < end {
		marks = strings.Repeat("^", utf8.RuneCountInString(line[start:end]))
	}
	return fmt.Sprintf("\t%s\n\t%s%s\n", line, padding, marks)
}

// shorter returns a path from base where that does not lead out of it.
func shorter(base, path string) string {
	if base == "" {
		return path
	}
	relative, err := filepath.Rel(base, path)
	if err != nil || strings.HasPrefix(relative, "..") {
		return path
	}
	return relative
}

// sorted orders diagnostics by place and leaves out what stands twice.
func (ds Diagnostics) sorted() Diagnostics {
	slices.SortFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.Position.Filename, b.Position.Filename),
			cmp.Compare(a.Position.Line, b.Position.Line),
			cmp.Compare(a.Position.Column, b.Position.Column),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(ds)
}
