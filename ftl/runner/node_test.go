package runner

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// fakeNode is a store that is served, whose dispatcher is the test itself.
type fakeNode struct {
	*testing.T
	url string
	// conns are the runners' connections, as they come.
	conns chan *ftlwire.Conn
	// database is the one that modules are deployed in.
	database *client.Database
}

func newNode(t *testing.T) *fakeNode {
	t.Helper()
	engine, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), engine, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	served, err := server.New(server.Options{Store: s, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	n := &fakeNode{T: t, conns: make(chan *ftlwire.Conn, 10)}
	mux := http.NewServeMux()
	mux.Handle("/", served.Handler())
	// A runner that connects again may not be accepted before its test ends.
	over, connected := make(chan struct{}), sync.WaitGroup{}
	mux.HandleFunc(ftlwire.Path, func(w http.ResponseWriter, r *http.Request) {
		connected.Add(1)
		defer connected.Done()
		conn, _, err := ftlwire.Accept(w, r, time.Minute)
		if err != nil {
			return
		}
		conn.Send(ftlwire.Frame{Welcome: &ftlwire.Welcome{Node: "fake"}})
		n.conns <- conn
		select {
		case <-conn.Ended():
		case <-over:
			conn.CloseNow()
			<-conn.Ended()
		}
	})
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		_ = served.Shutdown(ctx)
		close(over)
		web.Close()
		connected.Wait()
	})
	n.url = "ws" + strings.TrimPrefix(web.URL, "http")
	opened, err := client.Connect(t.Context(), n.url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	if n.database, err = opened.Database(t.Context(), ftlwire.Namespace, ftlwire.DefaultDatabase); err != nil {
		t.Fatal(err)
	}
	return n
}

// define defines what a test needs in the store.
func (n *fakeNode) define(script string) {
	n.Helper()
	if _, err := n.database.Exec(n.Context(), script, nil); err != nil {
		n.Fatal(err)
	}
}

// count is how many rows a statement answers.
func (n *fakeNode) count(statement string) int {
	n.Helper()
	rows, err := n.database.Query(n.Context(), statement, nil)
	if err != nil {
		n.Fatal(err)
	}
	return rows.Len()
}

// accept waits for the runner's connection.
func (n *fakeNode) accept() *peer {
	n.Helper()
	select {
	case conn := <-n.conns:
		n.Cleanup(conn.CloseNow)
		return &peer{n, conn}
	case <-time.After(10 * time.Second):
		n.Fatal("the runner did not connect")
		return nil
	}
}

// peer is the node's side of a connection.
type peer struct {
	*fakeNode
	conn *ftlwire.Conn
}

// call sends a call of a sink, a mapper or a catch verb with an event.
func (p *peer) call(id uint64, kind ftlwire.Kind, verb, event string) *ftlwire.Call {
	p.Helper()
	v, err := value.ParseJSON([]byte(event))
	if err != nil {
		p.Fatal(err)
	}
	encoded, err := v.AppendCBOR(nil)
	if err != nil {
		p.Fatal(err)
	}
	headers, err := value.Fields(value.Object{"caller": value.String("shop.buy"), "request": value.String("r-1")}).AppendCBOR(nil)
	if err != nil {
		p.Fatal(err)
	}
	c := &ftlwire.Call{
		ID: id, Kind: kind, Verb: verb, Subscription: "handling", Group: "shop.handling", Topic: "shop_orders",
		Position: 1, Delivery: 1, Attempt: 1, Event: encoded, Headers: headers,
	}
	return c
}

func (p *peer) send(c *ftlwire.Call) { p.conn.Send(ftlwire.Frame{Call: c}) }

// receive waits for the next frame.
func (p *peer) receive() ftlwire.Frame {
	p.Helper()
	ctx, done := context.WithTimeout(p.Context(), 10*time.Second)
	defer done()
	frame, err := p.conn.Receive(ctx)
	if err != nil {
		p.Fatalf("the runner left: %v", err)
	}
	return frame
}

// done waits for the outcome of a call.
func (p *peer) done(id uint64) *ftlwire.Done {
	p.Helper()
	frame := p.receive()
	if frame.Done == nil || frame.Done.ID != id {
		p.Fatalf("received %+v, want the outcome of %d", frame, id)
	}
	return frame.Done
}

// leave waits until the runner has closed the connection.
func (p *peer) leave() {
	p.Helper()
	ctx, done := context.WithTimeout(p.Context(), 10*time.Second)
	defer done()
	if frame, err := p.conn.Receive(ctx); err == nil || ctx.Err() != nil {
		p.Fatalf("the runner stays: %+v, %v", frame, err)
	}
}
