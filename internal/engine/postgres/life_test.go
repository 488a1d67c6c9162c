package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

func TestCloseLeavesNoGoroutineAndTellsOfSnapshotsThatWereKept(t *testing.T) {
	url := postgrestest.Shared(t).URL()
	before := goleak.IgnoreCurrent()
	e := open(t, postgres.Options{URL: url, Schema: postgrestest.Schema()})
	s := space(t, e, 1)
	set(t, s, "a", "b")
	changed := s.Changed(1)
	kept, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); !errors.Is(err, fault.Internal) || !strings.Contains(err.Error(), "1 snapshots") {
		t.Errorf("got %v, want Internal that tells of the snapshot", err)
	}
	<-changed
	if _, err := kept.Get(ctx, []byte("a")); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("the snapshot that was kept: got %v, want ErrClosed", err)
	}
	kept.Release()
	goleak.VerifyNone(t, before)
}

func TestSettingsThatPromisesRestOnAreMade(t *testing.T) {
	// Somebody chose not to wait for the disk.
	url := postgrestest.Shared(t).URL() + "&options=-c%20synchronous_commit%3Doff"
	e := open(t, postgres.Options{URL: url, Schema: postgrestest.Schema(), HoldTimeout: 7 * time.Second})
	for name, want := range map[string]string{"synchronous_commit": "local", "idle_in_transaction_session_timeout": "7s", "enable_seqscan": "off"} {
		if got, err := e.Setting(ctx, name); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
		}
	}
}

func TestRowsOfOldCommitsAreRemoved(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	var seconds atomic.Int64
	begun := time.Now()
	s := space(t, open(t, postgres.Options{URL: cluster.URL(), Schema: schema, Clock: func() time.Time {
		return begun.Add(time.Duration(seconds.Add(10)) * time.Second)
	}}), 1)
	const commits = 1600
	for range commits {
		set(t, s, "a", "b")
	}
	kept := cells(cluster.Query(t, "SELECT min(sequence), max(sequence), count(*) FROM "+schema+".commits") + "|")
	want := fmt.Sprintf("[%d %d %d]", 1536-1000, commits, commits-(1536-1000)+1) // 1,536 is the last multiple of 256.
	if got := fmt.Sprint(kept[0]); got != want {
		t.Fatalf("of the commits %s are kept, want %s", got, want)
	}
}

func TestTheClockNeverGoesBackWhereTheServersDoes(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	behind := func(d time.Duration) func() time.Time {
		return func() time.Time { return time.Now().Add(-d) }
	}
	first := open(t, postgres.Options{URL: cluster.URL(), Schema: schema, Clock: behind(0)})
	second := open(t, postgres.Options{URL: cluster.URL(), Schema: schema, Clock: behind(time.Hour)})
	var previous time.Time
	for i := range 20 {
		e := []*postgres.Engine{first, second}[i%2]
		_, err := space(t, e, 1).Commit(ctx, func(c engine.Commit) error {
			if c.Now().Before(previous) {
				t.Errorf("a commit at %v after %v", c.Now(), previous)
			}
			previous = c.Now()
			c.Set([]byte("a"), nil)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		now, err := second.Now(ctx)
		if err != nil || now.Before(previous) {
			t.Fatalf("Now is %v after a commit at %v (%v)", now, previous, err)
		}
		previous = now
	}
}
