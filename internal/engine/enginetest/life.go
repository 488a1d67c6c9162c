package enginetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

var lifeTests = []contractTest{
	{name: "the store's clock never goes back, and commits carry it", run: func(s *suite) {
		space := s.space(1)
		var previous time.Time
		for range 20 {
			now, err := s.engine.Now(ctx)
			s.noError(err)
			if now.Before(previous) {
				s.Fatalf("Now went back from %v to %v", previous, now)
			}
			previous = now
			s.commit(space, func(c engine.Commit) {
				if c.Now().Before(previous) {
					s.Fatalf("a commit at %v after %v", c.Now(), previous)
				}
				previous = c.Now()
				if again := c.Now(); again != previous {
					s.Fatalf("a commit has the times %v and %v", previous, again)
				}
				c.Set([]byte("a"), nil)
			})
		}
		if since := time.Since(previous); since < -time.Hour || since > time.Hour {
			s.Fatalf("the store's clock shows %v", previous)
		}
	}},

	{name: "the times of a space's commits are in their order", run: func(s *suite) {
		space := s.space(1)
		var previous time.Time
		var committers sync.WaitGroup
		for range 8 {
			committers.Go(func() {
				for range 20 {
					_, err := space.Commit(ctx, func(c engine.Commit) error {
						if c.Now().Before(previous) {
							s.Errorf("commit %d at %v, the one before it at %v", c.Sequence()+1, c.Now(), previous)
						}
						previous = c.Now() // Forms run alone.
						c.Set([]byte("a"), nil)
						return nil
					})
					if err != nil {
						s.Error(err)
					}
				}
			})
		}
		committers.Wait()
	}},

	{name: "what was committed is there when the store is opened again", reopens: true, run: func(s *suite) {
		var committed time.Time
		for round := range 3 {
			space := s.space(1)
			before := engine.Sequence(10 * round)
			snapshot := s.snapshot(space)
			if snapshot.Sequence() != before {
				s.Fatalf("opened at %d, want %d", snapshot.Sequence(), before)
			}
			for i := range 10 * round {
				s.want(snapshot, fmt.Sprint(i), fmt.Sprint("value ", i), engine.Sequence(i+1))
			}
			snapshot.Release()
			for i := 10 * round; i < 10*round+10; i++ {
				s.commit(space, func(c engine.Commit) {
					if c.Now().Before(committed) {
						s.Errorf("a commit at %v, one before the store was closed at %v", c.Now(), committed)
					}
					committed = c.Now()
					c.Set(key("%d", i), key("value %d", i))
				})
			}
			s.reopen()
			now, err := s.engine.Now(ctx)
			s.noError(err)
			if now.Before(committed) {
				s.Fatalf("opened again the clock shows %v, a commit was at %v", now, committed)
			}
		}
	}},

	{name: "after Close every call fails with ErrClosed", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a")
		changed := space.Changed(1)
		s.noError(s.engine.Close())
		s.wantClosed(changed)
		s.wantClosed(space.Changed(1))
		_, commitErr := space.Commit(ctx, func(engine.Commit) error {
			s.Error("a form ran")
			return nil
		})
		_, snapshotErr := space.Snapshot(ctx)
		_, spaceErr := s.engine.Space(ctx, 1)
		_, nowErr := s.engine.Now(ctx)
		for call, err := range map[string]error{
			"Commit": commitErr, "Snapshot": snapshotErr, "Space": spaceErr, "Now": nowErr,
			"DropSpace": s.engine.DropSpace(ctx, 1), "Close": s.engine.Close(),
		} {
			if !errors.Is(err, engine.ErrClosed) {
				s.Errorf("%s after Close: got %v, want ErrClosed", call, err)
			}
		}
	}},

	{name: "Close waits for commits that are running", run: func(s *suite) {
		space := s.space(1)
		formed := make(chan struct{})
		var finished atomic.Bool
		var committers sync.WaitGroup
		committers.Go(func() {
			_, err := space.Commit(ctx, func(c engine.Commit) error {
				close(formed)
				time.Sleep(50 * time.Millisecond) // So that Close is called meanwhile.
				if _, err := c.Get(ctx, []byte("a")); err != nil {
					return err
				}
				c.Set([]byte("a"), nil)
				finished.Store(true)
				return nil
			})
			if err != nil {
				s.Errorf("a commit that was running: %v", err)
			}
		})
		<-formed
		s.noError(s.engine.Close())
		if !finished.Load() {
			s.Error("Close returned before the commit did")
		}
		committers.Wait()
	}},

	{name: "a crash loses nothing that was acknowledged or shown, and no commit in part", crashes: true, run: func(s *suite) {
		for round := range 5 {
			s.crash(time.Duration(round*7) * time.Millisecond)
		}
	}},

	{name: "a space dropped before a crash stays dropped", crashes: true, run: func(s *suite) {
		s.set(s.space(5), "a")
		s.noError(s.engine.DropSpace(ctx, 5))
		s.place.Crash(s.T)
		s.open()
		s.checkDropped(s.space(5))
	}},
}

// crash commits and reads from several goroutines, crashes the store in the
// middle of that, opens it again, and compares.
func (s *suite) crash(after time.Duration) {
	s.Helper()
	space := s.space(1)
	begun := s.snapshot(space).Sequence()
	var known atomic.Uint64 // the newest sequence that was acknowledged or shown
	stop := make(chan struct{})
	var running sync.WaitGroup
	note := func(sequence engine.Sequence) {
		for {
			old := known.Load()
			if uint64(sequence) <= old || known.CompareAndSwap(old, uint64(sequence)) {
				return
			}
		}
	}
	running.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			snapshot, err := space.Snapshot(ctx)
			if err != nil {
				return
			}
			note(snapshot.Sequence())
			snapshot.Release()
		}
	})
	for range 4 {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				sequence, err := space.Commit(ctx, func(c engine.Commit) error {
					next := c.Sequence() + 1
					for _, part := range []string{"left", "middle", "right"} {
						c.Set(key("%s %06d", part, next), make([]byte, 3000))
					}
					return nil
				})
				if err != nil {
					return
				}
				note(sequence)
			}
		})
	}
	for engine.Sequence(known.Load()) <= begun {
		time.Sleep(time.Millisecond) // Until the first commits are through.
	}
	time.Sleep(after)
	promised := engine.Sequence(known.Load())
	s.place.Crash(s.T)
	close(stop)
	running.Wait()
	s.open()
	snapshot := s.snapshot(s.space(1))
	defer snapshot.Release()
	if snapshot.Sequence() < promised {
		s.Fatalf("after the crash the space is at %d; %d was acknowledged or shown", snapshot.Sequence(), promised)
	}
	for _, part := range []string{"left", "middle", "right"} {
		rows := s.scan(snapshot, engine.PrefixRange([]byte(part)), false)
		if engine.Sequence(len(rows)) != snapshot.Sequence() {
			s.Fatalf("after the crash the space is at %d and holds %d entries of the %s", snapshot.Sequence(), len(rows), part)
		}
		for i, row := range rows {
			if row.sequence != engine.Sequence(i+1) || row.key != fmt.Sprintf("%s %06d", part, i+1) {
				s.Fatalf("after the crash entry %d of the %s is %q of commit %d", i+1, part, row.key, row.sequence)
			}
		}
	}
}
