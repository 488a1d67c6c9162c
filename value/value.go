// Package value is Tidemark's value model: what a record's field, a message or
// a parameter may hold, one encoding for storage and the binary wire (CBOR,
// deterministic) and one for people (JSON). Both are exact: an int keeps all
// its 64 bits, none stays apart from null, a float from an int.
//
// It is a leaf: it knows of no statement and no storage, and it is public, so
// that programs which embed Tidemark or speak to it share it.
package value

import (
	"time"

	"github.com/google/uuid"
)

// Kind says what a value is. Kinds are numbered in the order in which values
// of different kinds sort; ints and floats sort together, by value.
type Kind uint8

// The kinds, in sorting order.
const (
	KindNone Kind = iota
	KindNull
	KindBool
	KindInt
	KindFloat
	KindString
	KindBytes
	KindUUID
	KindDatetime
	KindDuration
	KindArray
	KindObject
	KindRecord
)

// String returns the kind's name in the statement language: "int", "datetime".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "no kind"
}

var kindNames = [...]string{
	KindNone:     "none",
	KindNull:     "null",
	KindBool:     "bool",
	KindInt:      "int",
	KindFloat:    "float",
	KindString:   "string",
	KindBytes:    "bytes",
	KindUUID:     "uuid",
	KindDatetime: "datetime",
	KindDuration: "duration",
	KindArray:    "array",
	KindObject:   "object",
	KindRecord:   "record",
}

// MaxDepth is how many arrays and objects may be nested in each other in what is
// stored. It bounds the stack that a value costs whoever walks it.
const MaxDepth = 64

// MaxCarriedDepth is the same for every decoder and every encoder: what carries
// a value (an answer, a frame, a line of an export, a dead letter) nests it
// further, and what was stored can be read whatever carries it.
const MaxCarriedDepth = MaxDepth + 16

// Value is one value of the model. The zero Value is none: a field that is not
// there. Values are immutable by convention: who is given an Array, an Object
// or Bytes does not change it.
type Value struct {
	// content is nil for none, null{}, or one of: bool, int64, float64,
	// string, []byte, uuid.UUID, time.Time (UTC), time.Duration, []Value,
	// Object, RecordID.
	content any
}

type null struct{}

// Object is named fields. A field that holds none is the same as one that is
// absent; encoding leaves it out.
type Object map[string]Value

// RecordID is the identity of a record or a message, written table:key.
type RecordID struct {
	Table string
	// Key is an int, a string or a uuid.
	Key Value
}

// None is the absence of a value.
func None() Value { return Value{} }

// Null is present and holds nothing.
func Null() Value { return Value{null{}} }

// Bool returns a bool.
func Bool(b bool) Value { return Value{b} }

// Int returns an int.
func Int(i int64) Value { return Value{i} }

// Float returns a float. NaN and the infinities are no values: encoding one is
// an error.
func Float(f float64) Value { return Value{f} }

// String returns a string, which must be valid UTF-8 to be encoded.
func String(s string) Value { return Value{s} }

// Bytes returns bytes. It keeps b.
func Bytes(b []byte) Value { return Value{b} }

// UUID returns a uuid.
func UUID(id uuid.UUID) Value { return Value{id} }

// Datetime returns a point in time, in nanoseconds, in UTC. Years from 0 to
// 9999 can be encoded, which is what RFC 3339 can write.
func Datetime(t time.Time) Value { return Value{t.Round(0).UTC()} }

// Duration returns a length of time, in nanoseconds.
func Duration(d time.Duration) Value { return Value{d} }

// Array returns an array. It keeps elements.
func Array(elements ...Value) Value { return Value{elements} }

// Fields returns an object. It keeps o.
func Fields(o Object) Value { return Value{o} }

// Record returns a record id.
func Record(id RecordID) Value { return Value{id} }

// Kind says what v is.
func (v Value) Kind() Kind {
	switch v.content.(type) {
	case nil:
		return KindNone
	case null:
		return KindNull
	case bool:
		return KindBool
	case int64:
		return KindInt
	case float64:
		return KindFloat
	case string:
		return KindString
	case []byte:
		return KindBytes
	case uuid.UUID:
		return KindUUID
	case time.Time:
		return KindDatetime
	case time.Duration:
		return KindDuration
	case []Value:
		return KindArray
	case Object:
		return KindObject
	case RecordID:
		return KindRecord
	}
	panic("value: content of no kind")
}

// IsNone reports whether v is none. The As functions below return what v holds
// and whether it is of that kind.
func (v Value) IsNone() bool { return v.content == nil }

// IsNull reports whether v is null.
func (v Value) IsNull() bool { _, ok := v.content.(null); return ok }

// AsBool returns the bool that v holds.
func (v Value) AsBool() (b, ok bool) { b, ok = v.content.(bool); return b, ok }

// AsInt returns the int that v holds.
func (v Value) AsInt() (i int64, ok bool) { i, ok = v.content.(int64); return i, ok }

// AsFloat returns the float that v holds.
func (v Value) AsFloat() (f float64, ok bool) { f, ok = v.content.(float64); return f, ok }

// AsString returns the string that v holds.
func (v Value) AsString() (s string, ok bool) { s, ok = v.content.(string); return s, ok }

// AsBytes returns the bytes that v holds.
func (v Value) AsBytes() (b []byte, ok bool) { b, ok = v.content.([]byte); return b, ok }

// AsUUID returns the uuid that v holds.
func (v Value) AsUUID() (id uuid.UUID, ok bool) { id, ok = v.content.(uuid.UUID); return id, ok }

// AsDatetime returns the time that v holds.
func (v Value) AsDatetime() (t time.Time, ok bool) { t, ok = v.content.(time.Time); return t, ok }

// AsDuration returns the duration that v holds.
func (v Value) AsDuration() (d time.Duration, ok bool) {
	d, ok = v.content.(time.Duration)
	return d, ok
}

// AsArray returns the elements that v holds.
func (v Value) AsArray() (a []Value, ok bool) { a, ok = v.content.([]Value); return a, ok }

// AsObject returns the fields that v holds.
func (v Value) AsObject() (o Object, ok bool) { o, ok = v.content.(Object); return o, ok }

// AsRecord returns the record id that v holds.
func (v Value) AsRecord() (id RecordID, ok bool) { id, ok = v.content.(RecordID); return id, ok }
