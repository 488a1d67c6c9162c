package value

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
)

// The first byte of an encoded key says its kind, in the order of the kinds.
// The gaps leave room for kinds that may become keys.
const (
	keyInt    = 0x10
	keyString = 0x20
	keyBytes  = 0x30
	keyUUID   = 0x40
)

// Strings and bytes end with 00 01, and a 00 inside them is written 00 ff. So
// an end sorts before whatever goes on, and nothing that follows a key can be
// taken for a part of it.
const (
	keyEscape    = 0x00
	keyEnd       = 0x01
	keyZeroInKey = 0xff
)

const (
	intKeySize  = 8
	intKeyFlips = 1 << 63 // the sign, flipped so that negative ints sort first
)

// AppendKey appends a key of a record, or the value of a deduplication's field,
// so that the encodings, compared as bytes, sort as Compare sorts the values.
// An encoding shows where it ends, so other bytes may follow. It takes an int,
// a string, a uuid or bytes; all else, and a string that is not valid UTF-8,
// is fault.TypeMismatch.
func AppendKey(dst []byte, v Value) ([]byte, error) {
	switch content := v.content.(type) {
	case int64:
		return binary.BigEndian.AppendUint64(append(dst, keyInt), uint64(content)^intKeyFlips), nil
	case string:
		if !utf8.ValidString(content) {
			return dst, notUTF8(content)
		}
		return appendTerminated(append(dst, keyString), content), nil
	case []byte:
		return appendTerminated(append(dst, keyBytes), content), nil
	case uuid.UUID:
		return append(append(dst, keyUUID), content[:]...), nil
	}
	return dst, fault.New(fault.TypeMismatch, "a key is an int, a string, a uuid or bytes, not %s", withArticle(v.Kind()))
}

func appendTerminated[T string | []byte](dst []byte, content T) []byte {
	for i := range len(content) {
		dst = append(dst, content[i])
		if content[i] == keyEscape {
			dst = append(dst, keyZeroInKey)
		}
	}
	return append(dst, keyEscape, keyEnd)
}

// DecodeKey decodes the key that b begins with, and returns it and what follows
// it. Bytes that AppendKey did not write are fault.Internal: keys come from the
// store alone.
func DecodeKey(b []byte) (key Value, rest []byte, err error) {
	if len(b) == 0 {
		return None(), nil, malformedKey(b)
	}
	kind, content := b[0], b[1:]
	switch kind {
	case keyInt:
		if len(content) < intKeySize {
			break
		}
		return Int(int64(binary.BigEndian.Uint64(content) ^ intKeyFlips)), content[intKeySize:], nil
	case keyString:
		text, rest, ok := cutTerminated(content)
		if !ok || !utf8.Valid(text) {
			break
		}
		return String(string(text)), rest, nil
	case keyBytes:
		text, rest, ok := cutTerminated(content)
		if !ok {
			break
		}
		return Bytes(text), rest, nil
	case keyUUID:
		if len(content) < len(uuid.UUID{}) {
			break
		}
		return UUID(uuid.UUID(content[:len(uuid.UUID{})])), content[len(uuid.UUID{}):], nil
	}
	return None(), nil, malformedKey(b)
}

// cutTerminated returns what appendTerminated was given, in memory of its own,
// and what follows it.
func cutTerminated(b []byte) (content, rest []byte, ok bool) {
	for {
		zero := bytes.IndexByte(b, keyEscape)
		if zero < 0 || zero+1 == len(b) {
			return nil, nil, false
		}
		content = append(content, b[:zero]...)
		mark := b[zero+1]
		b = b[zero+2:]
		switch mark {
		case keyEnd:
			return content, b, true
		case keyZeroInKey:
			content = append(content, keyEscape)
		default:
			return nil, nil, false
		}
	}
}

func malformedKey(b []byte) error {
	return fault.New(fault.Internal, "the stored key %x is damaged", b[:min(len(b), excerptBytes)])
}
