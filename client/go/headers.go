package client

import (
	"context"

	"github.com/tidemarkdb/tidemark/value"
)

// headersKey is the key of a context's headers.
type headersKey struct{}

// WithHeaders returns a context under which every message that is appended
// carries headers: a few short words beside its value, for whoever reads it,
// such as the trace it belongs to (traceparent). They are at most 16, of 1,024
// bytes together, which the append checks; Message.Headers reads them.
func WithHeaders(ctx context.Context, headers map[string]string) context.Context {
	words := make(value.Object, len(headers))
	for name, text := range headers {
		words[name] = value.String(text)
	}
	return context.WithValue(ctx, headersKey{}, words)
}

// HeadersOf are the headers that WithHeaders put into a context, by their names;
// nil for none. It is for backends.
func HeadersOf(ctx context.Context) map[string]string {
	return textsOf(headersOf(ctx))
}

func headersOf(ctx context.Context) value.Object {
	words, _ := ctx.Value(headersKey{}).(value.Object)
	return words
}

// textsOf are headers as text.
func textsOf(words value.Object) map[string]string {
	if len(words) == 0 {
		return nil
	}
	texts := make(map[string]string, len(words))
	for name, word := range words {
		texts[name], _ = word.AsString()
	}
	return texts
}
