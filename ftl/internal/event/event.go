// Package event carries what Go source calls an event, a request or a response
// to the store's values and back, the way encoding/json would: tags, omitempty,
// embedding and marshalers decide, so a time.Time is text by RFC 3339, bytes are
// text in base64, and a float without a fraction is an int. Ints keep their 64
// bits.
package event

import (
	"encoding/json"
	"errors"
	"sync"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// Encode returns the value of a Go value. What encoding/json cannot encode, and
// an int outside 64 bits signed, is fault.TypeMismatch.
func Encode(v any) (value.Value, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return value.Value{}, fault.New(fault.TypeMismatch, "a %T cannot be encoded as JSON: %w", v, err)
	}
	return value.ParseJSON(text)
}

// Decode stores a value in the Go variable that dst points to. A value may hold
// more fields than dst, and what it has none of keeps its zero. A value that
// does not fit is fault.TypeMismatch, which names the field.
func Decode(v value.Value, dst any) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	text, err := v.AppendJSON((*buffer)[:0])
	if err != nil {
		return err
	}
	if cap(text) <= maxKeptBytes {
		*buffer = text
	}
	return DecodeJSON(text, dst)
}

// buffers are texts that were decoded: encoding/json keeps none of a text, and
// neither may an unmarshaler. One larger than maxKeptBytes is left to the
// collector.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxKeptBytes = 64 << 10

// DecodeJSON is Decode of text that is JSON.
func DecodeJSON(text []byte, dst any) error {
	err := json.Unmarshal(text, dst)
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && mistyped.Field != "" {
		return fault.New(fault.TypeMismatch, "the field %s does not take a %s: %w", mistyped.Field, mistyped.Value, err)
	}
	if err != nil {
		return fault.New(fault.TypeMismatch, "a %T cannot be decoded from it: %w", dst, err)
	}
	return nil
}
