package value

import "unicode/utf8"

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

// AppendName appends the name of a field, which must be valid UTF-8.
func AppendName(dst []byte, name string) []byte {
	return append(appendHead(dst, majorText, uint64(len(name))), name...)
}
