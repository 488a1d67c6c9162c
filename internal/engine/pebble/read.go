package pebble

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"

	crdb "github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// source is what a reader reads: a Pebble snapshot, or all that was applied.
type source interface {
	Get(key []byte) ([]byte, io.Closer, error)
	NewIterWithContext(ctx context.Context, o *crdb.IterOptions) (*crdb.Iterator, error)
}

// reader reads one state of a space.
type reader struct {
	engine   *Engine
	prefix   prefix
	from     source
	sequence engine.Sequence
	// gated is false inside a form, whose Commit has passed the gate already:
	// Close waits for it, and it must not be turned away meanwhile.
	gated bool
}

func (r *reader) Sequence() engine.Sequence { return r.sequence }

func (r *reader) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	if r.gated && !r.engine.gate.enter() {
		return errClosed()
	}
	return nil
}

func (r *reader) leave() {
	if r.gated {
		r.engine.gate.leave()
	}
}

func (r *reader) Get(ctx context.Context, key []byte) (engine.Entry, error) {
	if err := r.enter(ctx); err != nil {
		return engine.Entry{}, err
	}
	defer r.leave()
	return r.get(r.prefix.key(key))
}

func (r *reader) get(prefixed []byte) (engine.Entry, error) {
	stored, closer, err := r.from.Get(prefixed)
	if errors.Is(err, crdb.ErrNotFound) {
		return engine.Entry{}, nil
	}
	if err != nil {
		return engine.Entry{}, r.engine.failure.reading(err)
	}
	sequence, value, err := split(stored)
	entry := engine.Entry{Value: append(make([]byte, 0, len(value)), value...), Sequence: sequence}
	if err := errors.Join(err, closer.Close()); err != nil {
		return engine.Entry{}, r.engine.failure.reading(err)
	}
	return entry, nil
}

func (r *reader) GetMany(ctx context.Context, keys [][]byte) ([]engine.Entry, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	entries := make([]engine.Entry, len(keys))
	prefixed := r.prefix.key(nil)
	for i, key := range keys {
		if i%contextEvery == contextEvery-1 && ctx.Err() != nil {
			return nil, cancelled(ctx.Err())
		}
		prefixed = append(prefixed[:prefixBytes], key...)
		var err error
		if entries[i], err = r.get(prefixed); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// contextEvery is after how many entries a read looks whether it is cancelled.
const contextEvery = 256

func (r *reader) Scan(ctx context.Context, scanned engine.Range, reverse bool, _ int) engine.Iterator {
	if err := r.enter(ctx); err != nil {
		return &iterator{err: err}
	}
	defer r.leave()
	if empty(scanned) {
		return &iterator{}
	}
	from, to := r.prefix.bounds(scanned)
	if !r.engine.iterators.enter() {
		return &iterator{err: errClosed()}
	}
	pebble, err := r.from.NewIterWithContext(ctx, &crdb.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		r.engine.iterators.leave()
		return &iterator{err: r.engine.failure.reading(err)}
	}
	return &iterator{reader: r, ctx: ctx, pebble: pebble, reverse: reverse}
}

func empty(r engine.Range) bool { return r.To != nil && bytes.Compare(r.From, r.To) >= 0 }

// iterator splits what a Pebble iterator shows, without a copy.
type iterator struct {
	reader  *reader
	ctx     context.Context
	pebble  *crdb.Iterator // nil where there is nothing to iterate over
	reverse bool
	// read counts the calls of Next.
	read     int
	value    []byte
	sequence engine.Sequence
	err      error
}

func (it *iterator) Next() bool {
	if it.pebble == nil || it.err != nil {
		return false
	}
	it.read++
	if it.read%contextEvery == 0 {
		if err := it.ctx.Err(); err != nil {
			it.err = cancelled(err)
			return false
		}
	}
	if !it.move() {
		return false
	}
	stored, err := it.pebble.ValueAndErr()
	if err == nil {
		it.sequence, it.value, err = split(stored)
	}
	if err != nil {
		it.err = it.reader.engine.failure.reading(err)
		return false
	}
	return true
}

func (it *iterator) move() bool {
	switch {
	case it.read > 1 && it.reverse:
		return it.pebble.Prev()
	case it.read > 1:
		return it.pebble.Next()
	case it.reverse:
		return it.pebble.Last()
	default:
		return it.pebble.First()
	}
}

func (it *iterator) Key() []byte               { return it.pebble.Key()[prefixBytes:] }
func (it *iterator) Value() []byte             { return it.value }
func (it *iterator) Sequence() engine.Sequence { return it.sequence }

func (it *iterator) Close() error {
	if it.pebble == nil {
		return it.err
	}
	err := it.pebble.Close()
	it.pebble = nil
	it.reader.engine.iterators.leave()
	if err != nil && it.err == nil {
		it.err = it.reader.engine.failure.reading(err)
	}
	return it.err
}

// snapshot is a use of a published state.
type snapshot struct {
	reader
	state    *state
	released atomic.Bool
}

// Release ends the use; a second call does nothing.
func (s *snapshot) Release() {
	if s.released.Swap(true) {
		return
	}
	s.engine.snapshots.Add(-1)
	if !s.engine.gate.enter() {
		return // Close has taken everything with it.
	}
	defer s.engine.gate.leave()
	s.state.release()
}

func (s *snapshot) Get(ctx context.Context, key []byte) (engine.Entry, error) {
	if s.released.Load() {
		return engine.Entry{}, errReleased()
	}
	return s.reader.Get(ctx, key)
}

func (s *snapshot) GetMany(ctx context.Context, keys [][]byte) ([]engine.Entry, error) {
	if s.released.Load() {
		return nil, errReleased()
	}
	return s.reader.GetMany(ctx, keys)
}

func (s *snapshot) Scan(ctx context.Context, r engine.Range, reverse bool, limit int) engine.Iterator {
	if s.released.Load() {
		return &iterator{err: errReleased()}
	}
	return s.reader.Scan(ctx, r, reverse, limit)
}

func errReleased() error {
	return fault.New(fault.Internal, "a snapshot was read after its release")
}
