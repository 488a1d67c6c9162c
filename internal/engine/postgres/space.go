package postgres

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// space is one space, and how a commit of it goes:
//
//	with the turn held, which is among this process's commits:
//	  one round trip: begin, take the space's row, read what the newest commit is
//	  run the form, whose reads go to the same transaction
//	  one round trip: all changes, the commit's own row, and COMMIT
//
// The row is held from the first to the end of the last, so forms run alone on
// all nodes. If the connection is lost in the last round trip the outcome is
// unknown: see resolve.
type space struct {
	engine *Engine
	id     engine.SpaceID

	// turn holds a token while a commit runs. It is a channel and not a mutex,
	// because those who wait are served in their order and may give up.
	turn chan struct{}
	// forgotten is the newest sequence whose row in commits was removed, as far
	// as this process knows. It is changed with the turn held.
	forgotten atomic.Int64

	mu sync.Mutex
	// The following are protected by mu.

	// known is the newest commit that this process was shown or made.
	known point
	// seen is the newest sequence that PostgreSQL showed, also where only that
	// was asked for.
	seen    engine.Sequence
	dropped bool
	// waiters has a channel for each sequence that is waited for to pass.
	waiters map[engine.Sequence]chan struct{}
	// opening is the snapshot that is being opened; next is the one after it,
	// for those who asked when that one had begun.
	opening, next *opening
}

// point is a commit: its place in the space's order, and its mark.
type point struct {
	sequence engine.Sequence
	mark     uuid.UUID
}

func newSpace(e *Engine, id engine.SpaceID) *space {
	return &space{engine: e, id: id, turn: make(chan struct{}, 1), waiters: map[engine.Sequence]chan struct{}{}}
}

// Commit runs form alone and makes what it wrote durable.
func (s *space) Commit(ctx context.Context, form func(engine.Commit) error) (engine.Sequence, error) {
	e := s.engine
	if !e.gate.enter() {
		return 0, errClosed()
	}
	defer e.gate.leave()
	if err := s.take(ctx); err != nil {
		return 0, err
	}
	defer s.give()
	// Until the form runs, the context may take the commit back.
	first, err := s.hold(ctx)
	if err != nil {
		return 0, err
	}
	var sequence engine.Sequence
	var refused error
	err = e.persist(context.WithoutCancel(ctx), "commit", func(ctx context.Context) error {
		held := first
		first = nil
		if held == nil {
			if held, err = s.lock(ctx); err != nil {
				return err
			}
		}
		defer held.session.end()
		// The patience is for beginning: a form takes the time that it takes.
		sequence, refused, err = s.form(context.WithoutCancel(ctx), held, form)
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return 0, err
	}
	return sequence, nil
}

// take waits for the turn.
func (s *space) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	if s.engine.forked.Load() {
		return errForked()
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return cancelled(ctx.Err())
	}
}

func (s *space) give() { <-s.turn }

func (s *space) errDropped() error {
	return fault.New(fault.NotFound, "the space %d was dropped", s.id)
}

// held is a transaction that holds the space's row, and the state it found.
type held struct {
	session *session
	latest  point
	dropped bool
	now     time.Time
}

// hold takes the space's row, and tries again while that fails.
func (s *space) hold(ctx context.Context) (*held, error) {
	var h *held
	err := s.engine.persist(ctx, "begin a commit", func(ctx context.Context) (err error) {
		h, err = s.lock(ctx)
		return err
	})
	return h, err
}

// lock begins a transaction that holds the space's row, unless the space was
// dropped.
func (s *space) lock(ctx context.Context) (*held, error) {
	h, err := s.lockAny(ctx)
	if err != nil {
		return nil, err
	}
	if h.dropped {
		h.session.end()
		s.unpublish()
		return nil, s.errDropped()
	}
	return h, nil
}

// lockAny is lock, of a space that may have been dropped.
func (s *space) lockAny(ctx context.Context) (*held, error) {
	h, err := s.lockRow(ctx)
	if !errors.Is(err, errNoRow) {
		return h, err
	}
	err = s.engine.onConnection(ctx, func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, s.engine.sql.addSpace, int32(s.id))
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.lockRow(ctx)
}

func (s *space) lockRow(ctx context.Context) (*held, error) {
	sql := &s.engine.sql
	known := s.newestKnown()
	h := &held{}
	there := false
	var machine time.Time
	var sequence *int64
	var mark, markOfKnown pgtype.UUID
	var committed *time.Time
	first := &pgx.Batch{}
	first.Queue(sql.lock, int32(s.id)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			there = true
			if err := rows.Scan(&h.dropped); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	first.Queue(sql.latest, int32(s.id), int64(known.sequence)).QueryRow(func(row pgx.Row) error {
		return row.Scan(&machine, &sequence, &mark, &committed, &markOfKnown)
	})
	session, err := s.engine.begin(ctx, beginCommit, first)
	if err != nil {
		return nil, err
	}
	h.session = session
	if !there {
		session.end()
		return nil, errNoRow
	}
	h.latest = pointOf(sequence, mark)
	if !h.dropped && isFork(known, h.latest, markOfKnown) {
		session.end()
		s.engine.fork(s.id, known, h.latest)
		return nil, errForked()
	}
	s.publish(h.latest)
	h.now = s.engine.clock.at(s.engine.machineTime(machine), timeOf(committed))
	return h, nil
}

func pointOf(sequence *int64, mark pgtype.UUID) point {
	if sequence == nil {
		return point{}
	}
	return point{sequence: engine.Sequence(*sequence), mark: mark.Bytes}
}

// isFork reports whether a commit that was known is not in the history that
// the latest commit ends. A commit whose row is not there any more is forgotten.
func isFork(known, latest point, markOfKnown pgtype.UUID) bool {
	return latest.sequence < known.sequence || markOfKnown.Valid && known.sequence > 0 && markOfKnown.Bytes != known.mark
}

func (e *Engine) fork(id engine.SpaceID, known, latest point) {
	e.log.Error("PostgreSQL lost commits that it had acknowledged",
		"space", id, "known", known.sequence, "mark", known.mark, "newest", latest.sequence)
	e.forked.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.spaces {
		s.wakeAll()
	}
}

// form runs the form and commits what it wrote. refused is what is not to be
// tried again.
func (s *space) form(ctx context.Context, h *held, form func(engine.Commit) error) (sequence engine.Sequence, refused, err error) {
	c := newCommit(s.id, h)
	refused = form(c)
	if lost := h.session.failure(); lost != nil {
		return 0, nil, lost // Whatever the form made of it.
	}
	if refused == nil {
		refused = c.refused
	}
	if refused != nil || len(c.writes) == 0 {
		return h.latest.sequence, refused, nil
	}
	made := point{sequence: h.latest.sequence + 1, mark: uuid.New()}
	if err := s.finish(ctx, h, c, made); err != nil {
		return 0, nil, err
	}
	s.publish(made)
	s.engine.watcher.committed(s.id, made.sequence)
	return made.sequence, nil, nil
}

// finish sends what a form wrote, and COMMIT.
func (s *space) finish(ctx context.Context, h *held, c *commit, made point) error {
	sql := &s.engine.sql
	batch := &pgx.Batch{}
	c.changes().queue(batch, sql, s.id, made.sequence)
	batch.Queue(sql.record, int32(s.id), int64(made.sequence), c.now, markOf(made))
	s.queueForget(batch, h)
	var tag string
	batch.Queue(`COMMIT`).Query(func(rows pgx.Rows) error {
		rows.Close()
		tag = rows.CommandTag().String()
		return rows.Err()
	})
	err := h.session.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.SendBatch(ctx, batch).Close()
	})
	if err == nil && tag != "COMMIT" {
		return h.session.fail(errors.New("the transaction was rolled back instead of committed"))
	}
	if err == nil || !undecided(err) {
		return err
	}
	h.session.end()
	return s.resolve(ctx, made, err)
}

func markOf(p point) pgtype.UUID { return pgtype.UUID{Bytes: p.mark, Valid: true} }

// The rows of commits are kept for as long as a process may have to ask for
// the outcome of one: some commits, and some minutes.
const (
	keepCommits = 1000
	keepFor     = 10 * time.Minute
	// forgetEvery is after how many commits the older ones are removed, and
	// forgetMost how many at once.
	forgetEvery = 256
	forgetMost  = 1024
)

// queueForget removes the rows of old commits, now and then.
func (s *space) queueForget(batch *pgx.Batch, h *held) {
	if !isTimeToForget(h.latest.sequence) {
		return
	}
	batch.Queue(s.engine.sql.forget, s.forgetArguments(h.latest.sequence, h.now)...).
		Query(func(rows pgx.Rows) error {
			var sequence int64
			_, err := pgx.ForEachRow(rows, []any{&sequence}, func() error {
				s.forgotten.Store(max(s.forgotten.Load(), sequence))
				return nil
			})
			return err
		})
}

func isTimeToForget(latest engine.Sequence) bool {
	return latest%forgetEvery == 0 && latest > keepCommits
}

// forgetArguments are those of the statement that removes the rows of old
// commits. It begins where the last removal ended, so as not to walk over dead
// rows.
func (s *space) forgetArguments(latest engine.Sequence, now time.Time) []any {
	return []any{int32(s.id), s.forgotten.Load(), forgetMost, int64(latest) - keepCommits, now.Add(-keepFor)}
}

// resolve finds out what became of a commit whose connection was lost. It
// takes the space's row, which is free only when the lost transaction has
// ended, one way or the other; then the commit's mark is there or not. It
// returns nil if the commit was made, and why it failed if not. While
// PostgreSQL cannot be reached it goes on asking: to guess would be to lose a
// commit or to make it twice.
func (s *space) resolve(ctx context.Context, made point, cause error) error {
	e := s.engine
	ctx = context.WithoutCancel(ctx)
	e.log.Warn("the connection was lost during a commit; asking for its outcome",
		"space", s.id, "sequence", made.sequence, "mark", made.mark, "error", cause)
	var givingUp time.Time
	for {
		var committed bool
		err := e.persist(ctx, "ask for the outcome of a commit", func(ctx context.Context) (err error) {
			committed, err = s.wasMade(ctx, made)
			return err
		})
		switch {
		case err == nil && committed:
			return nil
		case err == nil:
			return cause
		case errors.Is(err, errPruned) || e.forked.Load():
			return errUnknown(made, err)
		case e.isClosing() && givingUp.IsZero():
			givingUp = time.Now().Add(e.options.Patience)
		case e.isClosing() && time.Now().After(givingUp):
			return errUnknown(made, err)
		}
		e.log.Warn("the outcome of a commit is still unknown", "space", s.id, "sequence", made.sequence, "error", err)
		e.pause(ctx, maxRetryDelay)
	}
}

var errPruned = fault.New(fault.Unavailable, "the commit's row would have been removed meanwhile")

func errUnknown(made point, cause error) error {
	return fault.New(fault.Unavailable, "whether commit %d (batch %s) was made is not known: %w", made.sequence, made.mark, cause)
}

// wasMade reports whether a commit was made. When it returns, the transaction
// that tried has ended.
func (s *space) wasMade(ctx context.Context, made point) (bool, error) {
	h, err := s.lockAny(ctx)
	if err != nil {
		return false, err
	}
	defer h.session.end()
	if h.latest == made {
		return true, nil
	}
	if h.latest.sequence < made.sequence {
		return false, nil
	}
	var mark pgtype.UUID
	err = h.session.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, s.engine.sql.commitMark, int32(s.id), int64(made.sequence)).Scan(&mark)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, errPruned
	}
	return mark.Bytes == made.mark, err
}

// dropRows is how many entries of a dropped space are removed at once.
const dropRows = 10_000

// drop marks the space as dropped, which is what counts, and then removes its
// rows, in parts: also those that a drop before it left.
func (s *space) drop(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	e := s.engine
	var latest point
	err := e.persist(ctx, "drop a space", func(ctx context.Context) error {
		h, err := s.lockAny(ctx)
		if err != nil {
			return err
		}
		defer h.session.end()
		latest = h.latest
		if h.dropped {
			return nil
		}
		return h.session.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			batch := &pgx.Batch{}
			batch.Queue(e.sql.drop, int32(s.id))
			batch.Queue(`COMMIT`)
			return conn.SendBatch(ctx, batch).Close()
		})
	})
	if err != nil {
		return err
	}
	s.unpublish()
	e.watcher.committed(s.id, latest.sequence)
	return s.removeRows(ctx, latest)
}

// removeRows removes the entries of a dropped space, and its commits but the
// last, which keeps the clock from going back.
func (s *space) removeRows(ctx context.Context, latest point) error {
	e := s.engine
	from := []byte{}
	for from != nil {
		err := e.persist(ctx, "remove the rows of a dropped space", func(ctx context.Context) error {
			return e.onConnection(ctx, func(conn *pgxpool.Conn) error {
				var to []byte
				err := conn.QueryRow(ctx, e.sql.dropPart, int32(s.id), from, dropRows).Scan(&to)
				if errors.Is(err, pgx.ErrNoRows) {
					_, err = conn.Exec(ctx, e.sql.dropRange, int32(s.id), from)
				} else if err == nil {
					_, err = conn.Exec(ctx, e.sql.dropRangeTo, int32(s.id), from, to)
				}
				if err == nil {
					from = bytes.Clone(to)
				}
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return e.persist(ctx, "remove the commits of a dropped space", func(ctx context.Context) error {
		return e.onConnection(ctx, func(conn *pgxpool.Conn) error {
			_, err := conn.Exec(ctx, e.sql.dropTail, int32(s.id), int64(latest.sequence))
			return err
		})
	})
}
