package lang

import (
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// constant is what a word means that is a value by itself.
func (p *parser) constant(t *token) (v value.Value, ok bool) {
	switch {
	case p.is(t, "none"):
		return value.None(), true
	case p.is(t, "null"):
		return value.Null(), true
	case p.is(t, "true"):
		return value.Bool(true), true
	case p.is(t, "false"):
		return value.Bool(false), true
	}
	return v, false
}

// parseNumber consumes an int, a float or a duration, with the minus that was
// consumed before it, or "".
func (p *parser) parseNumber(minus string) value.Value {
	t := p.next()
	text := minus + p.text(&t)
	switch t.kind {
	case tokenInt:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			p.refuse(t.place, "the int %s does not fit 64 bits", shorten(text))
		}
		return value.Int(i)
	case tokenFloat:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(f, 0) {
			p.refuse(t.place, "the float %s does not fit 64 bits", shorten(text))
		}
		return value.Float(f)
	}
	d, err := value.ParseDuration(text)
	if err != nil {
		p.refuse(t.place, "%s", fault.Of(err).Message)
	}
	return value.Duration(d)
}

// parseText consumes a literal in quotes and evaluates it.
//
//	string   = "'" text "'" | '"' text '"'
//	datetime = "d" string      RFC 3339
//	uuid     = "u" string      8-4-4-4-12
//	bytes    = "b" string      in hex
func (p *parser) parseText() value.Value {
	t := p.next()
	if t.kind == tokenString {
		return value.String(p.unquote(&t, t.offset))
	}
	text := p.unquote(&t, t.offset+1)
	switch t.kind {
	case tokenDatetime:
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			p.refuse(t.place, "%q is no datetime; one is d'2026-01-31T10:00:00Z', as in RFC 3339", shorten(text))
		}
		// Past these years a datetime has no literal that parses again.
		if year := at.UTC().Year(); year < 0 || year > 9999 {
			p.refuse(t.place, "the datetime %s is in UTC not within the years 0 to 9999", text)
		}
		return value.Datetime(at)
	case tokenUUID:
		id, err := uuid.Parse(text)
		if err != nil || len(text) != 36 {
			p.refuse(t.place, "%q is no uuid; one is u'018f2f3e-7b1c-7000-8000-000000000001'", shorten(text))
		}
		return value.UUID(id)
	default:
		content, err := hex.DecodeString(text)
		if err != nil {
			p.refuse(t.place, "%q is no bytes; they are written in hex, two digits a byte, as in b'00ff'", shorten(text))
		}
		return value.Bytes(content)
	}
}

// shorten cuts text that an error shows.
func shorten(text string) string {
	const shown = 40
	if utf8.RuneCountInString(text) <= shown {
		return text
	}
	return string([]rune(text)[:shown]) + "…"
}

// unquote returns what the quotes of a token hold, the opening one being at an
// offset: the escapes of JSON, one for each quote, and \\ everywhere.
func (p *parser) unquote(t *token, opening int) string {
	quote := p.source[opening]
	raw := p.source[opening+1 : t.end-1]
	if !t.escaped {
		return raw
	}
	var text strings.Builder
	text.Grow(len(raw))
	for rest := raw; rest != ""; {
		i := strings.IndexByte(rest, '\\')
		if i < 0 {
			text.WriteString(rest)
			break
		}
		text.WriteString(rest[:i])
		r, length, err := unescape(rest[i:], quote)
		if err != nil {
			p.refuse(p.placeInside(t, opening+1+len(raw)-len(rest)+i), "%v", err)
		}
		text.WriteRune(r)
		rest = rest[i+length:]
	}
	return text.String()
}

// placeInside is where an offset inside a token stands.
func (p *parser) placeInside(t *token, offset int) place {
	at := t.place
	for at.offset < offset {
		r, size := utf8.DecodeRuneInString(p.source[at.offset:])
		at.offset += size
		at.column++
		if r == '\n' {
			at.line, at.column = at.line+1, 1
		}
	}
	return at
}

var escapes = map[byte]rune{
	'\\': '\\', '/': '/', '\'': '\'', '"': '"', '`': '`',
	'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// unescape returns what the escape that text begins with stands for, and its
// length.
func unescape(text string, quote byte) (r rune, length int, err error) {
	if text[1] == '`' && quote != '`' {
		return 0, 0, errors.New("\\` is an escape of names in backquotes alone")
	}
	if r, ok := escapes[text[1]]; ok {
		return r, 2, nil
	}
	if text[1] != 'u' {
		r, _ := utf8.DecodeRuneInString(text[1:])
		return 0, 0, errors.New(`\` + string(r) + ` is no escape; there are \\ \/ \' \" \b \f \n \r \t and \u with four hex digits`)
	}
	first, ok := hexUnit(text)
	if !ok {
		return 0, 0, errors.New(`after \u stand four hex digits`)
	}
	if !utf16.IsSurrogate(first) {
		return first, 6, nil
	}
	second, ok := hexUnit(text[6:])
	if r = utf16.DecodeRune(first, second); !ok || r == utf8.RuneError {
		return 0, 0, errors.New(text[:6] + " is half of a surrogate pair, and the other half is not beside it")
	}
	return r, 12, nil
}

// hexUnit reads \u and four hex digits.
func hexUnit(text string) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(text[2:6], 16, 16)
	return rune(unit), err == nil
}

// isNumber reports whether an expression is a literal that a minus before it
// would become part of.
func isNumber(e Expression) bool {
	literal, ok := e.(*Literal)
	if !ok {
		return false
	}
	switch literal.Value.Kind() {
	case value.KindInt, value.KindFloat, value.KindDuration:
		return true
	}
	return false
}
