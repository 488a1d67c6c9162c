package value

import (
	"bytes"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
)

// Of converts a Go value: nil and nil pointers to null; bools, numbers and
// strings of any named type, uuid.UUID, time.Time, time.Duration and RecordID
// to their kinds; slices and arrays of bytes to bytes and all others to arrays;
// maps with string keys and structs to objects. A nil slice or map is an empty
// one. A Value, an Object and a []Value stand for themselves and are kept;
// everything else is copied.
//
// Struct fields follow encoding/json: the tag's name, omitempty, omitzero, "-"
// and embedding. A type with MarshalText becomes its text.
//
// What is no value (a channel, a func, a complex number, NaN, a uint64 over
// 2^63-1, a map whose keys are no strings) is fault.TypeMismatch and names its
// place: Lines[3].Price. Nesting past MaxDepth, as in a structure that contains
// itself, is fault.TooLarge.
func Of(v any) (Value, error) {
	// What parameters mostly are needs no reflection.
	switch content := v.(type) {
	case nil:
		return Null(), nil
	case Value:
		return content, nil
	case bool:
		return Bool(content), nil
	case int:
		return Int(int64(content)), nil
	case int64:
		return Int(content), nil
	case uuid.UUID:
		return UUID(content), nil
	}
	converted, mismatch := of(reflect.ValueOf(v), 0)
	if mismatch != nil {
		return None(), mismatch.fault()
	}
	return converted, nil
}

// mismatch is what went wrong in a conversion and where. The place is put
// together on the way out, so that what goes well pays nothing for it.
type mismatch struct {
	kind    fault.Kind
	place   string
	message string
}

func mismatchf(format string, args ...any) *mismatch {
	return &mismatch{kind: fault.TypeMismatch, message: fmt.Sprintf(format, args...)}
}

func mismatchOf(err error) *mismatch {
	known := fault.Of(err)
	return &mismatch{kind: known.Kind, message: known.Message}
}

func (m *mismatch) inField(name string) *mismatch {
	switch {
	case m.place == "" || m.place[0] == '[':
		m.place = name + m.place
	default:
		m.place = name + "." + m.place
	}
	return m
}

func (m *mismatch) inElement(i int) *mismatch {
	separator := ""
	if m.place != "" && m.place[0] != '[' {
		separator = "."
	}
	m.place = "[" + strconv.Itoa(i) + "]" + separator + m.place
	return m
}

func (m *mismatch) fault() error {
	if m.place == "" {
		return fault.New(m.kind, "%s", m.message)
	}
	return fault.New(m.kind, "%s: %s", m.place, m.message)
}

var (
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// isOwnKind reports whether values of the type are one of the model's kinds by
// themselves, whatever they are made of.
func isOwnKind(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Value](), reflect.TypeFor[Object](), reflect.TypeFor[[]Value](), reflect.TypeFor[RecordID](),
		reflect.TypeFor[uuid.UUID](), reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration]():
		return true
	}
	return false
}

func of(v reflect.Value, depth int) (Value, *mismatch) {
	for hops := 0; v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface); hops++ {
		if hops > MaxDepth {
			return None(), mismatchOf(tooDeep()) // a pointer that leads to itself
		}
		v = v.Elem()
	}
	switch {
	case !v.IsValid():
		return Null(), nil
	case isOwnKind(v.Type()):
		return ofOwnKind(v.Interface())
	case reflect.PointerTo(v.Type()).Implements(textMarshaler):
		return ofTextMarshaler(v)
	}
	switch v.Kind() {
	case reflect.Bool:
		return Bool(v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Int(v.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if v.Uint() > math.MaxInt64 {
			return None(), mismatchf("%d is over %d, the largest int", v.Uint(), int64(math.MaxInt64))
		}
		return Int(int64(v.Uint())), nil
	case reflect.Float32, reflect.Float64:
		if err := checkFloat(v.Float()); err != nil {
			return None(), mismatchOf(err)
		}
		return Float(v.Float()), nil
	case reflect.String:
		return ofText(v.String())
	case reflect.Slice, reflect.Array:
		if isByte(v.Type().Elem()) {
			return Bytes(bytesOf(v)), nil
		}
		return ofElements(v, depth)
	case reflect.Map:
		return ofMap(v, depth)
	case reflect.Struct:
		return ofStruct(v, depth)
	default:
		return None(), mismatchf("a Go %s is no value", v.Type())
	}
}

func ofOwnKind(content any) (Value, *mismatch) {
	switch content := content.(type) {
	case Value:
		return content, nil
	case Object:
		return Fields(content), nil
	case []Value:
		return Array(content...), nil
	case RecordID:
		if err := checkRecordKey(content); err != nil {
			return None(), mismatchOf(err)
		}
		return Record(content), nil
	case uuid.UUID:
		return UUID(content), nil
	case time.Time:
		if err := checkDatetime(content.UTC()); err != nil {
			return None(), mismatchOf(err)
		}
		return Datetime(content), nil
	case time.Duration:
		return Duration(content), nil
	}
	panic("value: a type that isOwnKind knows and ofOwnKind does not")
}

func ofTextMarshaler(v reflect.Value) (Value, *mismatch) {
	// The method may be the pointer's, and v not addressable.
	pointer := reflect.New(v.Type())
	pointer.Elem().Set(v)
	text, err := pointer.Interface().(encoding.TextMarshaler).MarshalText()
	if err != nil {
		return None(), mismatchf("a Go %s has no text: %v", v.Type(), err)
	}
	return ofText(string(text))
}

func ofText(s string) (Value, *mismatch) {
	if !utf8.ValidString(s) {
		return None(), mismatchOf(notUTF8(s))
	}
	return String(s), nil
}

// bytesOf copies a slice or an array of bytes of any named type.
func bytesOf(v reflect.Value) []byte {
	if v.Kind() == reflect.Slice {
		return bytes.Clone(v.Bytes())
	}
	content := make([]byte, v.Len())
	for i := range content {
		content[i] = byte(v.Index(i).Uint())
	}
	return content
}

// isByte tells bytes from small numbers that have a text of their own.
func isByte(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return t.Kind() == reflect.Uint8 && !pointer.Implements(textMarshaler) && !pointer.Implements(textUnmarshaler)
}

func ofElements(v reflect.Value, depth int) (Value, *mismatch) {
	if depth == MaxDepth {
		return None(), mismatchOf(tooDeep())
	}
	elements := make([]Value, v.Len())
	for i := range elements {
		element, mismatch := of(v.Index(i), depth+1)
		if mismatch != nil {
			return None(), mismatch.inElement(i)
		}
		elements[i] = element
	}
	return Array(elements...), nil
}

func ofMap(v reflect.Value, depth int) (Value, *mismatch) {
	if depth == MaxDepth {
		return None(), mismatchOf(tooDeep())
	}
	if v.Type().Key().Kind() != reflect.String {
		return None(), mismatchf("a Go %s is no value: the names of an object's fields are strings", v.Type())
	}
	fields := make(Object, v.Len())
	for key, content := range v.Seq2() {
		name := key.String()
		if !utf8.ValidString(name) {
			return None(), mismatchOf(notUTF8(name))
		}
		field, mismatch := of(content, depth+1)
		if mismatch != nil {
			return None(), mismatch.inField(QuoteIdentifier(name))
		}
		fields[name] = field
	}
	return Fields(fields), nil
}

func ofStruct(v reflect.Value, depth int) (Value, *mismatch) {
	if depth == MaxDepth {
		return None(), mismatchOf(tooDeep())
	}
	fields := Object{}
	for _, field := range structFields(v.Type()) {
		content, err := v.FieldByIndexErr(field.index)
		if err != nil {
			continue // promoted from an embedded pointer that is nil
		}
		if field.omitEmpty && isEmpty(content) || field.omitZero && isZero(content) {
			continue
		}
		converted, mismatch := of(content, depth+1)
		if mismatch != nil {
			return None(), mismatch.inField(field.goName)
		}
		if !converted.IsNone() {
			fields[field.name] = converted
		}
	}
	return Fields(fields), nil
}

// isEmpty is what omitempty leaves out, by encoding/json's rule.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

// isZero is what omitzero leaves out: what says so of itself, or Go's zero.
func isZero(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return true
	}
	// The method may be the pointer's, and v not addressable.
	pointer := reflect.New(v.Type())
	pointer.Elem().Set(v)
	for _, candidate := range [...]reflect.Value{v, pointer} {
		if zeroer, ok := candidate.Interface().(interface{ IsZero() bool }); ok {
			return zeroer.IsZero()
		}
	}
	return v.IsZero()
}
