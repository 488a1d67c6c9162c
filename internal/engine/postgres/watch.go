package postgres

import (
	"context"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

var alreadyClosed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Changed returns a channel that is closed once there is a commit after the
// given one, of whatever process.
func (s *space) Changed(after engine.Sequence) <-chan struct{} {
	e := s.engine
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen > after || s.dropped || e.gate.isShut() || e.forked.Load() {
		return alreadyClosed
	}
	changed := s.waiters[after]
	if changed == nil {
		changed = make(chan struct{})
		s.waiters[after] = changed
		e.watcher.wanted()
	}
	return changed
}

func (s *space) newestKnown() point {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// publish notes a commit that PostgreSQL shows, and wakes those who wait.
func (s *space) publish(p point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.sequence > s.known.sequence {
		s.known = p
	}
	s.sawLocked(p.sequence)
}

// saw notes that there is a commit, and wakes those who wait.
func (s *space) saw(sequence engine.Sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sawLocked(sequence)
}

// sawLocked is called with mu held.
func (s *space) sawLocked(sequence engine.Sequence) {
	if sequence <= s.seen {
		return
	}
	s.seen = sequence
	s.wakeLocked(sequence)
}

// hinted wakes those who wait for what may have come.
func (s *space) hinted(sequence engine.Sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeLocked(sequence)
}

// wakeLocked wakes those who wait for a commit up to a sequence. It is called
// with mu held.
func (s *space) wakeLocked(sequence engine.Sequence) {
	for after, changed := range s.waiters {
		if after < sequence {
			close(changed)
			delete(s.waiters, after)
		}
	}
}

// unpublish notes that the space was dropped.
func (s *space) unpublish() {
	s.mu.Lock()
	s.dropped = true
	s.mu.Unlock()
	s.wakeAll()
}

// wakeAll wakes all who wait, because there is nothing more to wait for.
func (s *space) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for after, changed := range s.waiters {
		close(changed)
		delete(s.waiters, after)
	}
}

// isWaitedFor reports whether somebody waits for a commit.
func (s *space) isWaitedFor() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters) > 0
}

// notifyInterval is the least time between two notifications: commits that
// come closer share one, which keeps their cost small however many there are.
const notifyInterval = 10 * time.Millisecond

// listenRetry is how long a connection to listen is waited for to come back.
const listenRetry = time.Second

// watcher learns of the commits of other processes, by asking for the
// sequences of the spaces that somebody waits for, and earlier by LISTEN; and
// it lets others know of this process's, by NOTIFY. A notification is no more
// than a hint, sent outside the commits: NOTIFY inside a transaction makes
// PostgreSQL commit one at a time.
type watcher struct {
	engine  *Engine
	channel string
	config  *pgx.ConnConfig

	ended context.Context
	end   context.CancelFunc
	tasks sync.WaitGroup
	// listening starts the listener, when somebody waits for the first time.
	listening sync.Once
	// poll and notify hold a token while there is something to do.
	poll, notify chan struct{}

	mu sync.Mutex
	// commits are the newest of this process that were not notified of yet. It
	// is protected by mu.
	commits map[engine.SpaceID]engine.Sequence
}

func newWatcher(e *Engine, config *pgx.ConnConfig) *watcher {
	w := &watcher{
		engine:  e,
		channel: fmt.Sprintf("tidemark_%08x", crc32.ChecksumIEEE([]byte(e.options.Schema))),
		config:  config,
		poll:    make(chan struct{}, 1),
		notify:  make(chan struct{}, 1),
		commits: map[engine.SpaceID]engine.Sequence{},
	}
	w.ended, w.end = context.WithCancel(context.Background())
	w.tasks.Go(w.polling)
	if !e.options.DisableNotify {
		w.tasks.Go(w.notifying)
	}
	return w
}

func (w *watcher) stop() {
	w.end()
	w.tasks.Wait()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wanted is told that somebody waits.
func (w *watcher) wanted() {
	signal(w.poll)
	if !w.engine.options.DisableNotify {
		w.listening.Do(func() { w.tasks.Go(w.listen) })
	}
}

// committed is told of this process's commits.
func (w *watcher) committed(id engine.SpaceID, sequence engine.Sequence) {
	w.mu.Lock()
	w.commits[id] = max(w.commits[id], sequence)
	w.mu.Unlock()
	signal(w.notify)
}

// polling asks for sequences while somebody waits.
func (w *watcher) polling() {
	for {
		select {
		case <-w.ended.Done():
			return
		case <-w.poll:
		}
		for waited := w.waitedFor(); len(waited) > 0; waited = w.waitedFor() {
			if err := w.ask(waited); err != nil {
				w.engine.log.Debug("asking for new commits", "error", err)
				w.engine.pause(w.ended, maxRetryDelay)
			}
			w.sleep(w.engine.options.PollInterval)
			if w.ended.Err() != nil {
				return
			}
		}
	}
}

func (w *watcher) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ended.Done():
	}
}

// waitedFor returns the spaces that somebody waits for.
func (w *watcher) waitedFor() map[int32]*space {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	waited := map[int32]*space{}
	for id, s := range e.spaces {
		if s.isWaitedFor() {
			waited[int32(id)] = s
		}
	}
	return waited
}

// ask asks for the sequences of spaces, in one query.
func (w *watcher) ask(waited map[int32]*space) error {
	ids := make([]int32, 0, len(waited))
	for id := range waited {
		ids = append(ids, id)
	}
	ctx, cancel := context.WithTimeout(w.ended, roundTripTimeout)
	defer cancel()
	return w.engine.onConnection(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, w.engine.sql.newest, ids)
		if err != nil {
			return err
		}
		var id int32
		var dropped bool
		var sequence int64
		_, err = pgx.ForEachRow(rows, []any{&id, &dropped, &sequence}, func() error {
			if dropped {
				waited[id].unpublish()
			} else {
				waited[id].saw(engine.Sequence(sequence))
			}
			return nil
		})
		return err
	})
}

// notifying lets other processes know of commits.
func (w *watcher) notifying() {
	for {
		select {
		case <-w.ended.Done():
			return
		case <-w.notify:
		}
		w.mu.Lock()
		commits := w.commits
		w.commits = map[engine.SpaceID]engine.Sequence{}
		w.mu.Unlock()
		batch := &pgx.Batch{}
		for id, sequence := range commits {
			batch.Queue(`SELECT pg_notify($1, $2)`, w.channel, fmt.Sprintf("%d %d", id, sequence))
		}
		ctx, cancel := context.WithTimeout(w.ended, roundTripTimeout)
		err := w.engine.onConnection(ctx, func(conn *pgxpool.Conn) error { return conn.SendBatch(ctx, batch).Close() })
		cancel()
		if state := sqlState(err); state == stateUndefinedFunction || state == stateFeatureNotSupported {
			w.engine.log.Info("the server has no NOTIFY; new commits are found by asking", "error", err)
			return
		}
		if err != nil {
			w.engine.log.Debug("notifying of commits", "error", err)
		}
		w.sleep(notifyInterval)
	}
}

// listen hears of the commits of others, on a connection of its own.
func (w *watcher) listen() {
	for w.ended.Err() == nil {
		err := w.listenOnce()
		if w.ended.Err() != nil {
			return
		}
		if state := sqlState(err); state == stateSyntax || state == stateFeatureNotSupported {
			w.engine.log.Info("the server has no LISTEN; new commits are found by asking", "error", err)
			return
		}
		w.engine.log.Debug("listening for commits", "error", err)
		w.sleep(listenRetry)
	}
}

func (w *watcher) listenOnce() error {
	conn, err := pgx.ConnectConfig(w.ended, w.config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(closing) // Nothing was said on it that could be lost.
	}()
	if _, err := conn.Exec(w.ended, `LISTEN `+pgx.Identifier{w.channel}.Sanitize()); err != nil {
		return err
	}
	for {
		heard, err := conn.WaitForNotification(w.ended)
		if err != nil {
			return err
		}
		w.hear(heard.Payload)
	}
}

// hear takes a notification. Anybody can send one: what makes no sense is
// dropped, and what is not true wakes somebody for nothing.
func (w *watcher) hear(payload string) {
	id, sequence, ok := strings.Cut(payload, " ")
	space, err := strconv.ParseUint(id, 10, 31)
	if !ok || err != nil {
		return
	}
	newest, err := strconv.ParseUint(sequence, 10, 63)
	if err != nil {
		return
	}
	e := w.engine
	e.mu.Lock()
	s := e.spaces[engine.SpaceID(space)]
	e.mu.Unlock()
	if s != nil {
		s.hinted(engine.Sequence(newest))
	}
}
