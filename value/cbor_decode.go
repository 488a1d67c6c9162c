package value

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/x448/float16"

	"github.com/tidemarkdb/tidemark/fault"
)

// DecodeCBOR decodes one value. It is strict about what a value is and lenient
// about how it was written: clients' libraries may sort fields their own way
// and use longer heads or indefinite lengths, and a field may hold undefined,
// which leaves it out.
//
// Refused with fault.TypeMismatch: bytes after the value, ints outside 64 bits
// signed, NaN and the infinities, invalid UTF-8, fields that are there twice or
// whose name is not a string, and tags other than those AppendCBOR writes.
// Nesting past MaxCarriedDepth is fault.TooLarge. The value keeps nothing of data.
func DecodeCBOR(data []byte) (Value, error) {
	d := cborDecoder{data: data}
	v, err := d.value(0)
	if err != nil {
		return None(), err
	}
	if d.at < len(data) {
		return None(), malformedCBOR(d.at, "%d bytes follow the value", len(data)-d.at)
	}
	return v, nil
}

// UnmarshalCBOR decodes as DecodeCBOR does, so that a Value nests in what
// github.com/fxamacker/cbor/v2 decodes. That library counts tags as levels,
// too: whoever decodes with it sets MaxNestedLevels to MaxCarriedDepth, two for a tag
// and its content, and the levels of their own.
func (v *Value) UnmarshalCBOR(data []byte) (err error) {
	*v, err = DecodeCBOR(data)
	return err
}

// Room for elements is made ahead for as many as an item says it has, but for
// no more than these: a head of nine bytes may claim anything, and 64 of them
// nested would claim it 64 times.
const (
	roomForElements = 256
	roomForFields   = 64
)

// cborBreak ends an item of indefinite length.
const cborBreak = 0xff

type cborDecoder struct {
	data []byte
	at   int
}

// cborHead is the start of an item: major type and argument, and for the
// simple values and floats the first byte, which tells them apart.
type cborHead struct {
	at         int
	first      byte
	argument   uint64
	indefinite bool
}

func (h cborHead) major() byte { return h.first & 0xe0 }

func (d *cborDecoder) head() (cborHead, error) {
	if d.at >= len(d.data) {
		return cborHead{}, malformedCBOR(d.at, "the data ends where a value is expected")
	}
	h := cborHead{at: d.at, first: d.data[d.at]}
	d.at++
	information := h.first & 0x1f
	if information < 24 {
		h.argument = uint64(information)
		return h, nil
	}
	if information == 31 {
		h.indefinite = true
		return h, nil
	}
	if information > 27 {
		return h, malformedCBOR(h.at, "the head 0x%02x is reserved", h.first)
	}
	argument, err := d.take(h, 1<<(information-24))
	if err != nil {
		return h, err
	}
	switch len(argument) {
	case 1:
		h.argument = uint64(argument[0])
	case 2:
		h.argument = uint64(binary.BigEndian.Uint16(argument))
	case 4:
		h.argument = uint64(binary.BigEndian.Uint32(argument))
	default:
		h.argument = binary.BigEndian.Uint64(argument)
	}
	return h, nil
}

// take returns the next n bytes, which belong to the item that h begins.
func (d *cborDecoder) take(h cborHead, n uint64) ([]byte, error) {
	if left := len(d.data) - d.at; n > uint64(left) {
		return nil, malformedCBOR(h.at, "the item needs %d bytes more, and %d are left", n, left)
	}
	taken := d.data[d.at : d.at+int(n)]
	d.at += int(n)
	return taken, nil
}

func (d *cborDecoder) value(depth int) (Value, error) {
	h, err := d.head()
	if err != nil {
		return None(), err
	}
	switch h.major() {
	case majorUnsigned, majorNegative:
		i, err := integer(h)
		return Int(i), err
	case majorBytes:
		content, err := d.content(h)
		if err != nil {
			return None(), err
		}
		return Bytes(bytes.Clone(content)), nil
	case majorText:
		s, err := d.text(h)
		return String(s), err
	case majorArray:
		return d.array(h, depth)
	case majorMap:
		return d.object(h, depth)
	case majorTag:
		return d.tagged(h)
	default:
		return simple(h)
	}
}

func integer(h cborHead) (int64, error) {
	switch {
	case h.indefinite:
		return 0, malformedCBOR(h.at, "an int has no indefinite length")
	case h.argument > math.MaxInt64 && h.major() == majorUnsigned:
		return 0, malformedCBOR(h.at, "the int %d is over %d", h.argument, int64(math.MaxInt64))
	case h.argument > math.MaxInt64:
		return 0, malformedCBOR(h.at, "the int -1-%d is under %d", h.argument, int64(math.MinInt64))
	case h.major() == majorUnsigned:
		return int64(h.argument), nil
	}
	return ^int64(h.argument), nil // -1 - argument
}

// content returns the bytes of a byte or text string, a part of the data or,
// where the string came in chunks, a copy.
func (d *cborDecoder) content(h cborHead) ([]byte, error) {
	if !h.indefinite {
		return d.take(h, h.argument)
	}
	var whole []byte
	for !d.atBreak() {
		chunk, err := d.head()
		if err != nil {
			return nil, err
		}
		if chunk.major() != h.major() || chunk.indefinite {
			return nil, malformedCBOR(chunk.at, "a chunk of a string is a string of the same kind and of definite length")
		}
		part, err := d.take(chunk, chunk.argument)
		if err != nil {
			return nil, err
		}
		// RFC 8949, section 3.2.3: a character is not split between chunks.
		if h.major() == majorText && !utf8.Valid(part) {
			return nil, malformedCBOR(chunk.at, "the text %q is not valid UTF-8", excerpt(string(part)))
		}
		whole = append(whole, part...)
	}
	return whole, nil
}

func (d *cborDecoder) text(h cborHead) (string, error) {
	content, err := d.content(h)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(content) {
		return "", malformedCBOR(h.at, "the text %q is not valid UTF-8", excerpt(string(content)))
	}
	return string(content), nil
}

// atBreak moves past the end of an item of indefinite length if it is next.
func (d *cborDecoder) atBreak() bool {
	if d.at < len(d.data) && d.data[d.at] == cborBreak {
		d.at++
		return true
	}
	return false
}

// more reports whether an array or map that begins with h and of which so many
// entries were read has another one.
func (d *cborDecoder) more(h cborHead, read uint64) bool {
	if h.indefinite {
		return !d.atBreak()
	}
	return read < h.argument
}

func (d *cborDecoder) array(h cborHead, depth int) (Value, error) {
	if depth == MaxCarriedDepth {
		return None(), tooDeep()
	}
	elements := make([]Value, 0, min(h.argument, roomForElements))
	for d.more(h, uint64(len(elements))) {
		element, err := d.value(depth + 1)
		if err != nil {
			return None(), err
		}
		elements = append(elements, element)
	}
	return Array(elements...), nil
}

func (d *cborDecoder) object(h cborHead, depth int) (Value, error) {
	if depth == MaxCarriedDepth {
		return None(), tooDeep()
	}
	fields := make(Object, min(h.argument, roomForFields))
	absent := false
	for d.more(h, uint64(len(fields))) {
		nameHead, err := d.head()
		if err != nil {
			return None(), err
		}
		if nameHead.major() != majorText {
			return None(), malformedCBOR(nameHead.at, "the name of an object's field is a string")
		}
		name, err := d.text(nameHead)
		if err != nil {
			return None(), err
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return None(), err
		}
		before := len(fields)
		fields[name] = v
		if len(fields) == before {
			return None(), malformedCBOR(nameHead.at, "the field %q is there twice", excerpt(name))
		}
		absent = absent || v.IsNone()
	}
	if absent {
		maps.DeleteFunc(fields, func(_ string, v Value) bool { return v.IsNone() })
	}
	return Fields(fields), nil
}

// tagged decodes what follows a tag. No tag holds another value of any kind,
// so tags do not nest.
func (d *cborDecoder) tagged(h cborHead) (Value, error) {
	if h.indefinite {
		return None(), malformedCBOR(h.at, "a tag has no indefinite length")
	}
	switch h.argument {
	case tagUUID:
		return d.uuid()
	case tagRecord:
		return d.record()
	case tagDatetime:
		return d.datetime(h)
	case tagDuration:
		return d.duration(h)
	}
	return None(), malformedCBOR(h.at,
		"tag %d is unknown; a datetime is tag 1001, a duration 1002, a uuid 37, a record id 39", h.argument)
}

func (d *cborDecoder) uuid() (Value, error) {
	h, err := d.head()
	if err != nil {
		return None(), err
	}
	if h.major() != majorBytes || h.indefinite || h.argument != uint64(len(uuid.UUID{})) {
		return None(), malformedCBOR(h.at, "a uuid (tag 37) holds 16 bytes")
	}
	content, err := d.take(h, h.argument)
	if err != nil {
		return None(), err
	}
	return UUID(uuid.UUID(content)), nil
}

func (d *cborDecoder) record() (Value, error) {
	array, err := d.head()
	if err != nil {
		return None(), err
	}
	if array.major() != majorArray || !array.indefinite && array.argument != 2 {
		return None(), malformedCBOR(array.at, "a record id (tag 39) holds [table, key]")
	}
	table, err := d.head()
	if err != nil {
		return None(), err
	}
	if table.major() != majorText {
		return None(), malformedCBOR(table.at, "the table of a record id is a string")
	}
	var id RecordID
	if id.Table, err = d.text(table); err != nil {
		return None(), err
	}
	if id.Key, err = d.recordKey(); err != nil {
		return None(), err
	}
	if array.indefinite && !d.atBreak() {
		return None(), malformedCBOR(d.at, "a record id (tag 39) holds [table, key]")
	}
	return Record(id), nil
}

func (d *cborDecoder) recordKey() (Value, error) {
	h, err := d.head()
	if err != nil {
		return None(), err
	}
	switch {
	case h.major() == majorUnsigned || h.major() == majorNegative:
		i, err := integer(h)
		return Int(i), err
	case h.major() == majorText:
		s, err := d.text(h)
		return String(s), err
	case h.major() == majorTag && h.argument == tagUUID && !h.indefinite:
		return d.uuid()
	}
	return None(), malformedCBOR(h.at, "the key of a record id is an int, a string or a uuid")
}

// Bounds of what a datetime can hold, in seconds since 1970.
var (
	minDatetimeSeconds = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	maxDatetimeSeconds = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
)

func (d *cborDecoder) datetime(h cborHead) (Value, error) {
	seconds, nanoseconds, err := d.timeMap()
	if err != nil {
		return None(), err
	}
	if seconds < minDatetimeSeconds || seconds > maxDatetimeSeconds {
		return None(), malformedCBOR(h.at, "the datetime at second %d is outside the years 0 to 9999", seconds)
	}
	return Datetime(time.Unix(seconds, nanoseconds)), nil
}

func (d *cborDecoder) duration(h cborHead) (Value, error) {
	seconds, nanoseconds, err := d.timeMap()
	if err != nil {
		return None(), err
	}
	least, leastNanoseconds := splitDuration(math.MinInt64)
	most, mostNanoseconds := splitDuration(math.MaxInt64)
	if seconds < least || seconds == least && nanoseconds < leastNanoseconds ||
		seconds > most || seconds == most && nanoseconds > mostNanoseconds {
		return None(), malformedCBOR(h.at, "the duration of %d seconds is outside what 64 bits of nanoseconds hold, 292 years", seconds)
	}
	// The product may pass the range where the sum does not; both wrap around.
	return Duration(time.Duration(seconds*int64(time.Second) + nanoseconds)), nil
}

// timeMap decodes {1: seconds, -9: nanoseconds}, in either order. Seconds
// alone, which other libraries write, are whole seconds.
func (d *cborDecoder) timeMap() (seconds, nanoseconds int64, err error) {
	h, err := d.head()
	if err != nil {
		return 0, 0, err
	}
	if h.major() != majorMap {
		return 0, 0, malformedCBOR(h.at, "a datetime or a duration holds the map {1: seconds, -9: nanoseconds}")
	}
	hasSeconds, hasNanoseconds := false, false
	for read := uint64(0); d.more(h, read); read++ {
		at := d.at
		key, err := d.integer()
		if err != nil {
			return 0, 0, err
		}
		switch {
		case key == timeKeySeconds && !hasSeconds:
			hasSeconds = true
			seconds, err = d.integer()
		case key == timeKeyNanoseconds && !hasNanoseconds:
			hasNanoseconds = true
			nanoseconds, err = d.integer()
		default:
			return 0, 0, malformedCBOR(at, "a datetime or a duration has the keys 1 (seconds) and -9 (nanoseconds), once each; %d is wrong here", key)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	if !hasSeconds {
		return 0, 0, malformedCBOR(h.at, "a datetime or a duration has its seconds under key 1")
	}
	if nanoseconds < 0 || nanoseconds >= int64(time.Second) {
		return 0, 0, malformedCBOR(h.at, "nanoseconds are 0 to 999999999, not %d", nanoseconds)
	}
	return seconds, nanoseconds, nil
}

func (d *cborDecoder) integer() (int64, error) {
	h, err := d.head()
	if err != nil {
		return 0, err
	}
	if h.major() != majorUnsigned && h.major() != majorNegative {
		return 0, malformedCBOR(h.at, "an int is expected")
	}
	return integer(h)
}

func simple(h cborHead) (Value, error) {
	var f float64
	switch h.first {
	case simpleFalse:
		return Bool(false), nil
	case simpleTrue:
		return Bool(true), nil
	case simpleNull:
		return Null(), nil
	case simpleUndefined:
		return None(), nil
	case simpleFloat16:
		f = float64(float16.Frombits(uint16(h.argument)).Float32())
	case simpleFloat32:
		f = float64(math.Float32frombits(uint32(h.argument)))
	case simpleFloat64:
		f = math.Float64frombits(h.argument)
	case cborBreak:
		return None(), malformedCBOR(h.at, "a break where a value is expected")
	default:
		return None(), malformedCBOR(h.at, "the simple value %d is unknown", h.argument)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return None(), malformedCBOR(h.at, "a float cannot be %v; floats are finite", f)
	}
	return Float(f), nil
}

func malformedCBOR(at int, format string, args ...any) error {
	return fault.New(fault.TypeMismatch, "CBOR, at byte %d: %s", at, fmt.Sprintf(format, args...))
}
