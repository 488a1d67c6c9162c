package value

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// AppendJSON appends the value as JSON, on one line. What JSON has no type for
// is text: a datetime in RFC 3339 in UTC, a uuid, bytes in base64, a duration
// in Go's form ("1h30m0s"), a record id (orders:1001). An int keeps all its
// digits and a float always has a fraction or an exponent, so the two stay
// apart. Fields are sorted by the bytes of their names; a field that holds none
// is left out, none elsewhere is null. Nothing is escaped for HTML.
//
// It fails where AppendCBOR fails, and after an error dst is returned as it was.
func (v Value) AppendJSON(dst []byte) ([]byte, error) {
	encoded, err := appendJSON(dst, v, 0)
	if err != nil {
		return dst, err
	}
	return encoded, nil
}

// MarshalJSON encodes as AppendJSON does. (json.Marshal then escapes for HTML
// what is inside; json.Encoder's SetEscapeHTML turns that off.)
func (v Value) MarshalJSON() ([]byte, error) { return v.AppendJSON(nil) }

func appendJSON(dst []byte, v Value, depth int) (_ []byte, err error) {
	switch content := v.content.(type) {
	case nil, null:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, content), nil
	case int64:
		return strconv.AppendInt(dst, content, 10), nil
	case float64:
		if err := checkFloat(content); err != nil {
			return dst, err
		}
		return appendFloatText(dst, content), nil
	case string:
		return appendStringJSON(dst, content)
	case []byte:
		dst = base64.StdEncoding.AppendEncode(append(dst, '"'), content)
		return append(dst, '"'), nil
	case uuid.UUID:
		dst = append(append(dst, '"'), content.String()...)
		return append(dst, '"'), nil
	case time.Time:
		if err := checkDatetime(content); err != nil {
			return dst, err
		}
		dst = content.AppendFormat(append(dst, '"'), time.RFC3339Nano)
		return append(dst, '"'), nil
	case time.Duration:
		dst = append(append(dst, '"'), content.String()...)
		return append(dst, '"'), nil
	case []Value:
		if depth == MaxCarriedDepth {
			return dst, tooDeep()
		}
		dst = append(dst, '[')
		for i, element := range content {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendJSON(dst, element, depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case Object:
		return appendObjectJSON(dst, content, depth)
	case RecordID:
		return appendRecordJSON(dst, content)
	}
	panic("value: content of no kind")
}

func appendObjectJSON(dst []byte, fields Object, depth int) (_ []byte, err error) {
	if depth == MaxCarriedDepth {
		return dst, tooDeep()
	}
	var room [fieldsOnStack]field
	dst = append(dst, '{')
	for i, f := range sortedFields(room[:0], fields) {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendStringJSON(dst, f.name); err != nil {
			return dst, err
		}
		dst = append(dst, ':')
		if dst, err = appendJSON(dst, f.value, depth+1); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// appendRecordJSON appends the canonical text of a record id as a string.
func appendRecordJSON(dst []byte, id RecordID) ([]byte, error) {
	if err := checkRecordKey(id); err != nil {
		return dst, err
	}
	// The canonical text mends invalid UTF-8, which an encoding must not.
	key, _ := id.Key.AsString()
	for _, s := range [...]string{id.Table, key} {
		if !utf8.ValidString(s) {
			return dst, notUTF8(s)
		}
	}
	return appendStringJSON(dst, id.String())
}

func appendStringJSON(dst []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return dst, notUTF8(s)
	}
	dst = appendEscaped(append(dst, '"'), s, '"')
	return append(dst, '"'), nil
}

// appendEscaped appends s, which is valid UTF-8, with the escapes of JSON and
// one before the quote. JSON and the statement language share it.
func appendEscaped(dst []byte, s string, quote byte) []byte {
	const hex = "0123456789abcdef"
	copied := 0
	for i := range len(s) {
		b := s[i]
		if b >= ' ' && b != '\\' && b != quote {
			continue
		}
		dst = append(dst, s[copied:i]...)
		copied = i + 1
		switch b {
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\\', quote:
			dst = append(dst, '\\', b)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[b>>4], hex[b&0xf])
		}
	}
	return append(dst, s[copied:]...)
}

// appendFloatText appends the shortest text that reads back as f and is not an
// int's: with a fraction or an exponent.
func appendFloatText(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendFloat(dst, f, 'g', -1, 64)
	}
	// Plain digits where people read them easily, as JavaScript does.
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if f == math.Trunc(f) {
		dst = append(dst, ".0"...)
	}
	return dst
}
