package server

import (
	"context"
	"net/http"
	"regexp"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// The headers of the W3C's trace context (https://www.w3.org/TR/trace-context/),
// which a message carries from whoever appends it to whoever reads it.
const (
	headerTraceParent = "traceparent"
	headerTraceState  = "tracestate"
)

// begin makes the context that a request runs under: its messages carry the
// request's headers, and where the node is traced it is a span of the trace
// that the headers name. end is called when the request is answered.
func (s *Server) begin(ctx context.Context, surface string, headers store.Headers) (running context.Context, end func(), err error) {
	if ctx, err = store.WithHeaders(ctx, headers); err != nil {
		return ctx, nil, err
	}
	if s.tracer == nil {
		return ctx, func() {}, nil
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(headers))
	ctx, span := s.tracer.Start(ctx, "tidemark.request", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("db.system.name", "tidemark"), attribute.String("tidemark.surface", surface)))
	return ctx, func() { span.End() }, nil
}

// traceHeaders are the trace context of an HTTP request; one that is malformed
// is none, as the standard has it.
func traceHeaders(r *http.Request) store.Headers {
	parent := r.Header.Get(headerTraceParent)
	if !traceParent.MatchString(parent) {
		return nil
	}
	headers := store.Headers{headerTraceParent: parent}
	if state := r.Header.Get(headerTraceState); state != "" && len(state) <= maxTraceState {
		headers[headerTraceState] = state
	}
	return headers
}

var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// maxTraceState is how long a tracestate the standard asks to be passed on.
const maxTraceState = 512

// headersOf reads the field headers of a request: an object of strings.
func headersOf(field value.Value) (headers store.Headers, ok bool) {
	fields, ok := field.AsObject()
	if !ok {
		return nil, false
	}
	headers = make(store.Headers, len(fields))
	for name, text := range fields {
		if headers[name], ok = text.AsString(); !ok {
			return nil, false
		}
	}
	return headers, true
}
