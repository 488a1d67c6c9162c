package server_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// The soak is short by default; -soak.sessions 1000 -soak.time 1m is the long one.
var (
	soakSessions = flag.Int("soak.sessions", 200, "how many sessions soak a node at once")
	soakTime     = flag.Duration("soak.time", 3*time.Second, "how long they do")
)

// What a soak may have grown by at its end, from what it had after its first
// third, when every pool and cache is filled. Nobody is connected at either
// moment. The heap is what the garbage collector leaves of it; the resident
// size is rougher, for the collector gives pages back as it sees fit.
const (
	soakHeapGrowth      = 8 << 20
	soakResidentGrowth  = 64 << 20
	soakGoroutineGrowth = 10
)

// footprint is what a process takes when nobody is connected.
type footprint struct {
	heap, resident int64
	goroutines     int
}

func (f footprint) String() string {
	return fmt.Sprintf("heap %.1f MiB, resident %.1f MiB, %d goroutines", float64(f.heap)/(1<<20), float64(f.resident)/(1<<20), f.goroutines)
}

// residentSize is how many bytes of memory this process has; 0 where that tells
// nothing.
var residentSize = func() (int64, error) { return 0, nil }

// footprint waits until every session has ended, and measures.
func (n *node) footprint() (f footprint) {
	n.Helper()
	n.await("every session has ended", func() bool { return n.metric("tidemark_sessions") == "0" })
	if waiting := n.metric("tidemark_waiting_reads"); waiting != "0" {
		n.Errorf("%s reads still wait", waiting)
	}
	n.http.CloseIdleConnections()
	debug.FreeOSMemory() // It collects first; a second time, what finalizers let go.
	debug.FreeOSMemory()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	f.heap, f.goroutines = int64(memory.HeapAlloc), runtime.NumGoroutine()
	var err error
	if f.resident, err = residentSize(); err != nil {
		n.Fatal(err)
	}
	return f
}

func TestASoakOfSessionsLeavesNothingBehind(t *testing.T) {
	begun := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, begun) }) // The last of all, when the node is gone.
	e, err := pebble.Open(t.TempDir(), pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := serveStore(t, s, server.Options{Limits: server.Limits{Sessions: 2 * *soakSessions, SessionsPerAddress: 2 * *soakSessions, WaitingReads: 2 * *soakSessions}})
	// What is kept must not grow, so that nothing else does.
	n.post("/sql/shop/orders", "ALTER TOPIC events RETAIN BYTES 1000000")
	const thirds = 3
	var after [thirds]footprint
	for third := range thirds {
		sessions := n.soakFor(*soakTime / thirds)
		after[third] = n.footprint()
		t.Logf("after %d thirds: %s; %d sessions in this", third+1, after[third], sessions)
	}
	first, last := after[0], after[thirds-1]
	if last.heap > first.heap+soakHeapGrowth || last.resident > first.resident+soakResidentGrowth || last.goroutines > first.goroutines+soakGoroutineGrowth {
		t.Errorf("after the first third: %s\nat the end: %s\nwhich is more than it may grow: %d bytes of heap, %d resident, %d goroutines",
			first, last, soakHeapGrowth, soakResidentGrowth, soakGoroutineGrowth)
	}
}

// soakFor has sessions come and go, so many at once, and returns how many came.
func (n *node) soakFor(length time.Duration) int64 {
	n.Helper()
	until := time.Now().Add(length)
	var sessions atomic.Int64
	var all sync.WaitGroup
	for i := range *soakSessions {
		all.Go(func() {
			for round := 0; time.Now().Before(until); round++ {
				if err := soak(n.Context(), n.address, i, round); err != nil {
					n.Errorf("session %d: %v", i, err)
					return
				}
				sessions.Add(1)
			}
		})
	}
	all.Wait()
	return sessions.Load()
}

// soak is the life of one session: it appends, reads, follows, leaves a
// transaction open, and leaves politely or not.
func soak(ctx context.Context, address string, i, round int) error {
	s, err := client.Dial(ctx, "ws://"+address, client.Options{Namespace: "shop", Database: "orders"})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	followed, err := s.Follow(ctx, "FOLLOW events", nil, 5)
	if err != nil {
		return err
	}
	var calls []*client.Call
	for range 20 {
		calls = append(calls, s.Start("CREATE events = $v", map[string]value.Value{"v": value.Int(int64(i))}))
	}
	for _, call := range calls {
		if answers, err := call.Wait(ctx); err != nil || answers[0].Err != nil {
			return fmt.Errorf("an append: %w %v", err, answers)
		}
	}
	if _, err := followed.Next(ctx); err != nil {
		return err
	}
	if round%2 == 0 {
		followed.Close()
	}
	_, err = s.Run(ctx, "BEGIN; CREATE things = { }", nil)
	return err
}
