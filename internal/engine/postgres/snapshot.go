package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// opening is a snapshot being opened, for all who asked before it was begun.
// Whoever asks while one is on its way waits for the next: the one on its way
// may not show a commit that was acknowledged, by whatever process, just now.
// So a thousand readers that wake at once cost one transaction or two.
type opening struct {
	// waiting counts those who wait. It is protected by the space's mu.
	waiting int
	// done is closed when state or err is there.
	done  chan struct{}
	state *state
	err   error
}

// Snapshot returns the state after the newest durable commit.
func (s *space) Snapshot(ctx context.Context) (engine.Snapshot, error) {
	e := s.engine
	if !e.gate.enter() {
		return nil, errClosed()
	}
	defer e.gate.leave()
	if err := ctx.Err(); err != nil {
		return nil, cancelled(err)
	}
	if e.forked.Load() {
		return nil, errForked()
	}
	o := s.join()
	select {
	case <-o.done:
	case <-ctx.Done():
		if s.leave(o) {
			return nil, cancelled(ctx.Err())
		}
		<-o.done
		o.state.release()
		return nil, cancelled(ctx.Err())
	}
	if o.err != nil {
		return nil, o.err
	}
	e.snapshots.Add(1)
	return newSnapshot(e, s.id, o.state), nil
}

// join returns the opening to wait for, and begins it if none is on its way.
func (s *space) join() *opening {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening == nil {
		s.opening = &opening{waiting: 1, done: make(chan struct{})}
		s.start(s.opening)
		return s.opening
	}
	if s.next == nil {
		s.next = &opening{done: make(chan struct{})}
	}
	s.next.waiting++
	return s.next
}

// start is called with mu held.
func (s *space) start(o *opening) {
	s.engine.background.Go(func() {
		st, err := s.open()
		s.mu.Lock()
		defer s.mu.Unlock()
		o.state, o.err = st, err
		if st != nil {
			st.users.Store(int64(o.waiting))
			if o.waiting == 0 {
				s.engine.background.Go(st.end)
			}
		}
		close(o.done)
		s.opening, s.next = s.next, nil
		if s.opening != nil {
			s.start(s.opening)
		}
	})
}

// leave takes back a wait for an opening, unless it holds a state already.
func (s *space) leave(o *opening) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-o.done:
		return o.state == nil
	default:
		o.waiting--
		return true
	}
}

// open opens a state of the space.
func (s *space) open() (*state, error) {
	e := s.engine
	if err := e.takeStateToken(); err != nil {
		return nil, err
	}
	var st *state
	err := e.persist(context.Background(), "open a snapshot", func(ctx context.Context) (err error) {
		st, err = s.begin(ctx)
		if errors.Is(err, errStale) {
			// Was it the server, or did PostgreSQL lose commits? Whoever may
			// write can tell.
			if h, lockErr := s.lockAny(ctx); lockErr == nil {
				h.session.end()
			} else if e.forked.Load() {
				return lockErr
			}
		}
		return err
	})
	if err != nil {
		<-e.openStates
		return nil, err
	}
	e.mu.Lock()
	e.states[st] = struct{}{}
	e.mu.Unlock()
	return st, nil
}

// takeStateToken waits until one more snapshot transaction may be open.
func (e *Engine) takeStateToken() error {
	timer := time.NewTimer(e.options.Patience)
	defer timer.Stop()
	select {
	case e.openStates <- struct{}{}:
		return nil
	case <-e.closing:
		return errClosed()
	case <-timer.C:
		return fault.New(fault.Unavailable, "%d snapshots are open, which is the limit of this process (MaxConns less %d); end some, or allow more connections",
			cap(e.openStates), connsForCommits)
	}
}

// setSnapshotTimeout lets a transaction that shows a state be idle for longer
// than one that holds a row.
var setSnapshotTimeout = fmt.Sprintf(`SET LOCAL idle_in_transaction_session_timeout = %d`, snapshotTimeout.Milliseconds())

// begin begins the transaction of a state.
func (s *space) begin(ctx context.Context) (*state, error) {
	known := s.newestKnown()
	var dropped bool
	var sequence *int64
	var mark, markOfKnown pgtype.UUID
	var standby string
	first := &pgx.Batch{}
	first.Queue(s.engine.sql.shown, int32(s.id), int64(known.sequence)).QueryRow(func(row pgx.Row) error {
		return row.Scan(&dropped, &sequence, &mark, &markOfKnown, &standby)
	})
	first.Queue(setSnapshotTimeout)
	session, err := s.engine.begin(ctx, beginSnapshot, first)
	if err != nil {
		return nil, err
	}
	latest := pointOf(sequence, mark)
	switch {
	case dropped:
		session.end()
		s.unpublish()
		return nil, s.errDropped()
	case standby == "on" || isFork(known, latest, markOfKnown):
		err := session.fail(errStale)
		session.end()
		return nil, err
	}
	s.publish(latest)
	return &state{session: session, sequence: latest.sequence}, nil
}

// state is a transaction that shows a state of a space.
type state struct {
	session  *session
	sequence engine.Sequence
	// users counts the snapshots that were handed out of it.
	users atomic.Int64
}

// release ends one use, and the transaction with the last.
func (st *state) release() {
	if st.users.Add(-1) == 0 {
		st.session.engine.background.Go(st.end) // Nobody waits for the rollback.
	}
}

// end ends the transaction. A second call does nothing.
func (st *state) end() {
	e := st.session.engine
	e.mu.Lock()
	_, open := e.states[st]
	delete(e.states, st)
	e.mu.Unlock()
	if open {
		st.session.end()
		<-e.openStates
	}
}

// snapshot is one use of a state.
type snapshot struct {
	reader
	state    *state
	released atomic.Bool
}

func newSnapshot(e *Engine, id engine.SpaceID, st *state) *snapshot {
	shown := &snapshot{state: st}
	shown.reader = reader{
		from: st.session, space: id, sequence: st.sequence,
		enter: func() error {
			if shown.released.Load() {
				return fault.New(fault.Internal, "a snapshot was read after its release")
			}
			if !e.gate.enter() {
				return errClosed()
			}
			return nil
		},
		leave: e.gate.leave,
	}
	return shown
}

// Release ends the use; a second call does nothing.
func (s *snapshot) Release() {
	if s.released.Swap(true) {
		return
	}
	e := s.state.session.engine
	e.snapshots.Add(-1)
	if !e.gate.enter() {
		return // Close has taken everything with it.
	}
	defer e.gate.leave()
	s.state.release()
}
