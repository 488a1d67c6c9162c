package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// lookout rings the alarms of a database for what other processes commit, where
// several share the store. However many wait, and for however many topics, one
// goroutine looks for all of them, with one query a look: it asks for the rows
// that a change of what is waited for cannot but write. A commit costs nothing
// for those who wait, and wakes only those who wait for what it changed.
//
// What this process commits rings the alarms itself, when it is durable, and is
// looked at only where another's commit lies between.
type lookout struct {
	db *Database
	// done waits for the goroutine, which runs from when somebody waits first.
	done sync.WaitGroup

	mu sync.Mutex
	// The following are protected by mu.

	running bool
	// watched are the topics and groups that somebody waits for.
	watched map[ObjectID]*watched
	// seen is the commit up to which the alarms were rung.
	seen engine.Sequence
	// more holds a token when something is watched that was not.
	more chan struct{}
}

// watched is a topic or a group that somebody waits for.
type watched struct {
	group   bool
	waiters int
	// since is a commit up to which its alarm was rung; seen may be a later one.
	since engine.Sequence
	// last is a topic's last position as it was found, once it was.
	last  topic.Position
	found bool
}

// gathering is how long the lookout lets commits come together before it looks.
// It is small beside the 100 ms in which those who wait are to be woken.
const gathering = 10 * time.Millisecond

// lookAgain is how long it lets pass after a look that failed.
const lookAgain = 250 * time.Millisecond

func newLookout(db *Database) *lookout {
	return &lookout{db: db, watched: map[ObjectID]*watched{}, more: make(chan struct{}, 1)}
}

// watch has an alarm rung also for what other processes commit after the state
// that who waits has seen, until the function that it returns is called. The
// alarm is taken before that state.
func (l *lookout) watch(a alarm) (stop func()) {
	if !l.db.store.engine.Shared() {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running {
		l.running = true
		l.done.Go(l.run)
	}
	l.watchLocked(a.topicID, false, a.seen)
	if a.group != nil {
		l.watchLocked(a.groupID, true, a.seen)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unwatchLocked(a.topicID)
		if a.group != nil {
			l.unwatchLocked(a.groupID)
		}
	}
}

// watchLocked is called with mu held.
func (l *lookout) watchLocked(id ObjectID, group bool, seen engine.Sequence) {
	w := l.watched[id]
	if w == nil {
		w = &watched{group: group, since: seen}
		l.watched[id] = w
		// What was looked at before is to be looked at again for this one.
		l.seen = min(l.seen, seen)
		if len(l.watched) == 1 {
			l.seen = seen
		}
		select {
		case l.more <- struct{}{}:
		default:
		}
	}
	w.waiters++
}

// unwatchLocked is called with mu held.
func (l *lookout) unwatchLocked(id ObjectID) {
	w := l.watched[id]
	if w.waiters--; w.waiters == 0 {
		delete(l.watched, id)
	}
}

// end waits until the database, which is closed, is looked at no more.
func (l *lookout) end() {
	l.mu.Lock()
	l.running = true // So that nobody starts it any more.
	l.mu.Unlock()
	l.done.Wait()
}

// committed is told of a commit of this process, whose alarms were rung.
func (l *lookout) committed(sequence engine.Sequence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == sequence-1 {
		l.seen = sequence
	}
}

// state is the commit after which to look, and whether anybody waits.
func (l *lookout) state() (seen engine.Sequence, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen, len(l.watched) > 0
}

func (l *lookout) run() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	l.done.Go(func() {
		<-l.db.closed
		stop()
	})
	for ctx.Err() == nil {
		seen, wanted := l.state()
		var changed <-chan struct{}
		if wanted {
			changed = l.db.space.Changed(seen)
		}
		select {
		case <-changed:
		case <-l.more:
			continue
		case <-ctx.Done():
			return
		}
		if !pause(ctx, gathering) {
			return
		}
		if now, _ := l.state(); now > seen && !isClosed(l.db.space.Changed(now)) {
			continue // They were this process's own.
		}
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			// Those who wait look for themselves, and are told what is wrong.
			l.db.alarms.ringAll()
			if errors.Is(err, fault.NotFound) {
				return // The database was dropped.
			}
			pause(ctx, lookAgain)
		}
	}
}

// look rings the alarms of what was changed by anybody.
func (l *lookout) look(ctx context.Context) error {
	l.mu.Lock()
	subjects := make([]subject, 0, len(l.watched))
	for id, w := range l.watched {
		s := subject{id: id, watched: *w}
		s.since = max(s.since, l.seen)
		subjects = append(subjects, s)
	}
	l.mu.Unlock()
	snapshot, err := l.db.snapshot(ctx)
	if err != nil {
		return err
	}
	defer snapshot.Release()
	if err := examine(ctx, snapshot, subjects); err != nil {
		return err
	}
	l.take(subjects, snapshot.Sequence())
	return nil
}

// take notes what a look found, and rings.
func (l *lookout) take(subjects []subject, sequence engine.Sequence) {
	l.mu.Lock()
	for _, s := range subjects {
		if w := l.watched[s.id]; w != nil {
			w.since, w.last, w.found = max(w.since, sequence), s.last, s.found
		}
	}
	l.seen = sequence
	for _, w := range l.watched {
		l.seen = min(l.seen, w.since) // One may have come during the look.
	}
	l.mu.Unlock()
	for _, s := range subjects {
		if s.changed {
			l.db.alarms.ring(s.id)
		}
	}
}

// subject is something that is looked at, and whether it changed.
type subject struct {
	watched
	id      ObjectID
	changed bool
}

// examine finds out what changed. A new definition may mean anything to
// anybody. Of a group every change writes its head. Of a topic a change writes
// the message after the last one or, when something is let go, the state row.
func examine(ctx context.Context, r engine.Reader, subjects []subject) error {
	keys := [][]byte{catalogVersionKey}
	for _, s := range subjects {
		if s.group {
			keys = append(keys, objectKey(rowGroupHead, s.id))
		} else {
			keys = append(keys, objectKey(rowTopicState, s.id), positionKey(rowMessage, s.id, s.last+1))
		}
	}
	entries, err := r.GetMany(ctx, keys)
	if err != nil {
		return err
	}
	next := func() engine.Entry {
		entry := entries[0]
		entries = entries[1:]
		return entry
	}
	definitions := next()
	for i := range subjects {
		s := &subjects[i]
		row := next()
		s.changed = row.Sequence > s.since || definitions.Sequence > s.since
		if s.group {
			continue
		}
		if message := next(); s.found && message.Sequence == 0 && !s.changed {
			continue
		}
		if err := s.find(ctx, r, row); err != nil {
			return err
		}
	}
	return nil
}

// find finds a topic's last position, and whether its message is new.
func (s *subject) find(ctx context.Context, r engine.Reader, state engine.Entry) error {
	s.found, s.last = true, 0
	if state.Sequence != 0 {
		t, err := decodeTail(state.Value)
		if err != nil {
			return err
		}
		s.last = t.last
	}
	newest := r.Scan(ctx, objectRange(rowMessage, s.id), true, 1)
	if newest.Next() {
		s.last = max(s.last, positionOf(newest.Key()))
		s.changed = s.changed || newest.Sequence() > s.since
	}
	return newest.Close()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
