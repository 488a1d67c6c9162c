package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/internal/session"
)

// flushTime is how long the last spans may take to be sent when the node ends.
const flushTime = 3 * time.Second

// openTracer makes the tracer that sends spans to an OTLP collector over HTTP,
// nil where there is no URL, and what sends the last of them. What cannot be sent
// is told in the log.
func openTracer(ctx context.Context, collector string, log *slog.Logger) (tracer trace.Tracer, flush func(), err error) {
	if collector == "" {
		return nil, func() {}, nil
	}
	endpoint, err := spansEndpoint(collector)
	if err != nil {
		return nil, nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("--otlp %s: %w", collector, err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("spans could not be sent", slog.Any("reason", err))
	}))
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
		if err := errors.Join(provider.ForceFlush(ctx), provider.Shutdown(ctx)); err != nil {
			otel.Handle(err)
		}
	}, nil
}

// spansEndpoint is where a collector takes spans: at its URL, or where that has
// no path, at the one that OTLP over HTTP has for them
// (https://opentelemetry.io/docs/specs/otlp/#otlphttp-request).
func spansEndpoint(collector string) (string, error) {
	u, err := url.Parse(collector)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("--otlp takes the URL of a collector, as http://127.0.0.1:4318, not %q", collector)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}
