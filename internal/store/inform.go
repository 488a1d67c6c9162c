package store

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/internal/topic"
)

// TopicReport is what INFO FOR TOPIC tells, all of one state.
type TopicReport struct {
	Table       *Table
	First, Last topic.Position
	Messages    uint64
	// Bytes is the size of the values held.
	Bytes   uint64
	Readers map[string]ReaderReport
	Groups  map[string]GroupReport
}

// ReaderReport is a named reader's place and how far it is behind.
type ReaderReport struct {
	Position topic.Position
	Lag      uint64
}

// GroupReport is a group's figures and definition.
type GroupReport struct {
	topic.Figures
	Definition topic.GroupDefinition
	// OldestAppended is when the group's lowest unsettled message was
	// appended, nil where everything is settled.
	OldestAppended *time.Time
}

// ReportTopic reports on a topic. It reads the places of readers and what
// groups have in flight, never the messages.
func (tx *Tx) ReportTopic(ctx context.Context, table *Table) (TopicReport, error) {
	if err := tx.run(ctx); err != nil {
		return TopicReport{}, err
	}
	t, err := tx.tail(table)
	if err != nil {
		return TopicReport{}, err
	}
	report := TopicReport{
		Table: table, First: t.first, Last: t.last, Messages: t.messages(), Bytes: t.heldBytes(),
		Readers: map[string]ReaderReport{}, Groups: map[string]GroupReport{},
	}
	if err := tx.reportReaders(table, t, report.Readers); err != nil {
		return TopicReport{}, err
	}
	st := &txState{Tx: tx}
	for _, name := range table.groupNames() {
		if report.Groups[name], err = reportGroup(st, table, table.Groups[name]); err != nil {
			return TopicReport{}, err
		}
	}
	return report, nil
}

func (tx *Tx) reportReaders(table *Table, t tail, readers map[string]ReaderReport) error {
	places := objectRange(rowReader, table.ID)
	add := func(key string, row []byte) {
		place := decodePosition(row)
		readers[key[1+4:]] = ReaderReport{Position: place, Lag: topic.Lag(place, t.last)}
	}
	if !tx.isDropped(places.From) {
		err := scanRows(tx.ctx, tx.snapshot, places, func(key, row []byte) error {
			add(string(key), row)
			return nil
		})
		if err != nil {
			return err
		}
	}
	tx.writes.Ascend(string(places.From), func(key string, w write) bool {
		switch {
		case key >= string(places.To):
			return false
		case w.row == nil:
			delete(readers, key[1+4:])
		default:
			add(key, w.row)
		}
		return true
	})
	return nil
}

func reportGroup(st *txState, table *Table, definition *Group) (GroupReport, error) {
	group, err := st.group(table, definition)
	if err != nil {
		return GroupReport{}, err
	}
	view, err := viewOf(st, table, definition)
	if err != nil {
		return GroupReport{}, err
	}
	defer view.close()
	report := GroupReport{Figures: group.Figures(view.View), Definition: definition.Definition}
	if report.Oldest != 0 {
		row := view.row(report.Oldest)
		if err := view.failed(); err != nil {
			return GroupReport{}, err
		}
		head, _, err := decodeMessageRow(row)
		if err != nil {
			return GroupReport{}, corrupt(table.Name, report.Oldest, err)
		}
		report.OldestAppended = &head.appended
	}
	return report, view.failed()
}

// CountRecords counts the records of a table, or the messages that a topic
// holds, which is a subtraction.
func (tx *Tx) CountRecords(ctx context.Context, table *Table) (uint64, error) {
	if err := tx.run(ctx); err != nil {
		return 0, err
	}
	if table.Kind == Topic {
		t, err := tx.tail(table)
		return t.messages(), err
	}
	var count uint64
	rows := tx.Scan(ctx, table, ScanOptions{})
	for rows.Next() {
		count++
	}
	return count, rows.Close()
}
