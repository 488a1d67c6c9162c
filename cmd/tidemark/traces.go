package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/internal/session"
)

// flushTime is how long the last spans may take to be sent when the node ends.
const flushTime = 3 * time.Second

// openTracer makes the tracer that sends spans to an OTLP endpoint over HTTP,
// nil where there is no URL, and what sends the last of them.
func openTracer(ctx context.Context, url string) (tracer trace.Tracer, flush func(), err error) {
	if url == "" {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url))
	if err != nil {
		return nil, nil, fmt.Errorf("--otlp %s: %w", url, err)
	}
	provider := sdktrace.NewTracerProvider(
		// A trace is recorded where its caller records it; the node begins none.
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())),
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "tidemark"), attribute.String("service.version", session.Version))),
	)
	return provider.Tracer("github.com/tidemarkdb/tidemark"), func() {
		ctx, done := context.WithTimeout(context.Background(), flushTime)
		defer done()
		// What cannot be sent any more is lost, and only to who watches.
		_ = errors.Join(provider.ForceFlush(ctx), provider.Shutdown(ctx))
	}, nil
}
