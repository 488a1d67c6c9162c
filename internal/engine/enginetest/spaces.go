package enginetest

import (
	"math"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

var spaceTests = []contractTest{
	{name: "spaces have their own keys and their own order", run: func(s *suite) {
		// Neighbours, and ids at the borders of their bytes.
		ids := []engine.SpaceID{engine.Root, 1, 2, 254, 255, 256, 65535, 65536, 1<<24 - 1, math.MaxInt32}
		for i, id := range ids {
			for range i + 1 {
				s.commit(s.space(id), func(c engine.Commit) {
					c.Set(nil, key("%d", id))
					c.Set([]byte("\xff\xff"), key("%d", id))
				})
			}
		}
		check := func(emptied int) {
			s.Helper()
			for i, id := range ids {
				snapshot := s.snapshot(s.space(id))
				if i == emptied {
					s.wantKeys(snapshot, engine.Range{}, false)
					continue
				}
				if want := engine.Sequence(i + 1); snapshot.Sequence() != want {
					s.Fatalf("space %d is at %d, want %d", id, snapshot.Sequence(), want)
				}
				s.wantKeys(snapshot, engine.Range{}, false, "", "\xff\xff")
				s.wantKeys(snapshot, engine.Range{From: []byte("a")}, true, "\xff\xff")
				s.want(snapshot, "", string(key("%d", id)), engine.Sequence(i+1))
			}
		}
		check(-1)
		s.commit(s.space(255), func(c engine.Commit) { c.DeleteRange(engine.Range{}) })
		check(4)
	}},

	{name: "opening a space twice returns the same one", run: func(s *suite) {
		if s.space(7) != s.space(7) {
			s.Fatal("two spaces")
		}
	}},

	{name: "a commit of one space does not wait for the form of another", run: func(s *suite) {
		first, second := s.space(1), s.space(2)
		s.commit(first, func(c engine.Commit) {
			c.Set([]byte("a"), nil)
			s.set(second, "b")
			s.wantKeys(s.snapshot(second), engine.Range{}, false, "b")
		})
		s.wantKeys(s.snapshot(first), engine.Range{}, false, "a")
	}},

	{name: "Changed is closed once there is a durable commit after the sequence", run: func(s *suite) {
		space := s.space(1)
		first := space.Changed(0)
		s.wantOpen(first)
		s.set(space, "a")
		s.wantClosed(first)
		s.wantClosed(space.Changed(0))
		second := space.Changed(1)
		s.wantOpen(second)
		s.commit(space, func(engine.Commit) {})
		s.set(s.space(2), "b")
		s.wantOpen(second)
		s.set(space, "c")
		s.wantClosed(second)
		s.wantClosed(space.Changed(1))
	}},

	{name: "Changed does not lose a commit, and wakes all who wait", run: func(s *suite) {
		space := s.space(1)
		const commits = 50
		var waiters sync.WaitGroup
		for range 10 {
			waiters.Go(func() {
				var seen engine.Sequence
				for seen < commits {
					select {
					case <-space.Changed(seen):
					case <-time.After(10 * time.Second):
						s.Errorf("not woken after commit %d", seen)
						return
					}
					snapshot, err := space.Snapshot(ctx)
					if err != nil {
						s.Error(err)
						return
					}
					if snapshot.Sequence() <= seen {
						s.Errorf("woken after commit %d, and a snapshot is of %d", seen, snapshot.Sequence())
					}
					seen = snapshot.Sequence()
					snapshot.Release()
				}
			})
		}
		for range commits {
			s.set(space, "a")
		}
		waiters.Wait()
	}},

	{name: "a dropped space takes no commits, and its open snapshots stay readable", run: func(s *suite) {
		space, neighbour := s.space(5), s.space(6)
		s.set(space, "a", "b")
		s.set(neighbour, "n")
		snapshot, changed := s.snapshot(space), space.Changed(1)
		s.noError(s.engine.DropSpace(ctx, 5))
		s.wantClosed(changed)
		s.checkDropped(space)
		s.checkDropped(s.space(5))
		s.wantKeys(snapshot, engine.Range{}, false, "a", "b")
		s.want(snapshot, "a", "a", 1)
		s.noError(s.engine.DropSpace(ctx, 5))
		s.wantKeys(s.snapshot(neighbour), engine.Range{}, false, "n")
		s.set(neighbour, "m")
	}},

	{name: "a space that was never opened can be dropped", run: func(s *suite) {
		s.noError(s.engine.DropSpace(ctx, 9))
		s.checkDropped(s.space(9))
	}},

	{name: "a dropped space stays dropped when the store is opened again", reopens: true, run: func(s *suite) {
		s.set(s.space(5), "a")
		s.noError(s.engine.DropSpace(ctx, 5))
		s.reopen()
		s.checkDropped(s.space(5))
		s.noError(s.engine.DropSpace(ctx, 5))
		s.set(s.space(6), "b")
	}},

	{name: "commits and a drop at once end in a dropped space", run: func(s *suite) {
		space := s.space(5)
		var committers sync.WaitGroup
		for range 4 {
			committers.Go(func() {
				for {
					_, err := space.Commit(ctx, func(c engine.Commit) error {
						c.Set([]byte("a"), nil)
						return nil
					})
					if err != nil {
						s.wantDropped(err)
						return
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond) // Some commits, so that the drop meets them.
		s.noError(s.engine.DropSpace(ctx, 5))
		committers.Wait()
		s.checkDropped(space)
	}},
}

func (s *suite) checkDropped(space engine.Space) {
	s.Helper()
	_, err := space.Commit(ctx, func(c engine.Commit) error {
		s.Error("a form ran in a dropped space")
		return nil
	})
	s.wantDropped(err)
	_, err = space.Snapshot(ctx)
	s.wantDropped(err)
}

// wantDropped is for other goroutines too.
func (s *suite) wantDropped(err error) {
	s.Helper()
	if kind := fault.Of(err); kind == nil || kind.Kind != fault.NotFound {
		s.Errorf("got %v, want an error of kind NotFound", err)
	}
}
