package store

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// catalogAlarm is rung when a definition changed; no object has its id.
const catalogAlarm ObjectID = 0

// CatalogChanged returns a channel that is closed when this process has
// changed a definition of the database, or the database is closed. What
// another process changed is seen by looking at Catalog.
func (db *Database) CatalogChanged() <-chan struct{} { return db.alarms.on(catalogAlarm) }

// Changed returns a channel that is closed when a namespace or a database has
// been defined or dropped, by any process, after the newest state.
func (s *Store) Changed(ctx context.Context) (<-chan struct{}, error) {
	snapshot, err := s.root.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer snapshot.Release()
	return s.root.Changed(snapshot.Sequence()), nil
}

// AwaitWork waits until a member of a group has something to do: a message to
// read, one to give up on, or lapsed ones to be told of. It takes nothing from
// anybody, and reads no messages but for the keys of a keyed group.
//
// It returns fault.NotFound where the topic or the group is not there, or is
// dropped.
func (db *Database) AwaitWork(ctx context.Context, topicName, group string) error {
	for {
		if ready, err := db.lookForWork(ctx, topicName, group); err != nil || ready {
			return err
		}
	}
}

// lookForWork looks once, and where there is nothing waits until there may be.
func (db *Database) lookForWork(ctx context.Context, topicName, group string) (ready bool, err error) {
	looking, done := context.WithCancel(ctx)
	defer done()
	ready, a, due, err := db.peekWork(looking, topicName, group)
	if err != nil || ready {
		return ready, err
	}
	_, err = db.await(ctx, a, due, nil, nil)
	return false, err
}

// peekWork asks whether a member of a group has something to do. If not, the
// alarm was set before the look.
func (db *Database) peekWork(ctx context.Context, topicName, name string) (ready bool, a alarm, due time.Time, err error) {
	tx, err := db.beginWithAlarm(ctx, topicName, name, &a)
	if err != nil {
		return false, a, due, err
	}
	defer tx.Cancel()
	table, definition, err := tx.catalog.topicGroup(topicName, name)
	if err != nil {
		return false, a, due, err
	}
	st := &txState{Tx: tx}
	group, err := st.group(table, definition)
	if err != nil {
		return false, a, due, err
	}
	view, err := viewOf(st, table, definition)
	if err != nil {
		return false, a, due, err
	}
	defer view.close()
	ready, due = group.Ready(view.View)
	return ready, a, due, view.failed()
}

// topicGroup finds a group and its topic, or returns fault.NotFound.
func (c *Catalog) topicGroup(topicName, name string) (*Table, *Group, error) {
	table, err := c.TopicTable(topicName)
	if err != nil {
		return nil, nil, err
	}
	group, ok := table.Groups[name]
	if !ok {
		return nil, nil, fault.New(fault.NotFound, "topic %s has no group '%s'", topicName, name)
	}
	return table, group, nil
}

// GroupFigures are what INFO tells of a group, and its definition, as the
// transaction sees them; fault.NotFound where the topic or the group is not
// there.
func (tx *Tx) GroupFigures(ctx context.Context, topicName, name string) (topic.Figures, topic.GroupDefinition, error) {
	if err := tx.run(ctx); err != nil {
		return topic.Figures{}, topic.GroupDefinition{}, err
	}
	table, definition, err := tx.catalog.topicGroup(topicName, name)
	if err != nil {
		return topic.Figures{}, topic.GroupDefinition{}, err
	}
	st := &txState{Tx: tx}
	group, err := st.group(table, definition)
	if err != nil {
		return topic.Figures{}, topic.GroupDefinition{}, err
	}
	view, err := viewOf(st, table, definition)
	if err != nil {
		return topic.Figures{}, topic.GroupDefinition{}, err
	}
	defer view.close()
	return group.Figures(view.View), definition.Definition, view.failed()
}
