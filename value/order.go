package value

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Compare is the total order over all values, which ORDER BY and keys follow:
// it returns -1, 0 or 1 as a sorts before, with or after b.
//
// Kinds sort as they are numbered, but ints and floats by value together,
// exactly, also past 2^53. Strings, bytes and uuids sort by their bytes;
// datetimes and durations by time; arrays element by element; objects by their
// fields in order of name, each by name and then value; record ids by table
// and then key. A field that holds none is not there.
func Compare(a, b Value) int {
	if order := cmp.Compare(rank(a), rank(b)); order != 0 {
		return order
	}
	switch x := a.content.(type) {
	case nil, null:
		return 0
	case bool:
		return compareBools(x, b.content.(bool))
	case int64:
		if y, ok := b.content.(float64); ok {
			return compareIntFloat(x, y)
		}
		return cmp.Compare(x, b.content.(int64))
	case float64:
		if y, ok := b.content.(int64); ok {
			return -compareIntFloat(y, x)
		}
		return cmp.Compare(x, b.content.(float64))
	case string:
		return strings.Compare(x, b.content.(string))
	case []byte:
		return bytes.Compare(x, b.content.([]byte))
	case uuid.UUID:
		y := b.content.(uuid.UUID)
		return bytes.Compare(x[:], y[:])
	case time.Time:
		return x.Compare(b.content.(time.Time))
	case time.Duration:
		return cmp.Compare(x, b.content.(time.Duration))
	case []Value:
		return slices.CompareFunc(x, b.content.([]Value), Compare)
	case Object:
		return compareObjects(x, b.content.(Object))
	case RecordID:
		y := b.content.(RecordID)
		return cmp.Or(strings.Compare(x.Table, y.Table), Compare(x.Key, y.Key))
	}
	panic("value: content of no kind")
}

// Equal reports whether a and b are the same value, as = in a statement does:
// null equals null, none equals none, and the int 1 the float 1.0.
func Equal(a, b Value) bool { return Compare(a, b) == 0 }

// rank is where a value's kind sorts.
func rank(v Value) Kind {
	if kind := v.Kind(); kind != KindFloat {
		return kind
	}
	return KindInt
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// compareIntFloat compares without rounding the int to a float. NaN, which is
// no value but may exist in memory, sorts before all numbers, as in
// cmp.Compare, so that the order stays total.
func compareIntFloat(i int64, f float64) int {
	const limit = 1 << 63 // the first float over every int
	switch {
	case math.IsNaN(f) || f < -limit:
		return 1
	case f >= limit:
		return -1
	}
	whole := math.Trunc(f)
	return cmp.Or(cmp.Compare(i, int64(whole)), cmp.Compare(whole, f))
}

func compareObjects(a, b Object) int {
	var roomA, roomB [fieldsOnStack]field
	return slices.CompareFunc(sortedFields(roomA[:0], a), sortedFields(roomB[:0], b), func(a, b field) int {
		if order := compareNames(a, b); order != 0 {
			return order
		}
		return Compare(a.value, b.value)
	})
}

// field is one field of an object that is there.
type field struct {
	name  string
	value Value
}

// fieldsOnStack is how many fields of an object are sorted without allocating.
// Most objects have no more.
const fieldsOnStack = 12

// sortedFields appends the fields that are there, by the bytes of their names.
func sortedFields(dst []field, fields Object) []field {
	dst = appendFields(dst, fields)
	slices.SortFunc(dst, compareNames)
	return dst
}

// appendFields appends the fields that are there, in no order.
func appendFields(dst []field, fields Object) []field {
	for name, v := range fields {
		if !v.IsNone() {
			dst = append(dst, field{name, v})
		}
	}
	return dst
}

func compareNames(a, b field) int { return strings.Compare(a.name, b.name) }
