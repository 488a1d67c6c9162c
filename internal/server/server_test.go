package server_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// Nothing that a test began may be left when all have ended: no session, no
// subscription, no goroutine of either.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server of a store in memory with the database shop/orders and the
// topic events in it.
type node struct {
	*testing.T
	server  *server.Server
	store   *store.Store
	address string
	http    *http.Client
	served  chan error
}

func newNode(t *testing.T, limits server.Limits) *node {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return serveStore(t, s, server.Options{Limits: limits})
}

func serveStore(t *testing.T, s *store.Store, options server.Options) *node {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("the store did not close: %v", err)
		}
	})
	caller := session.New(s, session.Options{})
	defer caller.Close()
	answers, err := caller.Run(t.Context(), `DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE orders; USE DATABASE orders;
		DEFINE TOPIC events; DEFINE COLLECTION things`, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		if answer.Err != nil {
			t.Fatal(answer.Err)
		}
	}
	return serveAgain(t, s, options)
}

// serveAgain serves a store by one more server.
func serveAgain(t *testing.T, s *store.Store, options server.Options) *node {
	t.Helper()
	options.Store, options.Log = s, slog.New(slog.DiscardHandler)
	srv, err := server.New(options)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, server: srv, store: s, address: listener.Addr().String(), served: make(chan error, 1)}
	transport := &http.Transport{}
	n.http = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	go func() { n.served <- srv.Serve(listener) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("the server did not shut down: %v", err)
		}
	})
	return n
}

// post sends a request to a path and returns its status and body.
func (n *node) post(path, body string, headers ...string) (status int, answer string, header http.Header) {
	n.Helper()
	request, err := http.NewRequestWithContext(n.Context(), http.MethodPost, "http://"+n.address+path, strings.NewReader(body))
	if err != nil {
		n.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := n.http.Do(request)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		n.Fatal(err)
	}
	return response.StatusCode, string(read), response.Header
}

func (n *node) get(path string) (status int, body string) {
	n.Helper()
	response, err := n.http.Get("http://" + n.address + path)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		n.Fatal(err)
	}
	return response.StatusCode, string(read)
}

// socket is a WebSocket whose frames a test writes and reads itself.
type socket struct {
	*testing.T
	conn *websocket.Conn
}

// open opens a WebSocket in shop/orders.
func (n *node) open(subprotocols ...string) *socket {
	n.Helper()
	conn, _, err := websocket.Dial(n.Context(), "ws://"+n.address+"/ws?namespace=shop&database=orders", &websocket.DialOptions{Subprotocols: subprotocols})
	if err != nil {
		n.Fatal(err)
	}
	conn.SetReadLimit(-1)
	n.Cleanup(func() { _ = conn.CloseNow() })
	return &socket{n.T, conn}
}

func (s *socket) send(frame string) {
	s.Helper()
	if err := s.conn.Write(s.Context(), websocket.MessageText, []byte(frame)); err != nil {
		s.Fatal(err)
	}
}

func (s *socket) receive() string {
	s.Helper()
	ctx, done := context.WithTimeout(s.Context(), 10*time.Second)
	defer done()
	_, frame, err := s.conn.Read(ctx)
	if err != nil {
		s.Fatal(err)
	}
	return string(frame)
}

// wantClosed waits until the node has closed the connection, with a status and
// a reason that holds a text.
func (s *socket) wantClosed(status websocket.StatusCode, reason string) {
	s.Helper()
	ctx, done := context.WithTimeout(s.Context(), 10*time.Second)
	defer done()
	for {
		_, frame, err := s.conn.Read(ctx)
		if err == nil {
			s.Logf("still comes: %s", frame)
			continue
		}
		if websocket.CloseStatus(err) != status || !strings.Contains(err.Error(), reason) {
			s.Fatalf("want the node to close with %d %q, got %v", status, reason, err)
		}
		return
	}
}

// want compares what came with what was wanted.
func want(t *testing.T, what, got, wanted string) {
	t.Helper()
	if got != wanted {
		t.Fatalf("%s\nwant %s\ngot  %s", what, wanted, got)
	}
}

// dial opens a client's session in shop/orders.
func (n *node) dial() *client.Session {
	n.Helper()
	s, err := client.Dial(n.Context(), "ws://"+n.address, client.Options{Namespace: "shop", Database: "orders"})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = s.Close() })
	return s
}

// run runs statements that must all answer ok, and returns the last answer.
func run(t *testing.T, s *client.Session, script string, params map[string]value.Value) client.Answer {
	t.Helper()
	answers, err := s.Run(t.Context(), script, params)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		if answer.Err != nil {
			t.Fatalf("%s: %v", script, answer.Err)
		}
	}
	return answers[len(answers)-1]
}

func wantKind(t *testing.T, err *fault.Error, kind fault.Kind, holds string) {
	t.Helper()
	if err == nil || err.Kind != kind || !strings.Contains(err.Message, holds) {
		t.Fatalf("want %s: …%s…, got %v", kind, holds, err)
	}
}
