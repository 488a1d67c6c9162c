package value

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
)

// String returns the literal of the statement language that reads back as the
// value: 1.5, 'text', [1, 2], { total: 5 }, 1h30m, d'2026-01-31T10:00:00Z',
// u'0192…', b'cafe', orders:1001. Fields are sorted by the bytes of their
// names, and one that holds none is left out.
//
// What has no literal is written so that people can read it: NaN and the
// infinities by name, invalid UTF-8 as U+FFFD, a negative duration as -1h.
func (v Value) String() string { return string(appendLiteral(nil, v)) }

func appendLiteral(dst []byte, v Value) []byte {
	switch content := v.content.(type) {
	case nil:
		return append(dst, "none"...)
	case null:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, content)
	case int64:
		return strconv.AppendInt(dst, content, 10)
	case float64:
		return appendFloatText(dst, content)
	case string:
		return appendQuoted(dst, content)
	case []byte:
		dst = hex.AppendEncode(append(dst, "b'"...), content)
		return append(dst, '\'')
	case uuid.UUID:
		dst = append(append(dst, "u'"...), content.String()...)
		return append(dst, '\'')
	case time.Time:
		dst = content.AppendFormat(append(dst, "d'"...), time.RFC3339Nano)
		return append(dst, '\'')
	case time.Duration:
		return appendDuration(dst, content)
	case []Value:
		return appendArrayLiteral(dst, content)
	case Object:
		return appendObjectLiteral(dst, content)
	case RecordID:
		dst = append(append(dst, QuoteIdentifier(content.Table)...), ':')
		return appendLiteral(dst, content.Key)
	}
	panic("value: content of no kind")
}

// appendQuoted appends a string in single quotes, with the escapes of JSON and
// one for the quote.
func appendQuoted(dst []byte, s string) []byte {
	dst = appendEscaped(append(dst, '\''), strings.ToValidUTF8(s, "\uFFFD"), '\'')
	return append(dst, '\'')
}

func appendArrayLiteral(dst []byte, elements []Value) []byte {
	dst = append(dst, '[')
	for i, element := range elements {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = appendLiteral(dst, element)
	}
	return append(dst, ']')
}

func appendObjectLiteral(dst []byte, fields Object) []byte {
	present := sortedFields(nil, fields)
	if len(present) == 0 {
		return append(dst, "{}"...)
	}
	for i, f := range present {
		if i == 0 {
			dst = append(dst, "{ "...)
		} else {
			dst = append(dst, ", "...)
		}
		dst = append(append(dst, QuoteIdentifier(f.name)...), ": "...)
		dst = appendLiteral(dst, f.value)
	}
	return append(dst, " }"...)
}

// String returns the canonical text of the record id, which every JSON answer
// carries: orders:1001, events:'evt-7f3a', events:u'0192…'.
func (r RecordID) String() string { return Record(r).String() }

// QuoteIdentifier returns a name as it stands in a statement: bare where it is
// letters, digits and underscores and begins with no digit, in backquotes
// otherwise, with \` for a backquote inside and \\ for a backslash. Keywords
// are contextual, so a name that is one stands bare, too.
func QuoteIdentifier(name string) string {
	if isIdentifier(name) {
		return name
	}
	return "`" + identifierEscapes.Replace(strings.ToValidUTF8(name, "\uFFFD")) + "`"
}

var identifierEscapes = strings.NewReplacer("`", "\\`", `\`, `\\`)

func isIdentifier(name string) bool {
	for i := range len(name) {
		b := name[i]
		isLetter := 'a' <= b|0x20 && b|0x20 <= 'z' || b == '_'
		if !isLetter && (i == 0 || !isDigit(b)) {
			return false
		}
	}
	return name != ""
}

// durationUnits are the units that durations are printed in, largest first.
var durationUnits = []struct {
	name string
	size uint64
}{
	{"d", uint64(24 * time.Hour)},
	{"h", uint64(time.Hour)},
	{"m", uint64(time.Minute)},
	{"s", uint64(time.Second)},
	{"ms", uint64(time.Millisecond)},
	{"us", uint64(time.Microsecond)},
	{"ns", uint64(time.Nanosecond)},
}

func appendDuration(dst []byte, d time.Duration) []byte {
	if d == 0 {
		return append(dst, "0s"...)
	}
	left := uint64(d)
	if d < 0 {
		dst = append(dst, '-')
		left = -left
	}
	for _, unit := range durationUnits {
		if count := left / unit.size; count > 0 {
			dst = append(strconv.AppendUint(dst, count, 10), unit.name...)
			left %= unit.size
		}
	}
	return dst
}

// unitSize returns the length of a unit of a duration in nanoseconds.
func unitSize(name string) (size uint64, ok bool) {
	switch name {
	case "w":
		return uint64(7 * 24 * time.Hour), true
	case "µs", "μs": // U+00B5, the micro sign, and U+03BC, the letter
		name = "us"
	}
	for _, unit := range durationUnits {
		if unit.name == name {
			return unit.size, true
		}
	}
	return 0, false
}

// ParseDuration parses a duration of the statement language: one or more ints,
// each with its unit (ns, us, µs, ms, s, m, h, d of 24 hours, w of 7 days), as
// in 1h30m, 250ms and 7d. It takes a sign before them, which String writes and
// statements do not have. Text of another form, and a duration over 292 years,
// is fault.Syntax.
func ParseDuration(text string) (time.Duration, error) {
	rest, negative := strings.CutPrefix(text, "-")
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	if rest == "" {
		return 0, malformedDuration(text)
	}
	var sum uint64
	for rest != "" {
		digits := leading(rest, isDigit)
		rest = rest[len(digits):]
		unit := leading(rest, func(b byte) bool { return !isDigit(b) })
		rest = rest[len(unit):]
		size, ok := unitSize(unit)
		if digits == "" || !ok {
			return 0, malformedDuration(text)
		}
		count, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || count > (limit-sum)/size {
			return 0, durationTooLong(text)
		}
		sum += count * size
	}
	if negative {
		return time.Duration(-sum), nil
	}
	return time.Duration(sum), nil
}

// leading returns the longest beginning of s whose bytes all match.
func leading(s string, matches func(byte) bool) string {
	for i := range len(s) {
		if !matches(s[i]) {
			return s[:i]
		}
	}
	return s
}

func malformedDuration(text string) error {
	return fault.New(fault.Syntax, "%q is no duration; one is ints with units (ns, us, ms, s, m, h, d, w), as 1h30m or 250ms", excerpt(text))
}

func durationTooLong(text string) error {
	return fault.New(fault.Syntax, "the duration %s is longer than 64 bits of nanoseconds hold, 292 years", excerpt(text))
}
