package server_test

import (
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/store"
)

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent = "00-" + traceID + "-00f067aa0ba902b7-01"
	inShop      = "USE NAMESPACE shop; USE DATABASE orders; "
)

func TestATraceContextTravelsFromWhoAppendsToWhoReads(t *testing.T) {
	n := newNode(t, server.Limits{})
	appends := []struct{ how, script string }{
		{"alone", "CREATE events = 'alone'"},
		{"under an identity", "CREATE events:'named' = 'named'"},
		{"in a transaction", "BEGIN; CREATE events = 'in a transaction'; COMMIT"},
	}
	for _, a := range appends {
		status, answer, _ := n.post("/sql", inShop+a.script, "traceparent", traceparent, "tracestate", "vendor=1")
		if status != http.StatusOK || strings.Contains(answer, `"ok":false`) {
			t.Fatalf("%s: %d %s", a.how, status, answer)
		}
	}
	n.post("/sql", inShop+"CREATE events = 'without'")
	n.post("/sql", inShop+"CREATE events = 'malformed'", "traceparent", "00-nothing")
	s := n.open("tidemark.json")
	// Pipelined appends take another way than one that is alone.
	s.send(`[{"id":1,"sql":"CREATE events = 'of a frame'","headers":{"traceparent":"` + traceparent + `","caller":"payments.payin"}},{"id":2,"sql":"CREATE events = 'beside it'"}]`)
	s.receive()
	_, answer, _ := n.post("/sql", inShop+"READ FROM events")
	answer = generated.ReplaceAllString(answer, "u''")
	carried := `{"headers":{"traceparent":"` + traceparent + `","tracestate":"vendor=1"},`
	for _, wanted := range []string{
		carried + `"id":"events:u''","position":1,"value":"alone"}`,
		carried + `"id":"events:'named'","position":2,"value":"named"}`,
		carried + `"id":"events:u''","position":3,"value":"in a transaction"}`,
		`{"id":"events:u''","position":4,"value":"without"}`,
		`{"id":"events:u''","position":5,"value":"malformed"}`,
		`{"headers":{"caller":"payments.payin","traceparent":"` + traceparent + `"},"id":"events:u''","position":6,"value":"of a frame"}`,
		`{"id":"events:u''","position":7,"value":"beside it"}`,
	} {
		if !strings.Contains(answer, wanted) {
			t.Errorf("READ lacks %s:\n%s", wanted, answer)
		}
	}
}

func TestADeadLetterCarriesTheHeadersOfItsMessage(t *testing.T) {
	n := newNode(t, server.Limits{})
	n.post("/sql", inShop+"DEFINE TOPIC dead; DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s DELIVERIES 3 DEAD LETTER TO dead; CREATE events = 1", "traceparent", traceparent)
	_, answer, _ := n.post("/sql", inShop+"READ FROM events FOR CONSUMER 'g'; REJECT events FOR CONSUMER 'g' AT 1; READ FROM dead")
	if got := strings.Count(answer, traceparent); got != 2 {
		t.Errorf("the message and its dead letter show the trace context %d times:\n%s", got, answer)
	}
}

func TestAStrangersMessageCarriesNoHeaders(t *testing.T) {
	n := newNode(t, server.Limits{})
	n.post("/sql", inShop+"DEFINE TOPIC signups MAX BYTES 100 PUBLIC RATE 60 PER 1m; DEFINE USER 'root' ON STORE PASSWORD 'correct horse' ROLE owner")
	_, answer, _ := n.post("/sql", inShop+"CREATE signups = 'hello'", "traceparent", traceparent)
	if !strings.Contains(answer, `"value":"hello"`) || strings.Contains(answer, "headers") {
		t.Errorf("a stranger is answered %s", answer)
	}
}

func TestHeadersPastTheirBoundsAreRefusedAndNothingRuns(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.open("tidemark.json")
	many := make([]string, 17)
	for i := range many {
		many[i] = `"` + strings.Repeat("h", i+1) + `":""`
	}
	for _, c := range []struct{ headers, refusal string }{
		{`{"a":"` + strings.Repeat("x", 1024) + `"}`, "the headers of a message take 1025 bytes; 1024 are the limit"},
		{`{` + strings.Join(many, ",") + `}`, "17 headers of a message; 16 are the limit"},
		{`{"":"x"}`, "has no name"},
		{`{"a":1}`, "the field headers of a request cannot be"},
		{`"traceparent"`, "the field headers of a request cannot be"},
	} {
		s.send(`{"id":1,"sql":"CREATE events = 1","headers":` + c.headers + `}`)
		if answer := s.receive(); !strings.Contains(answer, `"ok":false`) || !strings.Contains(answer, c.refusal) {
			t.Errorf("headers %.40s: want %q, got %s", c.headers, c.refusal, answer)
		}
	}
	s.send(`{"id":2,"sql":"READ FROM events"}`)
	want(t, "what was appended", s.receive(), `{"id":2,"answers":[{"ok":true,"answer":[]}]}`)
}

func TestARequestIsASpanOfItsCallersTrace(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))).Tracer("test")
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := store.Open(t.Context(), e, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := serveStore(t, opened, server.Options{Tracer: tracer})
	n.post("/sql", inShop+"CREATE events = 1", "traceparent", traceparent)
	n.post("/sql", inShop+"CREATE events = 2")
	s := n.open("tidemark.json")
	s.send(`[{"id":1,"sql":"CREATE events = 3","headers":{"traceparent":"` + traceparent + `"}},{"id":2,"sql":"CREATE events = 4"},{"id":3,"sql":"READ FROM events","headers":{"traceparent":"` + traceparent + `"}}]`)
	for range 3 {
		if strings.Contains(s.receive(), `"id":3`) {
			break
		}
	}
	n.await("three spans", func() bool { return len(recorder.Ended()) == 3 })
	for _, span := range recorder.Ended() {
		if span.Parent().TraceID().String() != traceID || span.SpanKind() != trace.SpanKindServer {
			t.Errorf("span %s is of trace %s", span.Name(), span.Parent().TraceID())
		}
	}
}
