package store

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/internal/topic"
)

// Held is a message that a group handed out and that is not settled.
type Held struct {
	Position topic.Position
	// Deliveries counts its hand-outs, Released those of them that were handed
	// back by RELEASE.
	Deliveries, Released topic.Deliveries
	// Returned says that nobody has it: it was handed back, and is due at Due.
	// Otherwise Due is the deadline of who has it.
	Returned bool
	Due      time.Time
}

// GroupState is a group as an operator looks at it.
type GroupState struct {
	topic.Figures
	Definition topic.GroupDefinition
	// Lapsed is how many messages retention removed before they were handed out.
	Lapsed uint64
	// First and Last are the topic's first and last position.
	First, Last topic.Position
	// Held are the messages in flight, by position.
	Held []Held
}

// GroupState returns a group as the transaction sees it; fault.NotFound where
// the topic or the group is not there.
func (tx *Tx) GroupState(ctx context.Context, topicName, name string) (GroupState, error) {
	if err := tx.run(ctx); err != nil {
		return GroupState{}, err
	}
	table, definition, err := tx.catalog.topicGroup(topicName, name)
	if err != nil {
		return GroupState{}, err
	}
	st := &txState{Tx: tx}
	group, err := st.group(table, definition)
	if err != nil {
		return GroupState{}, err
	}
	view, err := viewOf(st, table, definition)
	if err != nil {
		return GroupState{}, err
	}
	defer view.close()
	state := GroupState{
		Figures: group.Figures(view.View), Definition: definition.Definition, Lapsed: group.Lapsed(view.View),
		First: view.First, Last: view.Last,
	}
	for p, e := range group.Entries() {
		if p < view.First || !e.InFlight() {
			continue
		}
		state.Held = append(state.Held, Held{
			Position: p, Deliveries: e.Deliveries, Released: e.Released, Returned: e.State == topic.Returned, Due: e.Due,
		})
	}
	return state, view.failed()
}

// SettleAndRead settles messages of a group and reads as a member of it, in one
// commit: what was settled leaves room for what is read. It returns how many were
// settled. Where only the reading fails, the page is empty.
func (db *Database) SettleAndRead(ctx context.Context, topicName, group string, settlement Settlement, limit int) (count int, page Page, err error) {
	err = db.operate(ctx, func(s *sealing) error {
		count, page = 0, Page{}
		table, err := s.catalog.TopicTable(topicName)
		if err != nil {
			return err
		}
		if count, err = settle(s, table, group, settlement); err != nil {
			return err
		}
		if read, err := readAs(s, table, ReadOptions{Consumer: group, Limit: limit}); err == nil {
			page = read
		}
		return nil
	})
	return count, page, err
}
