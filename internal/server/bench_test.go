package server_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// BenchmarkPipelinedAppends appends over one WebSocket, 4,096 deep, on a folder
// with fsync.
func BenchmarkPipelinedAppends(b *testing.B) {
	remote, err := client.Connect(b.Context(), serveOnDisk(b), client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = remote.Close() }()
	db, err := remote.Database(b.Context(), "n", "d")
	if err != nil {
		b.Fatal(err)
	}
	topic := db.Topic("events")
	message := value.Fields(value.Object{"text": value.String(string(make([]byte, 100)))})
	outstanding := make(chan struct{}, 4096)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		outstanding <- struct{}{}
		err := topic.AppendAsync(b.Context(), message, func(_ client.Message, _ bool, err error) {
			if err != nil {
				b.Error(err)
			}
			<-outstanding
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for range cap(outstanding) {
		outstanding <- struct{}{}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}

// BenchmarkFollow pushes a topic that is there already.
func BenchmarkFollow(b *testing.B) {
	s, err := client.Dial(b.Context(), serveOnDisk(b), client.Options{Namespace: "n", Database: "d"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	rows := make([]value.Value, 1000)
	for i := range rows {
		rows[i] = value.Fields(value.Object{"text": value.String(string(make([]byte, 100)))})
	}
	for sent := 0; sent < b.N; sent += len(rows) {
		if _, err := s.Run(b.Context(), `INSERT INTO events $rows`, map[string]value.Value{"rows": value.Array(rows...)}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	subscription, err := s.Follow(b.Context(), `FOLLOW events AFTER 0`, nil, 16_384)
	if err != nil {
		b.Fatal(err)
	}
	for got := 0; got < b.N; {
		pushed, err := subscription.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		got += len(pushed.Messages)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	subscription.Close()
}

// serveOnDisk serves a store in a folder, and returns where.
func serveOnDisk(b *testing.B) (url string) {
	b.Helper()
	e, err := pebble.Open(b.TempDir(), pebble.Options{})
	if err != nil {
		b.Fatal(err)
	}
	st, err := store.Open(b.Context(), e, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	srv, err := server.New(server.Options{Store: st, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = srv.Serve(listener) }()
	caller := session.New(st, session.Options{})
	if _, err := caller.Run(b.Context(), `DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE d; USE DATABASE d; DEFINE TOPIC events`, nil); err != nil {
		b.Fatal(err)
	}
	caller.Close()
	b.Cleanup(func() {
		_ = srv.Shutdown(context.Background())
		_ = st.Close()
	})
	return "ws://" + listener.Addr().String()
}
