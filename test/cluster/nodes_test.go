package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// movesWithin is in what time the others know of a node's death.
const movesWithin = 5 * time.Second

// liveNodes are the names of the nodes that a store knows of.
func liveNodes(t testing.TB, s *store.Store) []string {
	t.Helper()
	live, err := s.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(live))
	for i, node := range live {
		names[i] = node.Name
	}
	return names
}

// awaitNodes waits, as long as a watching node may take, until a store knows of
// some nodes besides itself and no others.
func awaitNodes(t testing.TB, s *store.Store, within time.Duration, want ...string) {
	t.Helper()
	want = append(want, s.Node().Name)
	slices.Sort(want)
	deadline := time.After(within)
	for {
		changed := s.NodesChanged()
		got := liveNodes(t, s)
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("after %v the nodes are %v, want %v", within, got, want)
		}
	}
}

func openNode(t testing.TB, schema, name string) *store.Store {
	t.Helper()
	e, err := postgres.Open(t.Context(), postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{NodeName: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // A test may have closed it.
	return s
}

func TestNodesComeAndGoAndComeBack(t *testing.T) {
	schema, url := postgrestest.Schema(), postgrestest.Shared(t).URL()
	watching := openNode(t, schema, "watching")
	_, _ = openStore(t, postgres.Options{URL: url, Schema: schema}) // It defines the database.
	here := liveNodes(t, watching)[1]

	killed := start(t, order{Name: "killed", URL: url, Schema: schema})
	paused := start(t, order{Name: "paused", URL: url, Schema: schema})
	awaitNodes(t, watching, movesWithin, here, "killed", "paused")
	idOf := func(name string) (found store.Node) {
		live, err := watching.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range live {
			if node.Name == name {
				found = node
			}
		}
		return found
	}
	before := idOf("paused")

	killed.Kill()
	paused.Signal(syscall.SIGSTOP)
	awaitNodes(t, watching, movesWithin, here)
	paused.Signal(syscall.SIGCONT)
	awaitNodes(t, watching, movesWithin, here, "paused")
	if after := idOf("paused"); after.ID != before.ID || !after.Started.Equal(before.Started) || !after.Seen.After(before.Seen) {
		t.Errorf("the node that was paused was %+v and is %+v", before, after)
	}
	nodetest.Eventually(t, movesWithin, func() bool { return idOf("paused").Address == "paused:7420" }, "the address is told")

	// One that is closed is gone at once.
	paused.close()
	awaitNodes(t, watching, time.Second, here)
}

func TestInfoForStoreListsTheSameNodesOnEveryNode(t *testing.T) {
	url, schema := postgrestest.Shared(t).URL(), postgrestest.Schema()
	info := func(s *tidemark.Store) string {
		t.Helper()
		db, err := s.Database(t.Context(), "shop", "orders")
		if err != nil {
			t.Fatal(err)
		}
		answers, err := db.Exec(t.Context(), "INFO FOR STORE", nil)
		if err != nil {
			t.Fatal(err)
		}
		json, err := answers[0].Value.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(json)
	}
	var nodes [3]*tidemark.Store
	for i := range nodes {
		s, err := tidemark.OpenPostgres(t.Context(), url, tidemark.WithSchema(schema))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() }) // The test closes one.
		nodes[i] = s
	}
	first := info(nodes[0])
	if strings.Count(first, `"started"`) != 3 {
		t.Fatalf("of three nodes one lists %s", first)
	}
	for i, s := range nodes {
		if got := info(s); got != first {
			t.Errorf("node %d lists %s, and the first %s", i, got, first)
		}
	}
	if err := nodes[2].Close(); err != nil {
		t.Fatal(err)
	}
	one, two := info(nodes[0]), info(nodes[1])
	if one != two || strings.Count(one, `"started"`) != 2 {
		t.Errorf("after one was closed the others list %s and %s", one, two)
	}
}

// What a process knew before it was paused is of no use to it afterwards.
func TestANodeThatWasPausedGoesOnFromWhereTheOthersAre(t *testing.T) {
	url, schema := postgrestest.Shared(t).URL(), postgrestest.Schema()
	_, db := openStore(t, postgres.Options{URL: url, Schema: schema})
	defineTopics(t, db, "events")
	paused := start(t, order{Name: "paused", URL: url, Schema: schema})
	for want := range 3 {
		if got := paused.ask("events"); got != strconv.Itoa(want+1) {
			t.Fatalf("append %d: %s", want+1, got)
		}
	}
	paused.Signal(syscall.SIGSTOP)
	for range 50 {
		appendOne(t, db, "events")
	}
	paused.Signal(syscall.SIGCONT)
	if got := paused.ask("events"); got != "54" {
		t.Errorf("after 53 messages the node that was paused appends at %s", got)
	}
	paused.Signal(syscall.SIGSTOP)
	define(t, db, func(ctx context.Context, tx *store.Tx) error { return tx.DropTable(ctx, store.Topic, "events") })
	defineTopics(t, db, "events")
	paused.Signal(syscall.SIGCONT)
	if got := paused.ask("events"); got != "1" {
		t.Errorf("to a topic that was defined anew the node that was paused appends at %s", got)
	}
	paused.close()
}

func TestHousekeepingGoesOnWhereTheNodeThatDidItDies(t *testing.T) {
	const databases = 8
	url, schema := postgrestest.Shared(t).URL(), postgrestest.Schema()
	s, _ := openStore(t, postgres.Options{URL: url, Schema: schema})
	var open [databases]*store.Database
	for i := range open {
		name := fmt.Sprintf("kept_%d", i)
		if err := s.DefineDatabase(t.Context(), "shop", name, false); err != nil {
			t.Fatal(err)
		}
		db, err := s.Database(t.Context(), "shop", name)
		if err != nil {
			t.Fatal(err)
		}
		define(t, db, func(ctx context.Context, tx *store.Tx) error {
			events := store.Table{Name: "events", Kind: store.Topic, Topic: topic.TopicDefinition{Retain: time.Second}}
			return tx.DefineTable(ctx, events, store.Refuse)
		})
		open[i] = db
	}
	first := func(db *store.Database) topic.Position {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Cancel()
		table, err := tx.Catalog().TopicTable("events")
		if err != nil {
			t.Fatal(err)
		}
		report, err := tx.ReportTopic(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		return report.First
	}
	removed := func(within time.Duration) {
		t.Helper()
		appended := time.Now()
		var want [databases]topic.Position
		for i, db := range open {
			want[i] = appendOne(t, db, "events") + 1
		}
		for i, db := range open {
			nodetest.Eventually(t, within-time.Since(appended), func() bool { return first(db) == want[i] },
				"database %d keeps nothing of what was appended %v ago", i, within)
		}
	}
	keeper := start(t, order{Name: "keeper", URL: url, Schema: schema})
	awaitNodes(t, s, movesWithin, "keeper")
	const retained, promised, slack = time.Second, 2 * time.Second, time.Second
	removed(retained + promised + slack)
	keeper.Kill()
	removed(retained + promised + movesWithin)
}
