package lang

import "strings"

// Split cuts a source into its statements, each with the semicolon that ends it,
// and returns what follows the last one: "" where that is spaces and comments
// only. It looks at quotes and comments and at nothing else, so that it tells
// whether an input is whole before all of it is there; what it cuts need not
// parse.
func Split(source string) (statements []string, rest string) {
	start, significant := 0, false
	for at := 0; at < len(source); {
		switch c := source[at]; {
		case c == ';':
			at++
			statements = append(statements, source[start:at])
			start, significant = at, false
		case c == '\'' || c == '"' || c == '`':
			at += QuotedLength(source[at:])
			significant = true
		case strings.HasPrefix(source[at:], "--"), strings.HasPrefix(source[at:], "//"):
			at += LengthThrough(source[at:], "\n")
		case strings.HasPrefix(source[at:], "/*"):
			length := 2 + LengthThrough(source[at+2:], "*/")
			// One that is not closed yet is more than a comment: it goes on.
			significant = significant || !strings.HasSuffix(source[at+2:at+length], "*/")
			at += length
		default:
			significant = significant || !isSpace(c)
			at++
		}
	}
	if !significant {
		return statements, ""
	}
	return statements, source[start:]
}

// QuotedLength is the length of what stands in the quotes that a text begins
// with, all of the text where they are not closed.
func QuotedLength(text string) int {
	for at := 1; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case text[0]:
			return at + 1
		}
	}
	return len(text)
}

// LengthThrough is the length of a text up to and with an end, all of it where
// that is not there.
func LengthThrough(text, end string) int {
	if at := strings.Index(text, end); at >= 0 {
		return at + len(end)
	}
	return len(text)
}
