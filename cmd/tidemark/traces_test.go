package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/propagation"
)

func TestSpansAreSentToTheCollectorThatTheURLNames(t *testing.T) {
	for _, c := range []struct{ given, posted string }{
		{"", "/v1/traces"}, {"/", "/v1/traces"}, {"/in/here", "/in/here"},
	} {
		t.Run("with the path "+c.given, func(t *testing.T) {
			posted := make(chan string, 1)
			collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { posted <- r.Method + " " + r.URL.Path }))
			defer collector.Close()
			record(t, collector.URL+c.given, slog.New(slog.DiscardHandler))
			if got := <-posted; got != "POST "+c.posted {
				t.Errorf("spans are sent by %s", got)
			}
		})
	}
}

func TestSpansThatCannotBeSentAreToldInTheLog(t *testing.T) {
	collector := httptest.NewServer(http.NotFoundHandler())
	defer collector.Close()
	var said lockedBuffer
	record(t, collector.URL, slog.New(slog.NewJSONHandler(&said, nil)))
	if !strings.Contains(said.String(), `"level":"WARN","msg":"spans could not be sent"`) || !strings.Contains(said.String(), "404") {
		t.Errorf("the log says %s", said.String())
	}
}

// record makes a span of a trace that its caller records, and sends it.
func record(t *testing.T, url string, log *slog.Logger) {
	t.Helper()
	tracer, flush, err := openTracer(t.Context(), url, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	_, span := tracer.Start(ctx, "request")
	span.End()
	flush()
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestAnOTLPSettingThatNamesNoCollectorIsRefused(t *testing.T) {
	for _, url := range []string{"notaurl", "127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://", "http://%zz"} {
		_, _, err := openTracer(t.Context(), url, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "--otlp") || !strings.Contains(err.Error(), "http://127.0.0.1:4318") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
