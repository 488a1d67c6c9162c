package store

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// Subscription hands out a topic's messages in order as they commit. It holds
// no message and no resource of the engine between two calls, so one that is
// never asked costs nothing. It is used by one goroutine.
type Subscription struct {
	db *Database
	// name and id are the topic's: another topic defined later under the name
	// is not the one that is followed.
	name string
	id   ObjectID
	// after is the position of the last message handed out.
	after topic.Position
}

// Follow subscribes to what a topic holds after a position, or, where none is
// given, to what commits from now on.
func (db *Database) Follow(ctx context.Context, topicName string, after *topic.Position) (*Subscription, error) {
	snapshot, err := db.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer snapshot.Release()
	catalog, err := db.catalogOf(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	table, err := catalog.TopicTable(topicName)
	if err != nil {
		return nil, err
	}
	f := &Subscription{db: db, name: topicName, id: table.ID}
	if after != nil {
		f.after = *after
		return f, nil
	}
	t, err := loadTail(ctx, snapshot, table.ID)
	f.after = t.last
	return f, err
}

// After is the position after which the next message is handed out.
func (f *Subscription) After() topic.Position { return f.after }

// Next waits until there are messages, or retention has removed some that were
// not handed out yet, and returns at most limit of them, of values up to
// maxBytes together (MaxAnswerBytes when 0), or one that is larger. It returns fault.NotFound once the
// topic is dropped.
func (f *Subscription) Next(ctx context.Context, limit, maxBytes int) (Page, error) {
	for {
		// The alarm is set before the look, so that a commit between the look
		// and the wait is heard.
		a := alarm{topicID: f.id, topic: f.db.alarms.on(f.id)}
		page, seen, err := f.look(ctx, limit, maxBytes)
		if err != nil {
			return page, err
		}
		if !page.empty() {
			if n := len(page.Messages); n > 0 {
				f.after = page.Messages[n-1].Position
			} else {
				f.after += topic.Position(page.Lapsed)
			}
			return page, nil
		}
		a.seen = seen
		if _, err := f.db.await(ctx, a, time.Time{}, nil, nil); err != nil {
			return page, err
		}
	}
}

// look reads once, and says of which state.
func (f *Subscription) look(ctx context.Context, limit, maxBytes int) (page Page, seen engine.Sequence, err error) {
	snapshot, err := f.db.snapshot(ctx)
	if err != nil {
		return page, 0, err
	}
	defer snapshot.Release()
	catalog, err := f.db.catalogOf(ctx, snapshot)
	if err != nil {
		return page, 0, err
	}
	table, err := catalog.TopicTable(f.name)
	if err == nil && table.ID != f.id {
		err = fault.New(fault.NotFound, "the topic %s that was followed was dropped; another of its name was defined since", f.name)
	}
	if err != nil {
		return page, 0, err
	}
	after := f.after
	page, err = readTopic(ctx, snapshot, table, ReadOptions{After: &after, Limit: limit, MaxBytes: maxBytes})
	return page, snapshot.Sequence(), err
}
