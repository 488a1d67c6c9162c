package store

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// operation is a lone command that runs when it is sealed, on the newest
// state: a read for a consumer, an acknowledgement, housekeeping.
type operation struct {
	waiter
	run func(s *sealing) error
}

// operationBytes is what an operation counts as in a commit's size: the place
// it moves, or the rows of a group that it changes.
const operationBytes = 256

func (o *operation) bytes() int            { return operationBytes }
func (o *operation) alone() bool           { return false }
func (o *operation) seal(s *sealing) error { return o.run(s) }

// operate runs a command when it is sealed and waits until what it did, and
// what it saw, is durable.
func (db *Database) operate(ctx context.Context, run func(s *sealing) error) error {
	o := &operation{waiter: newWaiter(), run: run}
	return submit(ctx, db.committer, o, o.waiter)
}

// Read answers messages of a topic, outside any transaction. With a consumer's
// name it reads as that reader or group and commits the moved place, or the
// hand-out, before it returns.
//
// Where there is nothing to answer it waits up to wait for the first message,
// or until ctx ends. Waiting takes no work from anybody.
func (db *Database) Read(ctx context.Context, topicName string, options ReadOptions, wait time.Duration) (Page, error) {
	var timeout <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		var a *alarm
		if wait > 0 {
			a = new(alarm)
		}
		page, err := db.readOnce(ctx, topicName, options, a)
		if err != nil || !page.empty() || wait == 0 {
			return db.unparked(a, page, err)
		}
		// The place was moved; what is waited for comes after it.
		options.After, options.Since = db.keepPlace(options)
		var done bool
		if options.Consumer == "" {
			done, err = db.await(ctx, *a, page.Due, timeout, nil)
		} else {
			page, done, err = db.awaitParked(ctx, *a, page.Due, timeout)
		}
		if done || err != nil {
			return page, err
		}
	}
}

// keepPlace is where a read goes on that stored its AFTER or SINCE already.
func (db *Database) keepPlace(options ReadOptions) (*topic.Position, *time.Time) {
	if options.Consumer != "" {
		return nil, nil
	}
	return options.After, options.Since
}

// alarm is what wakes a read that waits: a change of the topic, or of the
// group that it reads as.
type alarm struct {
	topic, group     <-chan struct{}
	topicID, groupID ObjectID
	// seen is the state that who waits has seen.
	seen engine.Sequence
	// parked is what a commit hands to a consumer that waits; nil for none.
	parked *parkedRead
}

// await waits until there may be something to read; done says that the time
// is over. handed, nil for none, is closed when something was read meanwhile.
func (db *Database) await(ctx context.Context, a alarm, due time.Time, timeout <-chan time.Time, handed <-chan struct{}) (done bool, err error) {
	defer db.lookout.watch(a)()
	var dueTimer <-chan time.Time
	if !due.IsZero() {
		now, err := db.Now(ctx)
		if err != nil {
			return true, err
		}
		timer := time.NewTimer(max(due.Sub(now), minimumPause))
		defer timer.Stop()
		dueTimer = timer.C
	}
	select {
	case <-a.topic:
	case <-a.group:
	case <-handed:
	case <-dueTimer:
	case <-timeout:
		return true, nil
	case <-ctx.Done():
		return true, cancelled(ctx.Err())
	case <-db.closed:
		return true, db.unavailable()
	}
	return false, nil
}

// minimumPause keeps a read from spinning while the store's clock, which may
// run at half speed, has not reached the time it waits for.
const minimumPause = time.Millisecond

// readOnce reads without waiting. Where there is nothing, the alarm, if one is
// wanted, was set before the look, and a consumer's read is parked: see unparked.
func (db *Database) readOnce(ctx context.Context, topicName string, options ReadOptions, a *alarm) (Page, error) {
	if options.Consumer == "" {
		return db.readSnapshot(ctx, topicName, options, a)
	}
	var page Page
	err := db.operate(ctx, func(s *sealing) error {
		table, err := s.catalog.TopicTable(topicName)
		if err != nil {
			return err
		}
		page, err = readAs(s, table, options)
		if a != nil && page.empty() {
			// What comes next is sealed after this, so its alarm is heard, and takes
			// the read in, also while this commit is still on its way.
			db.setAlarm(a, table, options.Consumer, s.commit.Sequence())
			db.park(a, topicName, options)
		}
		return err
	})
	return page, err
}

// readSnapshot reads without a name. It sets the alarm where there is nothing,
// then looks once more: a commit between the two looks would go unheard.
func (db *Database) readSnapshot(ctx context.Context, topicName string, options ReadOptions, a *alarm) (Page, error) {
	page, table, seen, err := db.look(ctx, topicName, options)
	if err != nil || a == nil || !page.empty() {
		return page, err
	}
	db.setAlarm(a, table, "", seen)
	page, _, _, err = db.look(ctx, topicName, options)
	return page, err
}

// look reads the newest durable state once, and says which topic and commit
// that was.
func (db *Database) look(ctx context.Context, topicName string, options ReadOptions) (page Page, table *Table, seen engine.Sequence, err error) {
	snapshot, err := db.snapshot(ctx)
	if err != nil {
		return page, nil, 0, err
	}
	defer snapshot.Release()
	catalog, err := db.catalogOf(ctx, snapshot)
	if err != nil {
		return page, nil, 0, err
	}
	if table, err = catalog.TopicTable(topicName); err != nil {
		return page, nil, 0, err
	}
	page, err = readTopic(ctx, snapshot, table, options)
	return page, table, snapshot.Sequence(), err
}

// readTopic reads messages of a state without a name.
func readTopic(ctx context.Context, r engine.Reader, table *Table, options ReadOptions) (Page, error) {
	t, err := loadTail(ctx, r, table.ID)
	if err != nil {
		return Page{}, err
	}
	return readPlain(snapshotSource{ctx, r}, table, t, options)
}

// setAlarm sets what wakes those who have seen a commit.
func (db *Database) setAlarm(a *alarm, table *Table, consumer string, seen engine.Sequence) {
	a.topicID, a.topic, a.seen = table.ID, db.alarms.on(table.ID), seen
	if group, ok := table.Groups[consumer]; ok {
		a.groupID, a.group = group.ID, db.alarms.on(group.ID)
	}
}

// Settle settles messages that a group has in flight and returns how many
// were.
func (db *Database) Settle(ctx context.Context, topicName, group string, settlement Settlement) (int, error) {
	var count int
	err := db.operate(ctx, func(s *sealing) error {
		table, err := s.catalog.TopicTable(topicName)
		if err != nil {
			return err
		}
		count, err = settle(s, table, group, settlement)
		return err
	})
	return count, err
}

// Await waits until a read would answer something, or the time is over, or ctx
// ends. It reads nothing for anybody: what it waited for may be read by
// another.
func (db *Database) Await(ctx context.Context, topicName string, options ReadOptions, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		var a alarm
		page, err := db.peek(ctx, topicName, options, &a)
		if err != nil || !page.empty() {
			return err
		}
		if done, err := db.await(ctx, a, page.Due, timer.C, nil); done || err != nil {
			return err
		}
	}
}

// peek reads in a transaction that is cancelled.
func (db *Database) peek(ctx context.Context, topicName string, options ReadOptions, a *alarm) (Page, error) {
	tx, err := db.beginWithAlarm(ctx, topicName, options.Consumer, a)
	if err != nil {
		return Page{}, err
	}
	defer tx.Cancel()
	table, err := tx.Catalog().TopicTable(topicName)
	if err != nil {
		return Page{}, err
	}
	return tx.Read(ctx, table, options)
}

// beginWithAlarm begins a transaction that sees all that came before the alarm
// was set.
func (db *Database) beginWithAlarm(ctx context.Context, topicName, consumer string, a *alarm) (*Tx, error) {
	first, err := db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer first.Cancel()
	table, err := first.Catalog().TopicTable(topicName)
	if err != nil {
		return nil, err
	}
	db.setAlarm(a, table, consumer, first.snapshot.Sequence())
	return db.Begin(ctx)
}
