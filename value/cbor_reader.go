package value

import (
	"bytes"
	"math"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/x448/float16"
)

// CBORReader reads CBOR piece by piece, for whoever takes messages of many
// values apart, or passes values on without looking into them: no Object is
// made of what only carries others. It is lenient as DecodeCBOR is, but reads
// arrays and objects of definite length only; where it meets another, Array and
// Object say so, and the whole is left to DecodeCBOR.
type CBORReader struct{ decoder cborDecoder }

// ReadCBOR returns a reader at the beginning of data, which it shares.
func ReadCBOR(data []byte) *CBORReader { return &CBORReader{cborDecoder{data: data}} }

// Done reports whether everything was read.
func (r *CBORReader) Done() bool { return r.decoder.at == len(r.decoder.data) }

// Array enters an array of n elements if that is what comes next; where it is
// not, nothing is read.
func (r *CBORReader) Array() (n int, ok bool) { return r.enter(majorArray) }

// Object enters an object of n fields, each a Name and a value, if that is what
// comes next; where it is not, nothing is read. That no name is there twice is
// for the caller to see.
func (r *CBORReader) Object() (n int, ok bool) { return r.enter(majorMap) }

func (r *CBORReader) enter(major byte) (n int, ok bool) {
	before := r.decoder.at
	h, err := r.decoder.head()
	// An element takes a byte at least.
	if err != nil || h.major() != major || h.indefinite || h.argument > uint64(len(r.decoder.data)-r.decoder.at) {
		r.decoder.at = before
		return 0, false
	}
	return int(h.argument), true
}

// Name reads a string without copying it: the name of a field.
func (r *CBORReader) Name() ([]byte, error) {
	h, err := r.decoder.head()
	if err != nil {
		return nil, err
	}
	if h.major() != majorText {
		return nil, malformedCBOR(h.at, "the name of an object's field is a string")
	}
	name, err := r.decoder.content(h)
	if err == nil && !utf8.Valid(name) {
		err = malformedCBOR(h.at, "the text %q is not valid UTF-8", excerpt(string(name)))
	}
	return name, err
}

// Int reads an int if that is what comes next; where it is not, nothing is read.
func (r *CBORReader) Int() (i int64, ok bool) {
	before := r.decoder.at
	i, err := r.decoder.integer()
	if err != nil {
		r.decoder.at = before
	}
	return i, err == nil
}

// Value reads a value.
func (r *CBORReader) Value() (Value, error) { return r.decoder.value(0) }

// Raw reads over a value and returns its bytes, a part of the data, for
// DecodeCBOR to decode: only where it ends was found out.
func (r *CBORReader) Raw() ([]byte, error) {
	begun := r.decoder.at
	if err := r.decoder.skip(0); err != nil {
		return nil, err
	}
	return r.decoder.data[begun:r.decoder.at], nil
}

// Stored reads over a value that is written to the byte as AppendStored writes it,
// levels as there, and returns its bytes, a part of the data: it can be stored
// without being decoded. Where the value is written in another way, or cannot be
// stored, or is none or holds it, nothing is read.
func (r *CBORReader) Stored(levels int) (encoded []byte, ok bool) {
	begun := r.decoder.at
	if !r.decoder.skipStored(MaxCarriedDepth - MaxDepth - levels) {
		r.decoder.at = begun
		return nil, false
	}
	return r.decoder.data[begun:r.decoder.at], true
}

// skipStored moves past a value if appendCBOR would write it in the same bytes.
func (d *cborDecoder) skipStored(depth int) bool {
	begun := d.at
	h, err := d.head()
	if err != nil || h.indefinite {
		return false
	}
	if h.major() == majorSimple {
		return isShortestSimple(h)
	}
	if !isShortest(h) {
		return false
	}
	switch h.major() {
	case majorBytes:
		_, err := d.take(h, h.argument)
		return err == nil
	case majorText:
		text, err := d.take(h, h.argument)
		return err == nil && utf8.Valid(text)
	case majorArray:
		return d.skipStoredArray(h, depth)
	case majorMap:
		return d.skipStoredObject(h, depth)
	case majorTag:
		// They are rare, and small.
		v, err := d.tagged(h)
		if err != nil {
			return false
		}
		again, err := appendCBOR(nil, v, depth)
		return err == nil && bytes.Equal(again, d.data[begun:d.at])
	}
	_, err = integer(h)
	return err == nil
}

func (d *cborDecoder) skipStoredArray(h cborHead, depth int) bool {
	if depth == MaxCarriedDepth {
		return false
	}
	for range h.argument {
		if !d.skipStored(depth + 1) {
			return false
		}
	}
	return true
}

func (d *cborDecoder) skipStoredObject(h cborHead, depth int) bool {
	if depth == MaxCarriedDepth {
		return false
	}
	var before []byte
	for i := range h.argument {
		name, err := d.head()
		if err != nil || name.major() != majorText || name.indefinite || !isShortest(name) {
			return false
		}
		text, err := d.take(name, name.argument)
		// Names ascend, so none is there twice.
		ascends := i == 0 || len(text) > len(before) || len(text) == len(before) && bytes.Compare(text, before) > 0
		if err != nil || !ascends || !utf8.Valid(text) || !d.skipStored(depth+1) {
			return false
		}
		before = text
	}
	return true
}

// isShortest reports whether an argument is written in the fewest bytes.
func isShortest(h cborHead) bool {
	switch h.first & 0x1f {
	case 24:
		return h.argument >= 24
	case 25:
		return h.argument > math.MaxUint8
	case 26:
		return h.argument > math.MaxUint16
	case 27:
		return h.argument > math.MaxUint32
	}
	return true
}

// isShortestSimple is isShortest for what has no argument, or a float.
func isShortestSimple(h cborHead) bool {
	switch h.first {
	case simpleFalse, simpleTrue, simpleNull:
		return true
	case simpleFloat16:
		return !float16.Frombits(uint16(h.argument)).IsNaN() && !float16.Frombits(uint16(h.argument)).IsInf(0)
	case simpleFloat32:
		f := math.Float32frombits(uint32(h.argument))
		return checkFloat(float64(f)) == nil && float16.Fromfloat32(f).Float32() != f
	case simpleFloat64:
		f := math.Float64frombits(h.argument)
		return checkFloat(f) == nil && float64(float32(f)) != f
	}
	return false
}

// skip moves past a value.
func (d *cborDecoder) skip(depth int) error {
	if depth > maxSkipDepth {
		return tooDeep()
	}
	h, err := d.head()
	if err != nil {
		return err
	}
	var items uint64
	switch h.major() {
	case majorBytes, majorText:
		_, err := d.content(h)
		return err
	case majorArray:
		items = h.argument
	case majorMap:
		items = 2 * h.argument
	case majorTag:
		return d.skip(depth + 1)
	default:
		return nil
	}
	for read := uint64(0); ; read++ {
		if h.indefinite && d.atBreak() || !h.indefinite && read == items {
			return nil
		}
		if err := d.skip(depth + 1); err != nil {
			return err
		}
	}
}

// maxSkipDepth bounds what skip calls itself: as deep as a value may nest, each
// level with a tag.
const maxSkipDepth = 2*MaxCarriedDepth + 2

// AppendArrayHead appends the head of an array of n elements in deterministic
// CBOR, which are to be appended after it.
func AppendArrayHead(dst []byte, n int) []byte { return appendHead(dst, majorArray, uint64(n)) }

// AppendObjectHead appends the head of an object of n fields. Each is to be
// appended as its name, by AppendName, and its value, the shorter names first
// and those of a length in order.
func AppendObjectHead(dst []byte, n int) []byte { return appendHead(dst, majorMap, uint64(n)) }

// AppendInt appends an int, as Int's AppendCBOR does.
func AppendInt(dst []byte, i int64) []byte { return appendInt(dst, i) }

// AppendRecordUUID appends the record id of a table and a uuid. The table's name
// must be valid UTF-8.
func AppendRecordUUID(dst []byte, table string, key uuid.UUID) []byte {
	dst = appendHead(appendHead(dst, majorTag, tagRecord), majorArray, 2)
	return appendUUIDCBOR(AppendName(dst, table), key)
}

// AppendName appends the name of a field, which must be valid UTF-8.
func AppendName(dst []byte, name string) []byte {
	return append(appendHead(dst, majorText, uint64(len(name))), name...)
}
