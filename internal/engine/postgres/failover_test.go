package postgres_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

// The primary crashes in the middle of commits of two engines, the standby is
// promoted, and both go on there: with synchronous replication nothing is lost
// that was acknowledged, and nothing made twice.
func TestAFailoverLosesNoCommitAndMakesNoneTwice(t *testing.T) {
	primary := postgrestest.New(t)
	standby := primary.Standby(t)
	options := postgres.Options{
		URL:      fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres", primary.Port(), standby.Port()),
		Patience: 30 * time.Second,
	}
	engines := []*postgres.Engine{open(t, options), open(t, options)}
	stop := make(chan struct{})
	var mu sync.Mutex
	acknowledged := map[engine.Sequence]bool{}
	var newest time.Time
	var committing sync.WaitGroup
	for _, e := range engines {
		s := space(t, e, 1)
		committing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var at time.Time
				sequence, err := s.Commit(ctx, func(c engine.Commit) error {
					at = c.Now()
					return count(c)
				})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if acknowledged[sequence] {
					t.Errorf("two commits are %d", sequence)
				}
				acknowledged[sequence] = true
				if at.After(newest) {
					newest = at
				}
				mu.Unlock()
			}
		})
	}
	made := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	nodetest.Eventually(t, promptly, func() bool { return made() > 50 }, "there are commits before the failover")
	checkStandby(t, standby)
	primary.Crash()
	standby.Promote(t)
	before := made()
	nodetest.Eventually(t, promptly, func() bool { return made() > before+50 }, "there are commits after the failover")
	close(stop)
	committing.Wait()
	want := strconv.Itoa(len(acknowledged))
	for _, e := range engines {
		if got := get(t, space(t, e, 1), "counter"); got != want {
			t.Fatalf("the counter is %s; %s commits were acknowledged", got, want)
		}
		now, err := e.Now(ctx)
		if err != nil || now.Before(newest) {
			t.Fatalf("the clock shows %v, a commit was at %v: %v", now, newest, err)
		}
	}
}

// checkStandby fails unless an engine that is connected to a standby refuses to
// commit, and to show a state that may be behind.
func checkStandby(t *testing.T, standby *postgrestest.Cluster) {
	t.Helper()
	e := open(t, postgres.Options{URL: standby.TCP() + "?target_session_attrs=standby", Patience: time.Second})
	s := space(t, e, 1)
	_, commitErr := s.Commit(ctx, count)
	_, snapshotErr := s.Snapshot(ctx)
	for call, err := range map[string]error{"Commit": commitErr, "Snapshot": snapshotErr} {
		if !errors.Is(err, fault.Unavailable) || !errors.Is(err, engine.ErrNotWriter) {
			t.Errorf("%s on a standby: got %v, want Unavailable with ErrNotWriter", call, err)
		}
	}
}
