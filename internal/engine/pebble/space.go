package pebble

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	crdb "github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// space is one space, and the stages of its commits:
//
//	with the turn held:
//	  run the form
//	  apply the batch, so that the next form reads it; Pebble queues it for its log
//	  take a Pebble snapshot, which holds this commit and none after it
//	without it:
//	  wait for the sync, which is shared with the commits applied meanwhile
//	  publish the snapshot, unless that of a later commit was published already
//
// A commit that is durable implies that those before it in its space are: they
// are before it in Pebble's log, and a log is only followed by a next one when
// all of it is synced.
type space struct {
	engine *Engine
	id     engine.SpaceID
	prefix prefix

	// turn holds a token while a commit is formed and applied. It is a channel
	// and not a mutex, because those who wait are served in their order, and
	// can be told of a failure.
	turn chan struct{}
	// The following are protected by turn.
	latest engine.Sequence
	gone   bool

	mu sync.Mutex
	// The following are protected by mu.
	durable engine.Sequence
	// published is the state after durable, nil once the space was dropped or
	// the engine closed.
	published *state
	dropped   bool
	// changed is closed when durable moves or the space goes, nil while nobody
	// waits for that.
	changed chan struct{}
}

func newSpace(e *Engine, id engine.SpaceID, row spaceRow) *space {
	s := &space{
		engine:  e,
		id:      id,
		prefix:  prefixOf(id),
		turn:    make(chan struct{}, 1),
		latest:  row.sequence,
		gone:    row.dropped,
		durable: row.sequence,
		dropped: row.dropped,
	}
	if !row.dropped {
		// What Pebble recovered when it was opened it has flushed, so all that
		// is there is durable, and nobody committed to this space since.
		s.published = e.newState(row.sequence)
	}
	return s
}

// Snapshot returns the state after the newest durable commit.
func (s *space) Snapshot(ctx context.Context) (engine.Snapshot, error) {
	if !s.engine.gate.enter() {
		return nil, errClosed()
	}
	defer s.engine.gate.leave()
	if err := ctx.Err(); err != nil {
		return nil, cancelled(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return nil, s.errDropped()
	}
	s.published.users.Add(1)
	s.engine.snapshots.Add(1)
	return &snapshot{
		reader: reader{engine: s.engine, prefix: s.prefix, from: s.published.pebble, sequence: s.published.sequence, gated: true},
		state:  s.published,
	}, nil
}

// Commit runs form alone and makes what it wrote durable.
func (s *space) Commit(ctx context.Context, form func(engine.Commit) error) (engine.Sequence, error) {
	if !s.engine.gate.enter() {
		return 0, errClosed()
	}
	defer s.engine.gate.leave()
	w, err := s.form(ctx, form)
	if err != nil {
		return 0, err
	}
	if w.batch == nil {
		return w.sequence, s.awaitDurable(ctx, w.sequence)
	}
	return w.sequence, w.wait()
}

// form takes its turn, runs form, and applies what it wrote. A write without a
// batch is that of a form that wrote nothing.
func (s *space) form(ctx context.Context, form func(engine.Commit) error) (*write, error) {
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	defer s.give()
	c := newCommit(s)
	if err := form(c); err != nil {
		c.discard()
		return nil, err
	}
	if c.tooLarge {
		size := c.batch.Len()
		c.discard()
		return nil, fault.New(fault.TooLarge, "a commit of %d bytes; at most %d are taken, commit in parts", size, maxCommitBytes)
	}
	if c.batch == nil || c.batch.Empty() {
		c.discard()
		return &write{sequence: s.latest}, nil
	}
	row := spaceRow{sequence: s.latest + 1, time: c.now}
	return s.apply(c.batch, row)
}

// apply adds the space's row to a batch and applies it. The turn is held.
func (s *space) apply(batch *crdb.Batch, row spaceRow) (*write, error) {
	if err := batch.Set(rowKey(s.id), row.encode(), nil); err != nil {
		return nil, s.engine.failure.reading(err)
	}
	s.latest = row.sequence
	s.gone = row.dropped
	w := &write{
		space:    s,
		batch:    batch,
		sequence: row.sequence,
		dropped:  row.dropped,
		applied:  make(chan struct{}),
		finished: make(chan struct{}),
	}
	go w.run()
	// A write that failed is told by wait. What comes after it reads what may
	// not be there, but is refused as well, in take or by its own sync.
	s.engine.failure.await(w.applied, grace)
	return w, nil
}

// take waits for the turn.
func (s *space) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return cancelled(ctx.Err())
	case <-s.engine.failure.happened:
		return s.engine.failure.err()
	}
	if err := s.engine.failure.err(); err != nil {
		s.give()
		return err
	}
	if s.gone {
		s.give()
		return s.errDropped()
	}
	return nil
}

func (s *space) give() { <-s.turn }

func (s *space) errDropped() error {
	return fault.New(fault.NotFound, "the space %d was dropped", s.id)
}

// awaitDurable waits until a commit that was applied is durable.
func (s *space) awaitDurable(ctx context.Context, sequence engine.Sequence) error {
	for {
		s.mu.Lock()
		if s.durable >= sequence || s.dropped {
			s.mu.Unlock()
			return nil
		}
		changed := s.changedLocked()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return cancelled(ctx.Err())
		case <-s.engine.failure.happened:
			return s.engine.failure.err()
		}
	}
}

// Changed returns a channel that is closed once there is a durable commit
// after the given one.
func (s *space) Changed(after engine.Sequence) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.durable > after || s.dropped || s.engine.gate.closed() {
		return alreadyClosed
	}
	return s.changedLocked()
}

var alreadyClosed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// changedLocked is called with mu held.
func (s *space) changedLocked() chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// publish makes a state that is durable the one that snapshots show.
func (s *space) publish(next *state) {
	s.mu.Lock()
	if s.dropped || next.sequence <= s.durable {
		s.mu.Unlock()
		next.release()
		return
	}
	previous := s.published
	s.published = next
	s.durable = next.sequence
	s.wakeLocked()
	s.mu.Unlock()
	previous.release()
}

// wakeLocked is called with mu held.
func (s *space) wakeLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// wake tells those who wait that the engine is closed.
func (s *space) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeLocked()
}

// refresh replaces the published state by a younger one of the same commit,
// where there were commits to other spaces since it was taken.
func (s *space) refresh() {
	select {
	case s.turn <- struct{}{}:
	default:
		return // A commit is being formed, which brings a state of its own.
	}
	defer s.give()
	s.mu.Lock()
	idle := !s.dropped && s.durable == s.latest && s.published.commits != s.engine.commits.Load()
	s.mu.Unlock()
	if !idle || s.engine.failure.err() != nil {
		return
	}
	next := s.engine.newState(s.latest)
	s.mu.Lock()
	previous := s.published
	s.published = next
	s.mu.Unlock()
	previous.release()
}

// drop removes all of the space.
func (s *space) drop(ctx context.Context) error {
	w, err := s.formDrop(ctx)
	if err != nil || w == nil {
		return err
	}
	return w.wait()
}

// formDrop applies the removal, and returns nil if the space is gone already.
func (s *space) formDrop(ctx context.Context) (*write, error) {
	err := s.take(ctx)
	if err != nil {
		if s.isDropped() {
			return nil, nil
		}
		return nil, err
	}
	defer s.give()
	c := newCommit(s)
	c.DeleteRange(engine.Range{})
	return s.apply(c.batch, spaceRow{dropped: true, sequence: s.latest, time: c.now})
}

func (s *space) isDropped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// unpublish ends the space for new snapshots and those who wait.
func (s *space) unpublish() {
	s.mu.Lock()
	previous := s.published
	s.published = nil
	s.dropped = true
	s.wakeLocked()
	s.mu.Unlock()
	if previous != nil {
		previous.release()
	}
}

// write is a batch on its way to the disk.
type write struct {
	space    *space
	batch    *crdb.Batch
	sequence engine.Sequence
	dropped  bool

	// applied is closed when Pebble shows the batch, or failed to take it.
	applied chan struct{}
	// finished is closed when the batch is durable or failed; err is set then.
	finished chan struct{}
	err      error
}

// wait returns when the write is durable or has failed.
func (w *write) wait() error {
	failure := w.space.engine.failure
	if !failure.await(w.finished, grace) || w.err != nil {
		return failure.err()
	}
	return nil
}

// run has a goroutine of its own, because after a failure Pebble may end it or
// keep it for good: see pebbleLogger and fence.
func (w *write) run() {
	err := errEnded
	applied := false
	defer func() {
		if err = recovered(recover(), err); err != nil {
			w.err = err
			w.space.engine.failure.record(fmt.Errorf("commit %d of space %d: %w", w.sequence, w.space.id, err))
		}
		if !applied {
			close(w.applied)
		}
		close(w.finished)
	}()
	e := w.space.engine
	if failed := e.db.ApplyNoSyncWait(w.batch, crdb.Sync); failed != nil {
		err = failed
		return
	}
	e.commits.Add(1)
	var next *state
	if !w.dropped {
		next = e.newState(w.sequence)
	}
	applied = true
	close(w.applied)
	if failed := w.batch.SyncWait(); failed != nil {
		err = failed
		return
	}
	_ = w.batch.Close() // Gives the batch back to Pebble's pool, and cannot fail.
	if w.dropped {
		w.space.unpublish()
	} else {
		e.durable.Add(1)
		w.space.publish(next)
	}
	err = nil
}

// state is a Pebble snapshot at a commit, shared by the snapshots that were
// handed out of it.
type state struct {
	engine   *Engine
	pebble   *crdb.Snapshot
	sequence engine.Sequence
	// commits is about what Engine.commits was when the state was taken.
	commits uint64

	// users counts the snapshots handed out, and one more while published.
	users atomic.Int64
}

// newState takes the state of a space now. The space's turn is held.
func (e *Engine) newState(sequence engine.Sequence) *state {
	commits := e.commits.Load()
	st := &state{engine: e, pebble: e.db.NewSnapshot(), sequence: sequence, commits: commits}
	st.users.Store(1)
	return st
}

// release ends one use, and the Pebble snapshot with the last.
func (st *state) release() {
	if st.users.Add(-1) > 0 || st.engine.failure.err() != nil {
		// After a failure someone may have stopped with Pebble's lock in hand.
		return
	}
	_ = st.pebble.Close() // It cannot fail.
}
