package call_test

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/ftl/internal/call"
)

func HTTPVerb(context.Context) error { return nil }

// declared is where a package variable's initializer calls.
var declared = call.Caller(0)

func TestAFunctionIsKnownByItsPackageItsFileAndItsVerb(t *testing.T) {
	f := call.FunctionOf(HTTPVerb)
	if f.Package != "github.com/tidemarkdb/tidemark/ftl/internal/call_test" || f.Name != "HTTPVerb" || f.Verb() != "httpVerb" || !strings.HasSuffix(f.File, "call_test.go") {
		t.Errorf("it is %+v, verb %s", f, f.Verb())
	}
	if declared.Package != f.Package || declared.File != f.File {
		t.Errorf("a variable is declared in %+v, want %+v", declared, f.Place)
	}
}

func TestACallContinuesItsTraceAndHeadersStayWithinTheStoresBounds(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	c := &call.Call{Module: "shop", Verb: strings.Repeat("v", 100), Request: strings.Repeat("r", call.MaxRequestBytes)}
	ctx, end := c.StartSpan(t.Context(), map[string]string{
		call.HeaderTraceparent: "00-" + id + "-00f067aa0ba902b7-01",
		call.HeaderTracestate:  "vendor=" + strings.Repeat("x", 250) + ",other=" + strings.Repeat("y", 250),
	}, trace.SpanKindConsumer)
	defer end(nil)
	headers, size := c.Headers(ctx), 0
	for name, text := range headers {
		size += len(name) + len(text)
	}
	if !strings.Contains(headers[call.HeaderTraceparent], id) || size > 1024 {
		t.Errorf("%d bytes of headers: %v", size, headers)
	}
	fresh, end := c.StartSpan(t.Context(), nil, trace.SpanKindServer)
	defer end(nil)
	if !trace.SpanContextFromContext(fresh).IsValid() {
		t.Error("a call without a trace does not begin one")
	}
}
