package store

import (
	"context"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// Headers travel beside a message's value, from whoever appends it to whoever
// reads it: the W3C trace context (traceparent, tracestate), who called. They
// are not part of the value, so no bound of a topic counts them.
type Headers map[string]string

// The bounds of a message's headers: they are for a few short words, and
// nothing but these bounds what they take.
const (
	MaxHeaders      = 16
	MaxHeadersBytes = 1024
)

// Check returns fault.TooLarge for headers past their bounds, and
// fault.InvalidClause for one without a name.
func (h Headers) Check() error {
	if len(h) > MaxHeaders {
		return fault.New(fault.TooLarge, "%d headers of a message; %d are the limit", len(h), MaxHeaders)
	}
	size := 0
	for name, text := range h {
		if name == "" {
			return fault.New(fault.InvalidClause, "a header of a message has no name")
		}
		size += len(name) + len(text)
	}
	if size > MaxHeadersBytes {
		return fault.New(fault.TooLarge, "the headers of a message take %d bytes; %d are the limit", size, MaxHeadersBytes)
	}
	return nil
}

// headersKey is the key of a context's headers.
type headersKey struct{}

// encodedHeaders are headers as a message's row has them.
type encodedHeaders []byte

// WithHeaders returns a context under which every message that is appended
// carries the headers. Its error is that of Headers.Check.
func WithHeaders(ctx context.Context, headers Headers) (context.Context, error) {
	if len(headers) == 0 {
		return ctx, nil
	}
	if err := headers.Check(); err != nil {
		return ctx, err
	}
	encoded, err := headers.Value().AppendCBOR(nil)
	if err != nil {
		return ctx, err
	}
	return context.WithValue(ctx, headersKey{}, encodedHeaders(encoded)), nil
}

// WithoutHeaders returns a context under which messages carry none.
func WithoutHeaders(ctx context.Context) context.Context {
	return context.WithValue(ctx, headersKey{}, encodedHeaders(nil))
}

// headersOf are the headers that a context carries, nil for none.
func headersOf(ctx context.Context) encodedHeaders {
	headers, _ := ctx.Value(headersKey{}).(encodedHeaders)
	return headers
}

// decode is the way back. Headers that do not decode are none: they are no
// reason to withhold a message.
func (e encodedHeaders) decode() Headers {
	if e == nil {
		return nil
	}
	v, err := value.DecodeCBOR(e)
	if err != nil {
		return nil
	}
	fields, _ := v.AsObject()
	headers := make(Headers, len(fields))
	for name, field := range fields {
		headers[name], _ = field.AsString()
	}
	return headers
}

// Value is the headers as an answer has them.
func (h Headers) Value() value.Value {
	fields := make(value.Object, len(h))
	for name, text := range h {
		fields[name] = value.String(text)
	}
	return value.Fields(fields)
}
