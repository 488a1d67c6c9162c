package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/value"
)

// The bounds of the ingress.
const (
	// MaxBodyBytes is how large a request's body may be.
	MaxBodyBytes = 1 << 20
	// MaxRequests is how many requests run at once; one more is answered 503.
	MaxRequests = 1024
	// headerTime is how long a client may take to send a request's head, and
	// idleTime how long a connection is kept that asks for nothing.
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
)

// headerRequest is the header of a request's id, taken where the caller gives
// one and answered always.
const headerRequest = "Request-Id"

// ingress serves a module's verbs over HTTP.
type ingress struct {
	module  *module
	process call.Surroundings
	server  *http.Server
	// slots holds a token for every request that runs.
	slots chan struct{}
}

// newIngress makes the ingress of a module. ctx is what the verbs' contexts
// hang on.
func newIngress(ctx context.Context, m *module, process call.Surroundings) *ingress {
	i := &ingress{module: m, process: process, slots: make(chan struct{}, MaxRequests)}
	mux := http.NewServeMux()
	for _, verb := range m.declared.Verbs {
		if verb.Ingress != nil {
			mux.HandleFunc(pattern(verb.Ingress), func(w http.ResponseWriter, r *http.Request) { i.serve(w, r, verb) })
		}
	}
	i.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(process.Log().Handler(), slog.LevelDebug),
	}
	return i
}

// pattern is a verb's ingress as the mux takes it, to which a path that ends with
// a slash is everything below it.
func pattern(at *schema.Ingress) string {
	if at.Path == "/" {
		return at.Method + " /{$}"
	}
	return at.String()
}

// serve runs a verb for a request.
func (i *ingress) serve(w http.ResponseWriter, r *http.Request, verb *schema.Verb) {
	id := r.Header.Get(headerRequest)
	if !isRequestID(id) {
		id = uuid.Must(uuid.NewV7()).String()
	}
	w.Header().Set(headerRequest, id)
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		answerRefusal(w, fault.New(fault.Unavailable, "%d requests run already; try again", MaxRequests))
		return
	}
	request, err := i.requestOf(r, verb)
	if err != nil {
		answerRefusal(w, err)
		return
	}
	result, err := i.run(r, verb, id, request)
	if err != nil {
		answerError(w, err)
		return
	}
	if verb.Response == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	text, err := result.AppendJSON(nil)
	if err != nil {
		answerError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

func (i *ingress) run(r *http.Request, verb *schema.Verb, id string, request value.Value) (value.Value, error) {
	c := &call.Call{Module: i.module.Name, Verb: verb.Name, Request: id, Surroundings: i.process}
	traced := map[string]string{call.HeaderTraceparent: r.Header.Get("traceparent"), call.HeaderTracestate: r.Header.Get("tracestate")}
	ctx, end := c.StartSpan(r.Context(), traced, trace.SpanKindServer)
	function := i.module.functions[verb.Name]
	result, _, err := call.Run(ctx, c, func(ctx context.Context) (value.Value, error) { return function.call(ctx, request) }, nil)
	end(err)
	if err != nil {
		logFailure(c, err)
	}
	return result, err
}

// isRequestID reports whether a caller's id may be taken: a few printable
// letters of ASCII.
func isRequestID(id string) bool {
	for _, r := range id {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return id != "" && len(id) <= call.MaxRequestBytes
}

// statuses are the HTTP statuses of what a verb refuses with; every other kind
// is a 400.
var statuses = map[fault.Kind]int{
	fault.NotFound:          http.StatusNotFound,
	fault.RecordExists:      http.StatusConflict,
	fault.AlreadyExists:     http.StatusConflict,
	fault.Conflict:          http.StatusConflict,
	fault.NotSignedIn:       http.StatusUnauthorized,
	fault.NotAllowed:        http.StatusForbidden,
	fault.TooLarge:          http.StatusRequestEntityTooLarge,
	fault.TopicRateExceeded: http.StatusTooManyRequests,
	fault.Unavailable:       http.StatusServiceUnavailable,
	fault.Timeout:           http.StatusGatewayTimeout,
	fault.Internal:          http.StatusInternalServerError,
}

// answerRefusal answers a request that was refused, by its shape or by the verb.
func answerRefusal(w http.ResponseWriter, err error) {
	known := fault.Of(err)
	answer := httpError{Kind: known.Kind, Message: known.Message}
	var field *fieldError
	if errors.As(err, &field) {
		answer.Field = field.field
	}
	status, ok := statuses[known.Kind]
	if !ok {
		status = http.StatusBadRequest
	}
	answer.write(w, status)
}

// answerError answers a verb that failed. The caller is told what the verb meant
// for it (ftl.Refuse), and of everything else only whether to try again: what it
// says is the log's.
func answerError(w http.ResponseWriter, err error) {
	var refusal *call.Refusal
	if errors.As(err, &refusal) {
		answerRefusal(w, &fieldError{refusal.Field, refusal.Fault})
		return
	}
	answer, status := httpError{Kind: fault.Internal}, http.StatusInternalServerError
	if kind := fault.Of(err).Kind; kind.Retriable() {
		answer.Kind, status = fault.Unavailable, http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	answer.Message = fmt.Sprintf("The verb failed; the module's log has the details under the request %s.", w.Header().Get(headerRequest))
	answer.write(w, status)
}

// httpError is the body of an answer that is none.
type httpError struct {
	Kind    fault.Kind `json:"kind"`
	Message string     `json:"message"`
	// Field is the field of the request that it is about.
	Field string `json:"field,omitempty"`
}

func (e httpError) write(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]httpError{"error": e})
}
