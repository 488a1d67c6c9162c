package enginetest

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

var cutTests = []contractTest{
	{name: "a cut of an empty store has no spaces", run: func(s *suite) {
		s.wantSpaces(s.cut())
		s.commit(s.space(3), func(engine.Commit) {}) // Opened, and not committed to.
		s.wantSpaces(s.cut())
	}},

	{name: "a cut shows every space as it was, whatever comes after it", run: func(s *suite) {
		s.set(s.space(engine.Root), "root")
		s.set(s.space(7), "a")
		s.set(s.space(7), "b")
		s.set(s.space(300), "c")
		s.set(s.space(8), "gone")
		s.noError(s.engine.DropSpace(ctx, 8))
		cut := s.cut()
		s.wantSpaces(cut, engine.Root, 7, 300)
		s.set(s.space(7), "later")
		s.set(s.space(9), "later")
		s.noError(s.engine.DropSpace(ctx, 300))
		s.wantSpaces(cut, engine.Root, 7, 300)
		s.wantKeys(cut.Space(engine.Root), engine.Range{}, false, "root")
		s.wantKeys(cut.Space(7), engine.Range{}, false, "a", "b")
		s.wantKeys(cut.Space(300), engine.Range{}, false, "c")
		s.want(cut.Space(7), "b", "b", 2)
		if sequence := cut.Space(7).Sequence(); sequence != 2 {
			s.Fatalf("space 7 is at %d, want 2", sequence)
		}
		s.wantSpaces(s.cut(), engine.Root, 7, 9)
	}},

	{name: "a cut of a store that was opened again has what was committed before", reopens: true, run: func(s *suite) {
		s.set(s.space(1), "a")
		s.reopen()
		cut := s.cut()
		s.wantSpaces(cut, 1)
		s.wantKeys(cut.Space(1), engine.Range{}, false, "a")
	}},

	{name: "what a cut has of one space it has of those before it", run: func(s *suite) {
		// One writer counts through the spaces in turn: a cut that has round n of
		// a later space must have it of the earlier ones.
		spaces := []engine.Space{s.space(3), s.space(1), s.space(2)}
		stop := make(chan struct{})
		var writing sync.WaitGroup
		writing.Go(func() {
			for round := uint64(1); ; round++ {
				for _, space := range spaces {
					select {
					case <-stop:
						return
					default:
					}
					_, err := space.Commit(ctx, func(c engine.Commit) error {
						c.Set([]byte("round"), binary.BigEndian.AppendUint64(nil, round))
						return nil
					})
					if err != nil {
						s.Error(err)
						return
					}
				}
			}
		})
		for range 30 {
			cut, err := s.engine.Cut(ctx)
			s.noError(err)
			var rounds []uint64
			for _, id := range []engine.SpaceID{3, 1, 2} {
				round := uint64(0)
				if slices.Contains(cut.Spaces(), id) {
					round = binary.BigEndian.Uint64(s.get(cut.Space(id), "round").Value)
				}
				rounds = append(rounds, round)
			}
			cut.Release()
			if rounds[0] < rounds[1] || rounds[1] < rounds[2] || rounds[0] > rounds[2]+1 {
				s.Errorf("a cut has the rounds %d of spaces that are written in turn", rounds)
				break
			}
		}
		close(stop)
		writing.Wait()
	}},

	{name: "what a cut has a crash does not take", crashes: true, run: func(s *suite) {
		space := s.space(1)
		var writing sync.WaitGroup
		for range 4 {
			writing.Go(func() {
				for range 10 {
					_, _ = space.Commit(ctx, func(c engine.Commit) error {
						c.Set([]byte("a"), nil)
						return nil
					})
				}
			})
		}
		var seen engine.Sequence
		for range 5 {
			cut, err := s.engine.Cut(ctx)
			s.noError(err)
			if len(cut.Spaces()) > 0 {
				seen = cut.Space(1).Sequence()
			}
			cut.Release()
		}
		s.place.Crash(s.T)
		writing.Wait()
		s.open()
		if now := s.snapshot(s.space(1)).Sequence(); now < seen {
			s.Fatalf("the store is at %d, and a cut showed %d", now, seen)
		}
	}},

	{name: "a cut that was released is not read", run: func(s *suite) {
		s.set(s.space(1), "a")
		cut, err := s.engine.Cut(ctx)
		s.noError(err)
		shown := cut.Space(1)
		cut.Release()
		cut.Release()
		_, err = shown.Get(ctx, []byte("a"))
		s.wantKind(err, fault.Internal)
		s.noError(s.engine.Close())
		_, err = s.engine.Cut(ctx)
		s.wantKind(err, fault.Unavailable)
	}},
}

// cut returns a cut that is released at the end of the test.
func (s *suite) cut() engine.Cut {
	s.Helper()
	cut, err := s.engine.Cut(ctx)
	s.noError(err)
	s.Cleanup(cut.Release)
	return cut
}

func (s *suite) wantSpaces(cut engine.Cut, ids ...engine.SpaceID) {
	s.Helper()
	if got := cut.Spaces(); !slices.Equal(got, ids) {
		s.Fatalf("the cut has the spaces %d, want %d", got, ids)
	}
}
