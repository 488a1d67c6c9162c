package spec_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/remote"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// node serves a script's store while it is open.
type node struct {
	t       *testing.T
	server  *server.Server
	address string
	served  chan error
}

func (n *node) serve(s *store.Store) {
	srv, err := server.New(server.Options{Store: s, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		n.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	n.server, n.address, n.served = srv, listener.Addr().String(), make(chan error, 1)
	go func() { n.served <- srv.Serve(listener) }()
}

func (n *node) stop() {
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	if err := n.server.Shutdown(ctx); err != nil {
		n.t.Errorf("the node does not shut down: %v", err)
	}
	if err := <-n.served; err != nil && !errors.Is(err, http.ErrServerClosed) {
		n.t.Error(err)
	}
}

// dial opens a caller's session.
func (n *node) dial(namespace, database string) running {
	s, err := remote.Dial(context.Background(), "ws://"+n.address, client.Options{Namespace: namespace, Database: database})
	if err != nil {
		n.t.Fatalf("a caller arrives in %s %s: %v", namespace, database, err)
	}
	return s
}
