package call

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The headers of an event: the verb that published it, as module.verb, the
// request from outside that it is part of, and the W3C trace context
// (https://www.w3.org/TR/trace-context/).
const (
	HeaderCaller      = "caller"
	HeaderRequest     = "request"
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

// MaxRequestBytes bounds a request's id, and maxStateBytes a tracestate, so that
// the headers of an event stay within the store's bounds.
const (
	MaxRequestBytes = 128
	maxStateBytes   = 384
)

// Headers are those of an event that the call publishes.
func (c *Call) Headers(ctx context.Context) map[string]string {
	headers := propagation.MapCarrier{HeaderCaller: c.Name()}
	if c.Request != "" && len(c.Request) <= MaxRequestBytes {
		headers[HeaderRequest] = c.Request
	}
	propagation.TraceContext{}.Inject(ctx, headers)
	if len(headers[HeaderTracestate]) > maxStateBytes {
		delete(headers, HeaderTracestate)
	}
	return headers
}

// StartSpan begins the part of a trace that the call is: of the trace that
// headers name, or of a new one. end is called with what the verb returned.
// Spans go to the provider that the module's code has set (otel.SetTracerProvider);
// without one the trace's ids are passed on all the same.
func (c *Call) StartSpan(ctx context.Context, headers map[string]string, kind trace.SpanKind) (running context.Context, end func(error)) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(headers))
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, newTrace())
	}
	ctx, span := otel.Tracer("github.com/tidemarkdb/tidemark/ftl").Start(ctx, c.Name(), trace.WithSpanKind(kind))
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
		}
		span.End()
	}
}

// newTrace is a trace that nobody records.
func newTrace() trace.SpanContext {
	var config trace.SpanContextConfig
	_, _ = rand.Read(config.TraceID[:]) // It never fails.
	_, _ = rand.Read(config.SpanID[:])
	return trace.NewSpanContext(config)
}
