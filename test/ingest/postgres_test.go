package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// nodeURL and nodeSchema, in the environment, make this test binary a node
// that shares a store on PostgreSQL and does nothing but run its consumers.
const (
	nodeURL    = "TIDEMARK_TEST_NODE_URL"
	nodeSchema = "TIDEMARK_TEST_NODE_SCHEMA"
)

// runSharedNode runs the declared consumers until the process is killed.
func runSharedNode(url, schema string) error {
	s, err := openShared(context.Background(), url, schema)
	if err != nil {
		return err
	}
	ingest.Start(s, ingest.Options{Log: slog.New(slog.DiscardHandler)})
	fmt.Println("ready")
	select {}
}

func openShared(ctx context.Context, url, schema string) (*store.Store, error) {
	e, err := postgres.Open(ctx, postgres.Options{URL: url, Schema: schema})
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, e, store.Options{Log: slog.New(slog.DiscardHandler)})
}

func TestThreeNodesOnPostgreSQLShareTheWorkAndGoOnWhenOneDies(t *testing.T) {
	url, schema := postgrestest.Shared(t).URL(), postgrestest.Schema()
	s, err := openShared(t.Context(), url, schema)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	caller := session.New(s, session.Options{})
	defer caller.Close()
	run(t, caller, declarations)
	start := func() *nodetest.Process {
		return startNodeIn(t, nodeURL+"="+url, nodeSchema+"="+schema)
	}
	nodes := []*nodetest.Process{start(), start(), start()}

	k := 0
	appendOne := func() {
		k++
		run(t, caller, fmt.Sprintf("CREATE events = { k: %d }", k))
	}
	waitApplied := func() time.Duration {
		started := time.Now()
		nodetest.Eventually(t, 30*time.Second, func() bool {
			return text(t, run(t, caller, fmt.Sprintf("SELECT k FROM rows:%d", k))) != "[]"
		}, "message %d is applied", k)
		return time.Since(started)
	}
	for range 4 {
		for range 25 {
			appendOne()
		}
		victim := rand.IntN(len(nodes))
		nodes[victim].Kill()
		appendOne()
		if took := waitApplied(); took > 5*time.Second {
			t.Errorf("consumption went on %s after a node's death", took)
		}
		nodes[victim] = start()
	}
	seen := map[int64]string{}
	compare(t, caller, seen)
	if len(seen) != k {
		t.Fatalf("%d messages made %d records", k, len(seen))
	}
	for i := int64(2); i <= int64(k); i++ {
		if seen[i-1] >= seen[i] {
			t.Fatalf("message %d was applied after message %d", i-1, i)
		}
	}
}

// sharedNode reports whether this process is to be a node on PostgreSQL.
func sharedNode() (url, schema string, ok bool) {
	url, ok = os.LookupEnv(nodeURL)
	return url, os.Getenv(nodeSchema), ok
}
