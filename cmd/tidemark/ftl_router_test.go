package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

func TestARequestBeforeAModuleServesIsToldToComeAgain(t *testing.T) {
	payments, err := schema.ParseModule("module payments { verb pay() { +ingress http POST /payment } }")
	if err != nil {
		t.Fatal(err)
	}
	r := newRouter()
	t.Cleanup(func() { r.end(t.Context()) })
	early(t, r, "the modules are being built for the first time")
	if err := r.serve([]*schema.Module{payments}); err != nil {
		t.Fatal(err)
	}
	early(t, r, "module payments is being started for the first time")

	file, err := r.socketOf("payments")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	module := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})}}
	module.Start()
	t.Cleanup(module.Close)
	r.serves("payments")
	if answer := post(r); answer.Code != http.StatusNoContent {
		t.Errorf("once the module serves it answers %d: %s", answer.Code, answer.Body)
	}
}

// early checks that a request is refused for now, with a sentence.
func early(t *testing.T, r *router, sentence string) {
	t.Helper()
	answer := post(r)
	var refused struct {
		Error struct{ Kind, Message string }
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &refused); err != nil {
		t.Errorf("%s: %v", answer.Body, err)
	}
	if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") != "1" ||
		refused.Error.Kind != "Unavailable" || !strings.HasPrefix(refused.Error.Message, sentence) {
		t.Errorf("it answers %d, %v, %s; want 503, Retry-After 1, Unavailable and %q", answer.Code, answer.Header(), answer.Body, sentence)
	}
}

func post(r *router) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	r.server.Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/payment", nil))
	return answer
}
