package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

var ctx = context.Background()

func space(t testing.TB, e engine.Engine, id engine.SpaceID) engine.Space {
	t.Helper()
	s, err := e.Space(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// set commits one key.
func set(t testing.TB, s engine.Space, key, value string) engine.Sequence {
	t.Helper()
	sequence, err := s.Commit(ctx, func(c engine.Commit) error {
		c.Set([]byte(key), []byte(value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sequence
}

// get reads a key of the newest state.
func get(t testing.TB, s engine.Space, key string) string {
	t.Helper()
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Release()
	entry, err := snapshot.Get(ctx, []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return string(entry.Value)
}

// count adds one to a counter in a commit.
func count(c engine.Commit) error {
	entry, err := c.Get(ctx, []byte("counter"))
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(entry.Value))
	c.Set([]byte("counter"), []byte(strconv.Itoa(n+1)))
	return nil
}

func twoEngines(t *testing.T, change func(*postgres.Options)) (first, second *postgres.Engine) {
	t.Helper()
	options := postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: postgrestest.Schema()}
	change(&options)
	return open(t, options), open(t, options)
}

func TestFormsOfTwoEnginesRunAloneAndTheirSequencesAreDense(t *testing.T) {
	first, second := twoEngines(t, func(*postgres.Options) {})
	const committers, each = 4, 25
	var inside atomic.Int32
	var mu sync.Mutex
	var sequences []engine.Sequence
	var previous time.Time
	var running sync.WaitGroup
	for _, e := range []engine.Engine{first, second} {
		s := space(t, e, 1)
		for range committers {
			running.Go(func() {
				for range each {
					sequence, err := s.Commit(ctx, func(c engine.Commit) error {
						if inside.Add(1) != 1 {
							t.Error("two forms at once")
						}
						defer inside.Add(-1)
						if c.Now().Before(previous) {
							t.Errorf("a commit at %v after one at %v", c.Now(), previous)
						}
						previous = c.Now()
						return count(c)
					})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					sequences = append(sequences, sequence)
					mu.Unlock()
				}
			})
		}
	}
	running.Wait()
	slices.Sort(sequences)
	for i, sequence := range sequences {
		if sequence != engine.Sequence(i+1) {
			t.Fatalf("the sequences are %v", sequences)
		}
	}
	want := strconv.Itoa(2 * committers * each)
	for _, e := range []engine.Engine{first, second} {
		if got := get(t, space(t, e, 1), "counter"); got != want {
			t.Fatalf("the counter is %s, want %s", got, want)
		}
	}
}

func TestACommitIsInASnapshotThatAnotherEngineTakesAfterIt(t *testing.T) {
	first, second := twoEngines(t, func(*postgres.Options) {})
	writing, reading := space(t, first, 1), space(t, second, 1)
	for i := range 100 {
		value := strconv.Itoa(i)
		set(t, writing, "a", value)
		if got := get(t, reading, "a"); got != value {
			t.Fatalf("after commit %s the other engine shows %s", value, got)
		}
	}
}

func TestChangedWakesAnotherEngineWithin100Milliseconds(t *testing.T) {
	for name, disabled := range map[string]bool{"with NOTIFY": false, "without NOTIFY": true} {
		t.Run(name, func(t *testing.T) {
			first, second := twoEngines(t, func(o *postgres.Options) { o.DisableNotify = disabled })
			writing, waiting := space(t, first, 1), space(t, second, 1)
			var took []time.Duration
			for i := range engine.Sequence(20) {
				changed := waiting.Changed(i)
				select {
				case <-changed:
					t.Fatalf("closed before commit %d", i+1)
				case <-time.After(30 * time.Millisecond):
				}
				set(t, writing, "a", "b")
				committed := time.Now()
				select {
				case <-changed:
				case <-time.After(5 * time.Second):
					t.Fatal("not woken")
				}
				took = append(took, time.Since(committed))
				snapshot, err := waiting.Snapshot(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if snapshot.Sequence() != i+1 {
					t.Fatalf("woken by commit %d, a snapshot shows %d", i+1, snapshot.Sequence())
				}
				snapshot.Release()
			}
			slices.Sort(took)
			if median := took[len(took)/2]; median > 100*time.Millisecond {
				t.Fatalf("waking took %v", took)
			}
		})
	}
}

func TestADropIsNoticedByAnotherEngine(t *testing.T) {
	first, second := twoEngines(t, func(*postgres.Options) {})
	set(t, space(t, first, 1), "a", "b")
	other := space(t, second, 1)
	held, err := other.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	changed := other.Changed(1)
	if err := first.DropSpace(ctx, 1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(5 * time.Second):
		t.Fatal("who waited was not woken")
	}
	if entry, err := held.Get(ctx, []byte("a")); err != nil || string(entry.Value) != "b" {
		t.Fatalf("an open snapshot shows %q, %v", entry.Value, err)
	}
	if _, err := other.Snapshot(ctx); fault.Of(err).Kind != fault.NotFound {
		t.Fatalf("a new snapshot: %v", err)
	}
	if _, err := other.Commit(ctx, count); fault.Of(err).Kind != fault.NotFound {
		t.Fatalf("a commit: %v", err)
	}
}

// A process that is stopped while it holds the space's row loses it, and what
// it decided with it.
func TestAFormThatIsHeldTooLongGivesWayAndRunsAgain(t *testing.T) {
	first, second := twoEngines(t, func(o *postgres.Options) { o.HoldTimeout = 200 * time.Millisecond })
	paused, other := space(t, first, 1), space(t, second, 1)
	set(t, paused, "counter", "1")
	runs := 0
	sequence, err := paused.Commit(ctx, func(c engine.Commit) error {
		if err := count(c); err != nil {
			return err
		}
		if runs++; runs == 1 {
			time.Sleep(600 * time.Millisecond) // As one does that is stopped.
			if _, err := other.Commit(ctx, count); err != nil {
				t.Errorf("the other engine: %v", err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t, other, "counter"); runs != 2 || sequence != 3 || got != "3" {
		t.Fatalf("%d runs, commit %d, the counter is %s; want 2, 3 and 3", runs, sequence, got)
	}
}

// Engines at the same time on an empty database, and on schemas of odd names.
func TestFourEnginesThatStartAtOnceMakeTheTablesOnce(t *testing.T) {
	cluster := postgrestest.Shared(t)
	for _, schema := range []string{postgrestest.Schema(), `od"d Schema`, postgrestest.Schema()} {
		var engines [4]*postgres.Engine
		var starting sync.WaitGroup
		for i := range engines {
			starting.Go(func() {
				e, err := postgres.Open(ctx, postgres.Options{URL: cluster.URL(), Schema: schema})
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
		for i, e := range engines {
			if sequence := set(t, space(t, e, 1), "a", "b"); sequence != engine.Sequence(i+1) {
				t.Fatalf("engine %d made commit %d", i, sequence)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestTablesOfANewerVersionAreRefusedWithBothVersionsNamed(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	options := postgres.Options{URL: cluster.URL(), Schema: schema}
	if err := open(t, options).Close(); err != nil {
		t.Fatal(err)
	}
	cluster.SQL(t, "UPDATE "+schema+".schema_version SET version = 99")
	_, err := postgres.Open(ctx, options)
	if fault.Of(err).Kind != fault.Unavailable || !strings.Contains(err.Error(), "version 99") || !strings.Contains(err.Error(), fmt.Sprint("version ", postgres.SchemaVersion)) {
		t.Fatalf("got %v, want a refusal that names both versions", err)
	}
}

func TestOptionsOutOfTheirBoundsAreRefused(t *testing.T) {
	url := postgrestest.Shared(t).URL()
	for name, options := range map[string]postgres.Options{
		"a URL that is none":  {URL: "postgres://%"},
		"too few connections": {URL: url, MaxConns: 2},
		"a long schema":       {URL: url, Schema: strings.Repeat("s", 64)},
	} {
		if _, err := postgres.Open(ctx, options); fault.Of(err).Kind != fault.InvalidClause {
			t.Errorf("%s: got %v, want InvalidClause", name, err)
		}
	}
}
