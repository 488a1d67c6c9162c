package value

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidemarkdb/tidemark/fault"
)

// The parser is written by hand, as encoding/json loses what a store must
// keep or refuse: it takes a field that is there twice, puts U+FFFD where UTF-8
// or a surrogate is broken, and has no limit of depth that a caller can set.
// The fuzz test compares the two on everything else.

// ParseJSON parses one JSON text (RFC 8259). It never guesses: a number without
// a fraction and an exponent is an int, every other one a float, text stays a
// string. It takes time in proportion to the text.
//
// Refused with fault.TypeMismatch, naming the place: an int outside 64 bits
// signed, a float too large for 64 bits, invalid UTF-8 and half surrogates, a
// field that is there twice, text after the value. Nesting past MaxCarriedDepth is
// fault.TooLarge.
func ParseJSON(text []byte) (Value, error) {
	if !utf8.Valid(text) {
		return None(), fault.New(fault.TypeMismatch, "the JSON text is not valid UTF-8")
	}
	p := jsonParser{text: text}
	p.space()
	v, err := p.value(0)
	if err != nil {
		return None(), err
	}
	p.space()
	if p.at < len(text) {
		return None(), p.unexpected("the end of the text")
	}
	return v, nil
}

// UnmarshalJSON parses as ParseJSON does.
func (v *Value) UnmarshalJSON(text []byte) (err error) {
	*v, err = ParseJSON(text)
	return err
}

type jsonParser struct {
	text []byte
	at   int
}

func (p *jsonParser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next returns the byte at hand, or 0 at the end; a 0 in the text is nowhere
// allowed.
func (p *jsonParser) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// skip moves past b if it is next.
func (p *jsonParser) skip(b byte) bool {
	if p.next() != b {
		return false
	}
	p.at++
	return true
}

func (p *jsonParser) value(depth int) (Value, error) {
	switch b := p.next(); {
	case b == '{':
		return p.object(depth)
	case b == '[':
		return p.array(depth)
	case b == '"':
		s, err := p.string()
		return String(s), err
	case b == '-' || isDigit(b):
		return p.number()
	case p.word("null"):
		return Null(), nil
	case p.word("true"):
		return Bool(true), nil
	case p.word("false"):
		return Bool(false), nil
	}
	return None(), p.unexpected("a value")
}

func (p *jsonParser) word(word string) bool {
	end := p.at + len(word)
	if end > len(p.text) || string(p.text[p.at:end]) != word {
		return false
	}
	p.at = end
	return true
}

func (p *jsonParser) array(depth int) (Value, error) {
	if depth == MaxCarriedDepth {
		return None(), tooDeep()
	}
	p.at++ // [
	elements := []Value{}
	p.space()
	if p.skip(']') {
		return Array(elements...), nil
	}
	for {
		element, err := p.value(depth + 1)
		if err != nil {
			return None(), err
		}
		elements = append(elements, element)
		p.space()
		if p.skip(']') {
			return Array(elements...), nil
		}
		if !p.skip(',') {
			return None(), p.unexpected("',' or ']'")
		}
		p.space()
	}
}

func (p *jsonParser) object(depth int) (Value, error) {
	if depth == MaxCarriedDepth {
		return None(), tooDeep()
	}
	p.at++ // {
	fields := Object{}
	p.space()
	if p.skip('}') {
		return Fields(fields), nil
	}
	for {
		if err := p.field(fields, depth); err != nil {
			return None(), err
		}
		p.space()
		if p.skip('}') {
			return Fields(fields), nil
		}
		if !p.skip(',') {
			return None(), p.unexpected("',' or '}'")
		}
		p.space()
	}
}

func (p *jsonParser) field(fields Object, depth int) error {
	if p.next() != '"' {
		return p.unexpected("a field's name in double quotes")
	}
	start := p.at
	name, err := p.string()
	if err != nil {
		return err
	}
	if _, twice := fields[name]; twice {
		return malformedJSON(start, "the field %q is there twice", excerpt(name))
	}
	p.space()
	if !p.skip(':') {
		return p.unexpected("':'")
	}
	p.space()
	fields[name], err = p.value(depth + 1)
	return err
}

// number parses an int or a float; the grammar is RFC 8259's, section 6.
func (p *jsonParser) number() (Value, error) {
	start := p.at
	p.skip('-')
	if !p.skip('0') && !p.digits() {
		return None(), p.unexpected("a digit")
	}
	isInt := true
	if p.skip('.') {
		isInt = false
		if !p.digits() {
			return None(), p.unexpected("a digit after the point")
		}
	}
	if p.skip('e') || p.skip('E') {
		isInt = false
		if !p.skip('+') {
			p.skip('-')
		}
		if !p.digits() {
			return None(), p.unexpected("a digit in the exponent")
		}
	}
	text := string(p.text[start:p.at])
	if isInt {
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return None(), malformedJSON(start, "the int %s is outside %d to %d; with a fraction or an exponent it is a float",
				excerpt(text), int64(math.MinInt64), int64(math.MaxInt64))
		}
		return Int(i), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return None(), malformedJSON(start, "the float %s is larger than 64 bits hold, about 1.8e308", excerpt(text))
	}
	return Float(f), nil
}

// digits moves past digits and reports whether there was one.
func (p *jsonParser) digits() bool {
	start := p.at
	for isDigit(p.next()) {
		p.at++
	}
	return p.at > start
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// string parses a string, whose opening quote is next.
func (p *jsonParser) string() (string, error) {
	opening := p.at
	p.at++
	copied := p.at
	var unescaped []byte // only where there is an escape
	for p.at < len(p.text) {
		switch b := p.text[p.at]; {
		case b == '"':
			tail := p.text[copied:p.at]
			p.at++
			if unescaped == nil {
				return string(tail), nil
			}
			return string(append(unescaped, tail...)), nil
		case b < ' ':
			return "", malformedJSON(p.at, "the control character %q in a string is written with an escape", b)
		case b == '\\':
			unescaped = append(unescaped, p.text[copied:p.at]...)
			character, err := p.escape()
			if err != nil {
				return "", err
			}
			unescaped = utf8.AppendRune(unescaped, character)
			copied = p.at
		default:
			p.at++
		}
	}
	return "", malformedJSON(opening, "the string that begins here does not end")
}

// escape parses a backslash and what follows it.
func (p *jsonParser) escape() (rune, error) {
	start := p.at
	p.at++
	b := p.next()
	p.at++
	switch b {
	case '"', '\\', '/':
		return rune(b), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return p.unicodeEscape(start)
	}
	p.at = start
	return 0, malformedJSON(start, `after \ stands one of "\/bfnrt, or u and four hexadecimal digits`)
}

func (p *jsonParser) unicodeEscape(start int) (rune, error) {
	unit, ok := p.hexadecimal()
	if ok && !utf16.IsSurrogate(unit) {
		return unit, nil
	}
	if ok && p.skip('\\') && p.skip('u') {
		if second, ok := p.hexadecimal(); ok {
			// A pair in the wrong order decodes to U+FFFD, which is no pair's.
			if pair := utf16.DecodeRune(unit, second); pair != utf8.RuneError {
				return pair, nil
			}
		}
	}
	if !ok {
		return 0, malformedJSON(start, `after \u stand four hexadecimal digits`)
	}
	return 0, malformedJSON(start, `\u%04x is half of a surrogate pair; the other half does not follow`, unit)
}

// hexadecimal parses four digits.
func (p *jsonParser) hexadecimal() (rune, bool) {
	if len(p.text)-p.at < 4 {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(p.text[p.at:p.at+4]), 16, 16)
	if err != nil {
		return 0, false
	}
	p.at += 4
	return rune(unit), true
}

func (p *jsonParser) unexpected(expected string) error {
	if p.at >= len(p.text) {
		return malformedJSON(p.at, "the text ends, %s was expected", expected)
	}
	found, _ := utf8.DecodeRune(p.text[p.at:])
	return malformedJSON(p.at, "found %q, %s was expected", found, expected)
}

func malformedJSON(at int, format string, args ...any) error {
	return fault.New(fault.TypeMismatch, "JSON, at byte %d: %s", at, fmt.Sprintf(format, args...))
}
