package server_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/store"
)

func TestModulesAreServedToOwnersOfTheStore(t *testing.T) {
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	modules := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "modules "+r.URL.Path) })
	n := serveStore(t, s, server.Options{Modules: modules})
	ask := func(user string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.address+"/ftl/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			request.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":secret")))
		}
		response, err := n.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	if status, body := ask(""); status != http.StatusOK || body != "modules /ftl/status" {
		t.Errorf("without an owner: %d %s", status, body)
	}
	n.post("/sql", `DEFINE USER 'guest' ON STORE PASSWORD 'secret' ROLE viewer; DEFINE USER 'boss' ON STORE PASSWORD 'secret' ROLE owner;`)
	for _, c := range []struct {
		user string
		want int
	}{{"", http.StatusUnauthorized}, {"guest", http.StatusForbidden}, {"boss", http.StatusOK}} {
		if status, body := ask(c.user); status != c.want {
			t.Errorf("'%s' is answered %d: %s", c.user, status, body)
		}
	}
}
