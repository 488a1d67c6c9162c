package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/backup"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/store"
)

func TestABackupIsStreamed(t *testing.T) {
	n := newNode(t, server.Limits{})
	n.post("/sql/shop/orders", `CREATE events = 'kept'`)
	status, body := n.get("/backup")
	if status != http.StatusOK {
		t.Fatalf("answers %d: %s", status, body)
	}
	header, held, err := backup.Check(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header.Engine != "memory" || held.Spaces != 2 || !strings.Contains(body, "kept") {
		t.Errorf("the backup has %+v %+v", header, held)
	}
}

func TestABackupThatTheNodeCannotFinishIsCutOff(t *testing.T) {
	n := newNode(t, server.Limits{})
	large := strings.Repeat("x", 1<<20)
	for range 16 {
		n.post("/sql/shop/orders", `CREATE events = '`+large+`'`)
	}
	response, err := n.http.Get("http://" + n.address + "/backup")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	// A second one is refused while the first is taken.
	if status, body := n.get("/backup"); status != http.StatusTooManyRequests || !strings.Contains(body, "one at a time") {
		t.Errorf("a second backup is answered %d: %s", status, body)
	}
	begun := make([]byte, 1<<10)
	if _, err := io.ReadFull(response.Body, begun); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.server.Shutdown(t.Context()) }()
	for refused := false; !refused; {
		ready, err := n.http.Get("http://" + n.address + "/ready")
		refused = err != nil
		if err == nil {
			refused = ready.StatusCode != http.StatusOK
			_ = ready.Body.Close()
		}
	}
	if _, err := io.Copy(io.Discard, response.Body); err == nil {
		t.Error("a backup that was cut off ends as if it were whole")
	}
	if err := <-ended; err != nil {
		t.Errorf("the node does not end while a backup is taken: %v", err)
	}
}

func TestAnExportIsStreamed(t *testing.T) {
	n := newNode(t, server.Limits{})
	n.post("/sql/shop/orders", `CREATE events = 'kept'`)
	for path, want := range map[string]string{
		"/export/shop/orders?format=statements": "INSERT INTO events [\n  'kept'\n];",
		"/export/shop/orders?format=json":       `"table":"events","value":"kept"}`,
		"/export/shop/none?format=json":         `"kind":"NotFound"`,
		"/export/shop/orders?format=xml":        `"kind":"InvalidClause"`,
	} {
		if _, body := n.get(path); !strings.Contains(body, want) {
			t.Errorf("%s answers %s, want %s in it", path, body, want)
		}
	}
}

func TestOnlyAnOwnerOfTheStoreTakesAllOfIt(t *testing.T) {
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := serveStore(t, s, server.Options{})
	n.post("/sql/shop/orders", `DEFINE USER 'root' ON STORE PASSWORD 'secret' ROLE owner`)
	for _, path := range []string{"/backup", "/export/shop/orders?format=json"} {
		if status, body := n.get(path); status != http.StatusUnauthorized {
			t.Errorf("%s answers a stranger %d: %s", path, status, body)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("root", "secret")
		response, err := n.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s answers the owner %s", path, response.Status)
		}
	}
}
