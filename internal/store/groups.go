package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// SettlementKind is what a worker says of messages that it holds.
type SettlementKind int

// What a worker says of messages that it holds.
const (
	Acknowledge SettlementKind = iota // done
	Return                            // NACK: hand them out again
	Extend                            // still working
	Reject                            // give them up
	Release                           // hand them back without counting
)

// Settlement is what a worker says of messages that its group has in flight.
type Settlement struct {
	Kind SettlementKind
	At   []topic.Settle
	// Delay of a Return, nil when none is said.
	Delay *time.Duration
	// By of an Extend, 0 for the group's own deadline.
	By time.Duration
	// Reason of a Reject.
	Reason string
}

// Settle settles messages of a group in the transaction.
func (tx *Tx) Settle(ctx context.Context, table *Table, group string, settlement Settlement) (int, error) {
	if err := tx.run(ctx); err != nil {
		return 0, err
	}
	st := &txState{Tx: tx}
	count, err := settle(st, table, group, settlement)
	if err == nil {
		err = st.failed
	}
	return count, err
}

func settle(st state, table *Table, name string, settlement Settlement) (int, error) {
	definition, err := table.Group(name)
	if err != nil {
		return 0, err
	}
	group, err := st.group(table, definition)
	if err != nil {
		return 0, err
	}
	view, err := viewOf(st, table, definition)
	if err != nil {
		return 0, err
	}
	defer view.close()
	change := command(group, view.View, settlement)
	if err := view.failed(); err != nil {
		st.forget(definition)
		return 0, err
	}
	if change.Empty() {
		return change.Count, nil
	}
	return change.Count, st.change(table, definition, change)
}

func command(group *topic.Group, v topic.View, s Settlement) topic.Change {
	switch s.Kind {
	case Return:
		return group.Return(v, s.At, s.Delay)
	case Extend:
		return group.Extend(v, s.At, s.By)
	case Reject:
		return group.Reject(v, s.At, s.Reason)
	case Release:
		return group.Release(v, s.At)
	default:
		return group.Acknowledge(v, s.At)
	}
}

// handOut reads as a member of a group.
func handOut(st state, table *Table, definition *Group, options ReadOptions) (Page, error) {
	if options.After != nil || options.Since != nil {
		return Page{}, fault.New(fault.AfterOnGroup,
			"'%s' is a group of topic %s: a member cannot move its place with AFTER or SINCE; ALTER GROUP … START AT does", definition.Name, table.Name)
	}
	group, err := st.group(table, definition)
	if err != nil {
		return Page{}, err
	}
	view, err := viewOf(st, table, definition)
	if err != nil {
		return Page{}, err
	}
	defer view.close()
	change := group.HandOut(view.View, options.limit())
	page := Page{Lapsed: change.Lapsed, Messages: make([]Message, 0, len(change.Out)), HandedOut: view.Now}
	for _, delivery := range change.Out {
		row := view.row(delivery.Position)
		if view.failed() != nil {
			break // What was not read is not what cannot be decoded.
		}
		message, err := messageOf(table, delivery.Position, row)
		if err != nil {
			return Page{}, err
		}
		message.Deliveries, message.Released = delivery.Deliveries, delivery.Released
		page.Messages = append(page.Messages, message)
	}
	if err := view.failed(); err != nil {
		st.forget(definition)
		return Page{}, err
	}
	if !change.Empty() {
		if err := st.change(table, definition, change); err != nil {
			return Page{}, err
		}
	}
	if page.empty() {
		var ready bool
		if ready, page.Due = group.Ready(view.View); ready {
			// It gave up on as many as one commit may hold; there is more.
			page.Due = view.Now
		}
	}
	return page, nil
}

// StartAt makes a group hand out position n + 1 next and forget what it holds.
func (tx *Tx) StartAt(ctx context.Context, topicName, name string, n topic.Position) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	table, definition, err := tx.findGroup(topicName, name)
	if err != nil {
		return err
	}
	st := &txState{Tx: tx}
	group, err := st.group(table, definition)
	if err != nil {
		return err
	}
	view, err := viewOf(st, table, definition)
	if err != nil {
		return err
	}
	if err := topic.CheckStartAt(table.Name, name, n, view.Last); err != nil {
		return err
	}
	if err := st.change(table, definition, group.StartAt(view.View, n)); err != nil {
		return err
	}
	return st.failed
}

// groupView is a topic as one of its groups sees it, and the rows that were
// read for it.
type groupView struct {
	topic.View
	source messageSource
	table  *Table
	rows   map[topic.Position][]byte
	// cursor reads ahead from cursorAt, for the messages of a hand-out lie
	// mostly side by side.
	cursor   messageCursor
	cursorAt topic.Position
	chunk    rowChunk
	// answered and givenUp are the bytes of the messages that an answer and
	// the dead letters of its commit hold.
	answered, givenUp int
	err               error
}

func viewOf(st state, table *Table, definition *Group) (*groupView, error) {
	t, err := st.tail(table)
	if err != nil {
		return nil, err
	}
	view := &groupView{source: st, table: table, rows: map[topic.Position][]byte{}}
	view.View = topic.View{
		First: t.first, Last: t.last, Now: st.now(),
		Fits:           func(p topic.Position) bool { return view.fits(p, &view.answered) },
		FitsDeadLetter: func(p topic.Position) bool { return view.fits(p, &view.givenUp) },
	}
	if path := definition.KeyedBy; len(path) > 0 {
		view.Key = func(p topic.Position) ([]byte, bool) { return view.key(p, path) }
	}
	return view, nil
}

func (v *groupView) failed() error { return v.err }

func (v *groupView) fail(err error) {
	if v.err == nil {
		v.err = err
	}
}

// row reads the row of a message.
func (v *groupView) row(p topic.Position) []byte {
	if row, ok := v.rows[p]; ok {
		return row
	}
	if v.cursor == nil || v.cursorAt+1 != p {
		v.close()
		v.cursor = v.source.messages(v.table, p, v.Last)
	}
	if !v.cursor.next() {
		v.fail(v.cursor.close())
		v.cursor = nil
		v.fail(fault.New(fault.Internal, "message %d of topic %s is not there", p, v.table.Name))
		return nil
	}
	v.cursorAt = v.cursor.position()
	row := v.chunk.copy(v.cursor.row())
	v.rows[p] = row
	return row
}

func (v *groupView) close() {
	if v.cursor != nil {
		v.fail(v.cursor.close())
		v.cursor = nil
	}
}

// fits counts a message into a total and reports whether one answer may hold
// it. The first message is not asked for, and always fits.
func (v *groupView) fits(p topic.Position, total *int) bool {
	_, encoded, err := decodeMessageRow(v.row(p))
	if err != nil {
		v.fail(corrupt(v.table.Name, p, err))
		return false
	}
	*total += len(encoded)
	return *total <= MaxAnswerBytes
}

// key is the value at a group's KEYED BY path, encoded.
func (v *groupView) key(p topic.Position, path value.Path) ([]byte, bool) {
	_, encoded, err := decodeMessageRow(v.row(p))
	if err != nil {
		v.fail(corrupt(v.table.Name, p, err))
		return nil, false
	}
	content, err := value.DecodeCBOR(encoded)
	if err != nil {
		v.fail(corrupt(v.table.Name, p, err))
		return nil, false
	}
	key := path.Of(content)
	if key.IsNone() {
		return nil, false
	}
	bytes, err := key.AppendCBOR(nil)
	if err != nil {
		v.fail(err)
	}
	return bytes, err == nil
}

// loadGroup reads a group's rows. One that has nothing in flight and no keys to
// wait for has none, and where they were is not looked through: an engine may
// keep what was removed for a while.
func loadGroup(ctx context.Context, st rowSource, r engine.Reader, definition *Group) (*topic.Group, error) {
	group, err := newGroup(st, definition)
	if err != nil {
		return nil, fmt.Errorf("group '%s': %w", definition.Name, err)
	}
	if definition.Definition.KeyedBy == "" && group.Head().InFlight() == 0 {
		return group, nil
	}
	entries := r.Scan(ctx, objectRange(rowGroupEntry, definition.ID), false, 0)
	for err == nil && entries.Next() {
		err = loadEntryRow(group, positionOf(entries.Key()), entries.Value())
	}
	if closing := entries.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, fmt.Errorf("group '%s': %w", definition.Name, err)
	}
	return group, nil
}

func newGroup(st rowSource, definition *Group) (*topic.Group, error) {
	row, found, err := st.get(objectKey(rowGroupHead, definition.ID))
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fault.New(fault.Internal, "it has no head")
	}
	head, err := topic.DecodeHead(row)
	return topic.NewGroup(definition.Definition, head), err
}

// group is the newest state of a group.
func (s *sealing) group(_ *Table, definition *Group) (*topic.Group, error) {
	known := s.groups[definition.ID]
	if known == nil {
		group, err := loadGroup(s.ctx, s, s.commit, definition)
		if err != nil {
			return nil, s.fail(err)
		}
		known = &sealedGroup{definition: definition, group: group}
		s.groups[definition.ID] = known
	}
	if known.definition != definition {
		known.definition = definition
		known.group.SetDefinition(definition.Definition)
	}
	return known.group, nil
}

// checkGroup returns fault.Conflict when commands that ran on an earlier state
// of a group do not stand on the newest.
func (s *sealing) checkGroup(table *Table, definition *Group, changes []topic.Change) error {
	group, err := s.group(table, definition)
	if err != nil {
		return err
	}
	return group.Check(changes...)
}

// change applies a command to the newest state of a group and writes what it
// changed. What the group gives up goes to its dead letter topic in the same
// commit; a topic that cannot take it holds nobody up.
func (s *sealing) change(table *Table, definition *Group, change topic.Change) error {
	group, err := s.group(table, definition)
	if err != nil {
		return err
	}
	for _, given := range change.GivenUp {
		refusal, err := s.deadLetter(table, definition, given)
		if err != nil {
			return err
		}
		if refusal != nil {
			change.Refuse(refusal.Error())
		}
	}
	if err := group.Apply(change); err != nil {
		return err
	}
	writeEntryRows(s.commit, definition.ID, group, change)
	// Also where it is as it was: by its head those who wait on other nodes see
	// that a group has changed.
	s.commit.Set(objectKey(rowGroupHead, definition.ID), group.Head().Append(nil))
	s.wrote = true
	s.touchedGroups[definition.ID] = struct{}{}
	return nil
}

// letterLevels is how often a message may have been given up on, each time a
// level deeper in the letter before.
const letterLevels = 8

// deadLetter appends a message that was given up on to the group's dead letter
// topic. It returns why that topic refused it, nil where it did not or there is
// none.
func (s *sealing) deadLetter(table *Table, definition *Group, given topic.GiveUp) (refusal, err error) {
	name := definition.Definition.DeadLetter
	if name == "" {
		return nil, nil
	}
	target, err := s.catalog.TopicTable(name)
	if err != nil {
		return err, nil
	}
	// A transaction may have given up on what was held when it began.
	t, err := s.tail(table)
	if err != nil {
		return nil, err
	}
	if given.Position < t.first {
		return fault.New(fault.NotFound, "retention removed message %d of topic %s before it was given up on", given.Position, table.Name), nil
	}
	row, err := s.messageRow(table, given.Position)
	if err != nil {
		return nil, err
	}
	head, encoded, err := decodeMessageRow(row)
	if err != nil {
		return corrupt(table.Name, given.Position, err), nil
	}
	content, err := value.DecodeCBOR(encoded)
	if err != nil {
		return corrupt(table.Name, given.Position, err), nil
	}
	letter := value.Object{
		"topic":      value.String(table.Name),
		"group":      value.String(definition.Name),
		"position":   value.Int(int64(given.Position)),
		"deliveries": value.Int(int64(given.Deliveries)),
		"value":      content,
	}
	if given.Reason != "" {
		letter["reason"] = value.String(given.Reason)
	}
	message, err := prepareMessage(target, NewMessage{Value: value.Fields(letter)}, letterLevels)
	if err != nil {
		return err, nil
	}
	message.headers = head.headers
	messages := []*newMessage{&message}
	if err := s.admit(target, messages); err != nil {
		return err, s.failed
	}
	s.letters = append(s.letters, topicAppends{target, messages})
	return nil, s.append(target, messages)
}

// forget drops what is known of a group that could not look at a message: it
// may have taken that for one without a key.
func (s *sealing) forget(definition *Group) { delete(s.groups, definition.ID) }

// forget does nothing: the command's error fails the transaction.
func (st *txState) forget(*Group) {}

// group is a group as the transaction sees it.
func (st *txState) group(table *Table, definition *Group) (*topic.Group, error) {
	if known := st.groups[definition.ID]; known != nil {
		return known.group, nil
	}
	if st.isDropped(objectKey(rowGroupHead, definition.ID)) {
		return nil, fault.New(fault.NotAGroup, "topic %s has no group '%s'", table.Name, definition.Name)
	}
	group, err := loadGroup(st.ctx, st, st.snapshot, definition)
	if err != nil {
		return nil, err
	}
	if st.groups == nil {
		st.groups = map[ObjectID]*txGroup{}
	}
	st.groups[definition.ID] = &txGroup{table: table, definition: definition, group: group}
	return group, nil
}

// change applies a command to the group that the transaction sees, and keeps
// it for the commit.
func (st *txState) change(table *Table, definition *Group, change topic.Change) error {
	if _, err := st.group(table, definition); err != nil {
		return err
	}
	known := st.groups[definition.ID]
	if err := known.group.Apply(change); err != nil {
		return err
	}
	if len(known.changes) == 0 {
		st.groupOrder = append(st.groupOrder, definition.ID)
	}
	known.changes = append(known.changes, change)
	st.size += operationBytes * max(1, len(change.Entries))
	return st.checkSize()
}

// groupNames are the names of a topic's groups, sorted.
func (t *Table) groupNames() []string {
	names := make([]string, 0, len(t.Groups))
	for name := range t.Groups {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
