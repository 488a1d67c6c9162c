// Package enginetest is the contract of package engine as a test suite. Every
// engine passes it unchanged, so nothing in it knows how an engine works.
//
// A test of an engine calls Run with what opens it:
//
//	func TestContract(t *testing.T) {
//		enginetest.Run(t, func(t *testing.T) enginetest.Place {
//			directory := t.TempDir()
//			return enginetest.Place{Open: func(t *testing.T) engine.Engine { … }}
//		})
//	}
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Place is where one store is kept, empty at first.
type Place struct {
	// Open opens the store. The suite closes the engine, and where Forgets is
	// not set opens the store again, once at a time.
	Open func(t *testing.T) engine.Engine

	// Forgets says that Close loses what was committed, as in memory.
	Forgets bool

	// Crash does to the store what a loss of power does: what is not durable
	// may be lost, in the middle of whatever the open engine does. The suite
	// calls Open afterwards without having closed that engine, and closes it at
	// the end of the test, ignoring how that ends. nil where it cannot be done.
	Crash func(t *testing.T)
}

// Run runs the suite. place is called for each test and returns an empty store.
func Run(t *testing.T, place func(t *testing.T) Place) {
	for _, group := range []struct {
		name  string
		tests []contractTest
	}{
		{"reads", readTests},
		{"commits", commitTests},
		{"spaces", spaceTests},
		{"cuts", cutTests},
		{"life", lifeTests},
		{"model", modelTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					s := &suite{T: t, place: place(t)}
					if test.reopens && s.place.Forgets {
						return
					}
					if test.crashes && s.place.Crash == nil {
						return
					}
					s.open()
					test.run(s)
				})
			}
		})
	}
}

// contractTest is one sentence of the contract.
type contractTest struct {
	name string
	// reopens and crashes say what the place must be able to do.
	reopens, crashes bool
	run              func(s *suite)
}

// suite is one test at work, on an open engine.
type suite struct {
	*testing.T
	place  Place
	engine engine.Engine
}

// ctx has no end: a test that hangs is ended by go test's own.
var ctx = context.Background()

// open opens the store, and closes it at the end of the test.
func (s *suite) open() {
	s.Helper()
	e := s.place.Open(s.T)
	s.engine = e
	s.Cleanup(func() { _ = e.Close() }) // Most tests have closed it, or crashed it.
}

func (s *suite) reopen() {
	s.Helper()
	s.noError(s.engine.Close())
	s.open()
}

func (s *suite) noError(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) space(id engine.SpaceID) engine.Space {
	s.Helper()
	space, err := s.engine.Space(ctx, id)
	s.noError(err)
	return space
}

// commit commits what form does, and returns the commit's sequence.
func (s *suite) commit(space engine.Space, form func(c engine.Commit)) engine.Sequence {
	s.Helper()
	sequence, err := space.Commit(ctx, func(c engine.Commit) error {
		form(c)
		return nil
	})
	s.noError(err)
	return sequence
}

// set commits keys, each with itself as its value.
func (s *suite) set(space engine.Space, keys ...string) engine.Sequence {
	s.Helper()
	return s.commit(space, func(c engine.Commit) {
		for _, key := range keys {
			c.Set([]byte(key), []byte(key))
		}
	})
}

// snapshot returns a snapshot that is released at the end of the test.
func (s *suite) snapshot(space engine.Space) engine.Snapshot {
	s.Helper()
	snapshot, err := space.Snapshot(ctx)
	s.noError(err)
	s.Cleanup(snapshot.Release)
	return snapshot
}

func (s *suite) get(r engine.Reader, key string) engine.Entry {
	s.Helper()
	entry, err := r.Get(ctx, []byte(key))
	s.noError(err)
	return entry
}

// want fails unless the reader has the value and version for a key.
func (s *suite) want(r engine.Reader, key, value string, sequence engine.Sequence) {
	s.Helper()
	if entry := s.get(r, key); string(entry.Value) != value || entry.Sequence != sequence {
		s.Fatalf("%q is %q of commit %d, want %q of commit %d", key, entry.Value, entry.Sequence, value, sequence)
	}
}

func (s *suite) wantNone(r engine.Reader, key string) {
	s.Helper()
	if entry := s.get(r, key); entry.Value != nil || entry.Sequence != 0 {
		s.Fatalf("%q is %q of commit %d, want none", key, entry.Value, entry.Sequence)
	}
}

// wantKeys fails unless a scan shows these keys, in this order.
func (s *suite) wantKeys(r engine.Reader, scanned engine.Range, reverse bool, keys ...string) {
	s.Helper()
	var got []string
	for _, row := range s.scan(r, scanned, reverse) {
		got = append(got, row.key)
	}
	if !slices.Equal(got, keys) {
		s.Fatalf("scan of %q to %q, reverse %v: got %q, want %q", scanned.From, scanned.To, reverse, got, keys)
	}
}

func (s *suite) scan(r engine.Reader, scanned engine.Range, reverse bool) []row {
	s.Helper()
	rows, err := scan(r, scanned, reverse)
	s.noError(err)
	return rows
}

// wantKind fails unless err is of the kind.
func (s *suite) wantKind(err error, kind fault.Kind) {
	s.Helper()
	if !errors.Is(err, kind) {
		s.Fatalf("got %v, want an error of kind %s", err, kind)
	}
}

// wantClosed fails unless the channel is closed, soon.
func (s *suite) wantClosed(changed <-chan struct{}) {
	s.Helper()
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		s.Fatal("the channel of Changed was not closed")
	}
}

func (s *suite) wantOpen(changed <-chan struct{}) {
	s.Helper()
	select {
	case <-changed:
		s.Fatal("the channel of Changed was closed without a change")
	case <-time.After(20 * time.Millisecond):
	}
}

// row is what an iterator shows, copied.
type row struct {
	key, value string
	sequence   engine.Sequence
}

func (r row) String() string { return fmt.Sprintf("%q=%q@%d", r.key, r.value, r.sequence) }

func scan(r engine.Reader, scanned engine.Range, reverse bool) ([]row, error) {
	iterator := r.Scan(ctx, scanned, reverse, 0)
	var rows []row
	for iterator.Next() {
		rows = append(rows, row{string(iterator.Key()), string(iterator.Value()), iterator.Sequence()})
	}
	return rows, iterator.Close()
}

func key(format string, args ...any) []byte { return fmt.Appendf(nil, format, args...) }
