package shell

import (
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/internal/lang"
)

// The colours of the terminal.
const (
	red         = "\x1b[31m"
	green       = "\x1b[32m"
	yellow      = "\x1b[33m"
	blue        = "\x1b[34m"
	magenta     = "\x1b[35m"
	dim         = "\x1b[2m"
	plain       = "\x1b[0m"
	clearScreen = "\x1b[H\x1b[2J"
)

func (s *Shell) paint(colour, text string) string {
	if !s.options.Colour {
		return text
	}
	return colour + text + plain
}

// keywords are those of the language.
var keywords = strings.Fields(`ACK AFTER ALTER AND AS ASSERT AT BACKOFF BEGIN BY BYTES CANCEL COLLECTION COMMIT CONSUMER CONSUMERS CONTAINS CREATE
	DATABASE DEAD DEADLINE DEDUPLICATE DEFAULT DEFINE DELAY DELETE DELIVERIES DELIVERY DESC DROP EXISTS EXTEND FAILURE FLIGHT FOLLOW FOR FORMAT FROM
	GRANT GROUP IDENTITY IF IN INFO INSERT INTO KAFKA KEYED LETTER LIMIT MAP MAX NACK NAMESPACE NOT ON OR ORDER OVERWRITE PARALLELISM PASSWORD PAUSE
	PER PUBLIC RATE READ REASON REJECT RELEASE REQUIRED RESUME RETAIN REVOKE ROLE SELECT SET SINCE SLEEP SPACE START STORE TABLE TO TOPIC UPDATE
	UPSERT USE USER WAIT WHERE WITH`)

func isKeyword(word string) bool { return slices.Contains(keywords, strings.ToUpper(word)) }

// highlight colours a line that is being typed.
func highlight(line string) string {
	var text strings.Builder
	for len(line) > 0 {
		length, colour := token(line)
		if colour == "" {
			text.WriteString(line[:length])
		} else {
			text.WriteString(colour + line[:length] + plain)
		}
		line = line[length:]
	}
	return text.String()
}

// token is the length of what a text begins with, and its colour.
func token(text string) (length int, colour string) {
	c := text[0]
	switch {
	case c == '\'' || c == '"' || c == '`':
		return lang.QuotedLength(text), green
	case strings.HasPrefix(text, "--"), strings.HasPrefix(text, "//"):
		return lang.LengthThrough(text, "\n"), dim
	case strings.HasPrefix(text, "/*"):
		return 2 + lang.LengthThrough(text[2:], "*/"), dim
	case '0' <= c && c <= '9':
		return 1 + span(text[1:], func(c byte) bool { return isWordByte(c) || c == '.' }), magenta
	case isWordByte(c):
		length := span(text, isWordByte)
		if isKeyword(text[:length]) {
			return length, blue
		}
		return length, ""
	}
	return 1, ""
}

// span is how many bytes a text begins with of which something holds.
func span(text string, holds func(byte) bool) int {
	for i := range len(text) {
		if !holds(text[i]) {
			return i
		}
	}
	return len(text)
}

func isWordByte(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' || '0' <= c && c <= '9' || c >= 0x80
}
