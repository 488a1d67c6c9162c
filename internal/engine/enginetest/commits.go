package enginetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

var errRefused = errors.New("the form refused")

var commitTests = []contractTest{
	{name: "commits are numbered 1, 2, 3 and shown by the next snapshot", run: func(s *suite) {
		space := s.space(1)
		for want := engine.Sequence(1); want <= 5; want++ {
			sequence := s.commit(space, func(c engine.Commit) {
				if c.Sequence() != want-1 {
					s.Errorf("the form of commit %d reads %d", want, c.Sequence())
				}
				c.Set([]byte("a"), key("%d", want))
			})
			if sequence != want {
				s.Fatalf("commit %d has sequence %d", want, sequence)
			}
			snapshot := s.snapshot(space)
			if snapshot.Sequence() != want {
				s.Fatalf("after commit %d a snapshot is of %d", want, snapshot.Sequence())
			}
			s.want(snapshot, "a", strconv.Itoa(int(want)), want)
		}
	}},

	{name: "a form reads the latest state and not what it writes", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a", "b", "c")
		s.commit(space, func(c engine.Commit) {
			c.Set([]byte("a"), []byte("new"))
			c.Set([]byte("d"), []byte("d"))
			c.Delete([]byte("b"))
			c.DeleteRange(engine.Range{From: []byte("c"), To: []byte("d")})
			s.want(c, "a", "a", 1)
			s.want(c, "b", "b", 1)
			s.wantNone(c, "d")
			s.wantKeys(c, engine.Range{}, false, "a", "b", "c")
			s.wantKeys(c, engine.Range{}, true, "c", "b", "a")
			entries, err := c.GetMany(ctx, [][]byte{[]byte("d"), []byte("c")})
			s.noError(err)
			if entries[0].Sequence != 0 || string(entries[1].Value) != "c" {
				s.Errorf("GetMany shows %v", entries)
			}
		})
		s.wantKeys(s.snapshot(space), engine.Range{}, false, "a", "d")
	}},

	{name: "what a form writes takes effect in the order of its calls", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a", "b", "c", "d", "e")
		s.commit(space, func(c engine.Commit) {
			c.Set([]byte("a"), []byte("1"))
			c.Set([]byte("a"), []byte("2"))
			c.Set([]byte("b1"), nil)
			c.DeleteRange(engine.Range{From: []byte("b"), To: []byte("e")})
			c.Set([]byte("c"), []byte("again"))
			c.Set([]byte("f"), nil)
			c.Delete([]byte("f"))
			c.Delete([]byte("e"))
			c.Set([]byte("e"), []byte("back"))
		})
		snapshot := s.snapshot(space)
		s.wantKeys(snapshot, engine.Range{}, false, "a", "c", "e")
		s.want(snapshot, "a", "2", 2)
		s.want(snapshot, "c", "again", 2)
		s.want(snapshot, "e", "back", 2)
	}},

	{name: "a range that is deleted is that of a scan", run: func(s *suite) {
		space := s.space(1)
		keys := []string{"", "a", "b", "c", "\xff", "\xff\xff"}
		for _, deleted := range []engine.Range{
			{From: []byte("a"), To: []byte("c")},
			{From: []byte("b")},
			{To: []byte("b")},
			{From: []byte("c"), To: []byte("a")},
			{From: []byte("a"), To: []byte("a")},
			{From: []byte("\xff\xff")},
			{},
		} {
			s.set(space, keys...)
			var gone []string
			for _, row := range s.scan(s.snapshot(space), deleted, false) {
				gone = append(gone, row.key)
			}
			s.commit(space, func(c engine.Commit) { c.DeleteRange(deleted) })
			kept := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return slices.Contains(gone, k) })
			s.wantKeys(s.snapshot(space), engine.Range{}, false, kept...)
		}
	}},

	{name: "deleting what is not there is a commit like another", run: func(s *suite) {
		space := s.space(1)
		if sequence := s.commit(space, func(c engine.Commit) { c.Delete([]byte("a")) }); sequence != 1 {
			s.Fatalf("sequence %d, want 1", sequence)
		}
		s.wantNone(s.snapshot(space), "a")
	}},

	{name: "keys and values are copied when they are given", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "x", "y")
		s.commit(space, func(c engine.Commit) {
			buffer := []byte("a")
			c.Set(buffer, buffer)
			buffer[0] = 'x'
			c.Delete(buffer)
			buffer[0] = 'y'
			end := []byte("z")
			c.DeleteRange(engine.Range{From: buffer, To: end})
			buffer[0], end[0] = 'b', 'b'
			c.Set(buffer, []byte("b"))
			buffer[0] = '!'
		})
		snapshot := s.snapshot(space)
		s.wantKeys(snapshot, engine.Range{}, false, "a", "b")
		s.want(snapshot, "a", "a", 2)
	}},

	{name: "a form that fails writes nothing and its error is returned", run: func(s *suite) {
		space := s.space(1)
		s.set(space, "a")
		_, err := space.Commit(ctx, func(c engine.Commit) error {
			c.Set([]byte("b"), nil)
			c.DeleteRange(engine.Range{})
			return errRefused
		})
		if !errors.Is(err, errRefused) {
			s.Fatalf("got %v, want the form's error", err)
		}
		if sequence := s.snapshot(space).Sequence(); sequence != 1 {
			s.Fatalf("a failed form used the sequence %d", sequence)
		}
		s.wantKeys(s.snapshot(space), engine.Range{}, false, "a")
		if sequence := s.set(space, "c"); sequence != 2 {
			s.Fatalf("the commit after it has the sequence %d, want 2", sequence)
		}
	}},

	{name: "a form that writes nothing uses no sequence and answers the one it read", run: func(s *suite) {
		space := s.space(1)
		nothing := func(engine.Commit) {}
		if sequence := s.commit(space, nothing); sequence != 0 {
			s.Fatalf("in an empty space it answers %d", sequence)
		}
		s.set(space, "a")
		if sequence := s.commit(space, nothing); sequence != 1 {
			s.Fatalf("after one commit it answers %d", sequence)
		}
		if sequence := s.set(space, "b"); sequence != 2 {
			s.Fatalf("the commit after it has the sequence %d, want 2", sequence)
		}
	}},

	{name: "forms run alone, and read all commits before them", run: func(s *suite) {
		space := s.space(1)
		const goroutines, each = 16, 20
		var inside atomic.Int32
		var mu sync.Mutex
		var sequences []engine.Sequence
		var committers sync.WaitGroup
		for range goroutines {
			committers.Go(func() {
				for range each {
					sequence, err := space.Commit(ctx, func(c engine.Commit) error {
						if inside.Add(1) != 1 {
							s.Error("two forms at once")
						}
						defer inside.Add(-1)
						entry, err := c.Get(ctx, []byte("counter"))
						if err != nil {
							return err
						}
						count, _ := strconv.Atoi(string(entry.Value))
						if engine.Sequence(count) != c.Sequence() || entry.Sequence != c.Sequence() {
							s.Errorf("commit %d reads %d, of commit %d", c.Sequence()+1, count, entry.Sequence)
						}
						c.Set([]byte("counter"), strconv.AppendInt(nil, int64(count+1), 10))
						return nil
					})
					if err != nil {
						s.Error(err)
						return
					}
					mu.Lock()
					sequences = append(sequences, sequence)
					mu.Unlock()
				}
			})
		}
		committers.Wait()
		slices.Sort(sequences)
		for i, sequence := range sequences {
			if sequence != engine.Sequence(i+1) {
				s.Fatalf("the sequences are %v", sequences)
			}
		}
		s.want(s.snapshot(space), "counter", strconv.Itoa(goroutines*each), goroutines*each)
	}},

	{name: "commits take their turns in the order of the calls", run: func(s *suite) {
		space := s.space(1)
		release := make(chan struct{})
		started := make(chan struct{})
		var mu sync.Mutex
		var order []int
		var committers sync.WaitGroup
		enter := func(number int, wait func()) {
			committers.Go(func() {
				_, err := space.Commit(ctx, func(c engine.Commit) error {
					wait()
					mu.Lock()
					defer mu.Unlock()
					order = append(order, number)
					c.Set([]byte("a"), key("%d", number))
					return nil
				})
				if err != nil {
					s.Error(err)
				}
			})
		}
		enter(0, func() {
			close(started)
			<-release
		})
		<-started
		const waiting = 6
		for number := 1; number <= waiting; number++ {
			enter(number, func() {})
			time.Sleep(20 * time.Millisecond) // Long enough for the call to be made.
		}
		close(release)
		committers.Wait()
		if !slices.IsSorted(order) || len(order) != waiting+1 {
			s.Fatalf("the order of the turns is %v", order)
		}
	}},

	{name: "what a form read is durable when its commit returns, also if it wrote nothing", run: func(s *suite) {
		space := s.space(1)
		var committers sync.WaitGroup
		for number := range 8 {
			committers.Go(func() {
				for i := range 20 {
					sequence, err := space.Commit(ctx, func(c engine.Commit) error {
						if (number+i)%2 == 0 {
							c.Set(key("%d", number), key("%d", i))
						}
						return nil
					})
					if err != nil {
						s.Error(err)
						return
					}
					snapshot, err := space.Snapshot(ctx)
					if err != nil {
						s.Error(err)
						return
					}
					if snapshot.Sequence() < sequence {
						s.Errorf("Commit answered %d, and a snapshot after it is of %d", sequence, snapshot.Sequence())
					}
					snapshot.Release()
				}
			})
		}
		committers.Wait()
	}},

	{name: "snapshots move forward only, and each shows whole commits", run: func(s *suite) {
		space := s.space(1)
		done := make(chan struct{})
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				var previous engine.Sequence
				for {
					select {
					case <-done:
						return
					default:
					}
					snapshot, err := space.Snapshot(ctx)
					if err != nil {
						s.Error(err)
						return
					}
					if snapshot.Sequence() < previous {
						s.Errorf("a snapshot of %d after one of %d", snapshot.Sequence(), previous)
					}
					previous = snapshot.Sequence()
					rows, err := scan(snapshot, engine.Range{}, false)
					if err != nil {
						s.Error(err)
					}
					for _, row := range rows {
						if row.sequence != previous || row.value != strconv.Itoa(int(previous)) {
							s.Errorf("a snapshot of %d shows %v", previous, row)
						}
					}
					snapshot.Release()
				}
			})
		}
		for range 50 {
			s.commit(space, func(c engine.Commit) {
				for i := range 5 {
					c.Set(key("%d", i), key("%d", c.Sequence()+1))
				}
			})
		}
		close(done)
		readers.Wait()
	}},

	{name: "a context that ends takes back a commit that waits for its turn, and no other", run: func(s *suite) {
		space := s.space(1)
		ended, cancel := context.WithCancel(ctx)
		release := make(chan struct{})
		started := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			_, err := space.Commit(ended, func(c engine.Commit) error {
				close(started)
				<-release
				c.Set([]byte("first"), nil)
				return nil
			})
			if err != nil {
				s.Errorf("a commit that was formed when its context ended: %v", err)
			}
		})
		<-started
		refused := func(ctx context.Context, kind fault.Kind) {
			_, err := space.Commit(ctx, func(engine.Commit) error {
				s.Error("the form of a commit that was taken back ran")
				return nil
			})
			s.wantKind(err, kind)
		}
		time.AfterFunc(20*time.Millisecond, cancel)
		refused(ended, fault.Cancelled)
		refused(ended, fault.Cancelled)
		late, cancelLate := context.WithTimeout(ctx, time.Millisecond)
		defer cancelLate()
		refused(late, fault.Timeout)
		close(release)
		running.Wait()
		s.wantKeys(s.snapshot(space), engine.Range{}, false, "first")
		s.set(space, "second")
	}},
}
