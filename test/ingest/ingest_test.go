// Package ingest tests declared consumers as whole processes that are killed.
package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// nodeFolder, in the environment, makes this test binary a node: it opens the
// store in that folder and appends until it is killed.
const nodeFolder = "TIDEMARK_TEST_NODE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(nodeFolder); dir != "" {
		if err := runNode(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if url, schema, ok := sharedNode(); ok {
		if err := runSharedNode(url, schema); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	postgrestest.Main(m)
}

// runNode appends one message after the other, each with the next number as
// its identity, while the declared consumer reads them.
func runNode(dir string) error {
	ctx := context.Background()
	opened, err := tidemark.Open(dir, tidemark.WithLog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	db, err := opened.Database(ctx, "shop", "main")
	if err != nil {
		return err
	}
	rows, err := db.Query(ctx, "INFO FOR TOPIC events", nil)
	if err != nil {
		return err
	}
	var info struct {
		Last int64 `json:"last"`
	}
	if err := rows.Scan(&info); err != nil {
		return err
	}
	fmt.Println("ready")
	for k := info.Last + 1; ; k++ {
		if _, err := db.Exec(ctx, "CREATE events = { k: $k }", tidemark.Params{"k": k}); err != nil {
			return err
		}
	}
}

// declarations are a topic and a table that stamps what it is given: each
// record carries a new uuid of the moment at which it was written, so writing
// one twice shows, and so does the order. Its ASSERT refuses about one write
// in seven, at random.
const declarations = `
	DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE main; USE DATABASE main;
	DEFINE TOPIC events; DEFINE TOPIC dead;
	DEFINE TABLE rows (k int ASSERT (now() - d'2026-01-01T00:00:00Z') - (now() - d'2026-01-01T00:00:00Z') / 7 * 7 != 0s,
		written uuid DEFAULT uuid());
	DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s IN FLIGHT 1 DELIVERIES 1000 DEAD LETTER TO dead;
	DEFINE TOPIC CONSUMER c FROM events GROUP 'g' INTO rows IDENTITY k MAP k AS k ON FAILURE quarantine PARALLELISM 2;`

func TestEveryMessageIsAppliedExactlyOnceAndInOrderWhereverTheNodeIsKilled(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	dir := t.TempDir()
	observe(t, dir, func(s *session.Session) { run(t, s, declarations) })
	seen := map[int64]string{}
	for range rounds {
		killAfter(t, dir, rand.N(300*time.Millisecond))
		observe(t, dir, func(s *session.Session) { compare(t, s, seen) })
	}

	opened, err := tidemark.Open(dir, tidemark.WithLog(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	db, err := opened.Database(t.Context(), "shop", "main")
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Last   int64 `json:"last"`
		Groups map[string]struct {
			Committed    int64 `json:"committed"`
			DeadLettered int64 `json:"dead_lettered"`
			Redelivered  int64 `json:"redelivered"`
		} `json:"groups"`
	}
	nodetest.Eventually(t, time.Minute, func() bool {
		rows, err := db.Query(t.Context(), "INFO FOR TOPIC events", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := rows.Scan(&info); err != nil {
			t.Fatal(err)
		}
		return info.Groups["g"].Committed == info.Last
	}, "the consumer catches up: %+v", &info)
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	observe(t, dir, func(s *session.Session) { compare(t, s, seen) })
	if int64(len(seen)) != info.Last || info.Groups["g"].DeadLettered != 0 {
		t.Fatalf("%d messages made %d records: %+v", info.Last, len(seen), info)
	}
	if info.Groups["g"].Redelivered == 0 {
		t.Error("no write was refused: the test does not test what it says")
	}
	for k := int64(2); k <= info.Last; k++ {
		if seen[k-1] >= seen[k] {
			t.Fatalf("message %d was applied after message %d: %s, %s", k-1, k, seen[k-1], seen[k])
		}
	}
	t.Logf("%d messages, %d writes refused and tried again", info.Last, info.Groups["g"].Redelivered)
}

// startNode runs a node on a folder in a process of its own.
func startNode(t *testing.T, dir string) *nodetest.Process {
	t.Helper()
	return startNodeIn(t, nodeFolder+"="+dir)
}

// startNodeIn runs a node that an environment describes.
func startNodeIn(t *testing.T, environment ...string) *nodetest.Process {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), environment...)
	node := nodetest.Start(t, command)
	if said := node.Hear(); said != "ready" {
		t.Fatalf("the node says %q", said)
	}
	return node
}

// killAfter runs a node for a time, in which it works, and kills it.
func killAfter(t *testing.T, dir string, d time.Duration) {
	t.Helper()
	node := startNode(t, dir)
	time.Sleep(d)
	node.Kill()
}

// observe opens the store without running its consumers.
func observe(t *testing.T, dir string, look func(*session.Session)) {
	t.Helper()
	e, err := pebble.Open(dir, pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	caller := session.New(s, session.Options{})
	look(caller)
	caller.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, s *session.Session, script string) value.Value {
	t.Helper()
	answers, err := s.Run(t.Context(), script, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		if answer.Err != nil {
			t.Fatalf("%s\n%v", script, answer.Err)
		}
	}
	return answers[len(answers)-1].Value
}

// compare checks that nothing was written again that had been seen, that there
// is a record for each message that is settled and for no other, and adds what
// is new.
func compare(t *testing.T, s *session.Session, seen map[int64]string) {
	t.Helper()
	var rows []struct {
		Value struct {
			K       int64  `json:"k"`
			Written string `json:"written"`
		} `json:"value"`
	}
	scan(t, run(t, s, "USE NAMESPACE shop; USE DATABASE main; SELECT * FROM rows"), &rows)
	for _, row := range rows {
		if before, ok := seen[row.Value.K]; ok && before != row.Value.Written {
			t.Fatalf("message %d was applied twice: %s, then %s", row.Value.K, before, row.Value.Written)
		}
		seen[row.Value.K] = row.Value.Written
	}
	var info struct {
		Groups map[string]struct {
			Committed int64 `json:"committed"`
		} `json:"groups"`
	}
	scan(t, run(t, s, "INFO FOR TOPIC events"), &info)
	if committed := info.Groups["g"].Committed; int64(len(rows)) != committed {
		t.Fatalf("%d messages are settled, and there are %d records", committed, len(rows))
	}
}

// scan decodes an answer by way of its JSON, where a uuid is text.
func scan(t *testing.T, v value.Value, dst any) {
	t.Helper()
	text, err := v.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := value.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := parsed.Scan(dst); err != nil {
		t.Fatal(err)
	}
}
