package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

func TestTheRollHoldsWhoEnteredUntilStruck(t *testing.T) {
	first, second := twoEngines(t, func(*postgres.Options) {})
	one := engine.Process{ID: uuid.Must(uuid.NewV7()), Name: "one\x00", Address: "db-1:7420"}
	two := engine.Process{ID: uuid.Must(uuid.NewV7()), Name: "two\xff"}
	var err error
	if one.Started, err = first.Enter(ctx, one); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Enter(ctx, two); err != nil {
		t.Fatal(err)
	}
	seen, err := first.Enter(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	entries, now, err := second.Entries(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(entries[0])
	want := fmt.Sprint(engine.Process{ID: one.ID, Name: "one", Address: "db-1:7420", Started: one.Started, Seen: seen})
	if len(entries) != 2 || got != want || entries[1].Name != "two\uFFFD" || now.Before(entries[1].Seen) {
		t.Errorf("at %v the roll holds %v, want first %v", now, entries, want)
	}
	if err := second.Strike(ctx, one.ID, one.ID); err != nil {
		t.Fatal(err)
	}
	if entries, _, err = first.Entries(ctx); err != nil || len(entries) != 1 || entries[0].ID != two.ID {
		t.Errorf("after one was struck the roll holds %v, %v", entries, err)
	}
}

// A process that is stopped in the middle of a commit holds up the commits of
// that space, but makes nobody look dead.
func TestTheRollWaitsForNoCommitAndWakesNobody(t *testing.T) {
	first, second := twoEngines(t, func(*postgres.Options) {})
	changed := space(t, second, engine.Root).Changed(0)
	other := space(t, second, 1)
	set(t, other, "a", "b")
	elsewhere := other.Changed(1)
	held, release := make(chan struct{}), make(chan struct{})
	var holding sync.WaitGroup
	for _, id := range []engine.SpaceID{engine.Root, 2} {
		s := space(t, first, id)
		holding.Go(func() {
			_, err := s.Commit(ctx, func(engine.Commit) error {
				held <- struct{}{}
				<-release
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-held
	}
	began := time.Now()
	if _, err := second.Enter(ctx, engine.Process{ID: uuid.New(), Name: "second"}); err != nil {
		t.Error(err)
	}
	if entries, _, err := second.Entries(ctx); err != nil || len(entries) != 1 {
		t.Errorf("the roll holds %v, %v", entries, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	close(release)
	holding.Wait()
	select {
	case <-changed:
		t.Error("who waits for the root space was woken")
	case <-elsewhere:
		t.Error("who waits for a database was woken")
	case <-time.After(100 * time.Millisecond): // Several rounds of asking.
	}
}

// Version 1 had no table of nodes.
func TestNodesThatStartAtOnceMigrateAnOlderVersionOnceAndKeepWhatItHeld(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	options := postgres.Options{URL: cluster.URL(), Schema: schema}
	before := open(t, options)
	set(t, space(t, before, 1), "a", "kept")
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	cluster.SQL(t, "DROP TABLE "+schema+".nodes")
	cluster.SQL(t, "UPDATE "+schema+".schema_version SET version = 1")
	var starting sync.WaitGroup
	var engines [3]*postgres.Engine
	for i := range engines {
		starting.Go(func() {
			e, err := postgres.Open(ctx, options)
			if err != nil {
				t.Errorf("engine %d: %v", i, err)
			}
			engines[i] = e
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	for _, e := range engines {
		if got := get(t, space(t, e, 1), "a"); got != "kept" {
			t.Errorf("it shows %q", got)
		}
		if _, err := e.Enter(ctx, engine.Process{ID: uuid.New()}); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	version := cluster.Query(t, "SELECT version FROM "+schema+".schema_version")
	if !strings.Contains(version, fmt.Sprintf(" %d\n", postgres.SchemaVersion)) {
		t.Errorf("the version is\n%s", version)
	}
}
