package store

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// The bounds of a READ.
const (
	DefaultReadLimit = 100
	MaxReadLimit     = 10_000
	// MaxAnswerBytes ends an answer before its values pass it, but never
	// before the first message: a message is at most as large as a request.
	MaxAnswerBytes = 16 << 20
)

// ReadOptions say which messages to read.
type ReadOptions struct {
	// Consumer is the name of the reader or group that reads; empty for a
	// read that leaves no trace.
	Consumer string
	// After and Since, of which at most one is set, say where to start.
	After *topic.Position
	Since *time.Time
	// Limit is at most how many messages to answer, DefaultReadLimit when 0.
	Limit int
	// MaxBytes is at most how many bytes of values to answer, but for a single
	// message that is larger: MaxAnswerBytes when 0.
	MaxBytes int
}

func (o ReadOptions) maxBytes() int {
	if o.MaxBytes == 0 {
		return MaxAnswerBytes
	}
	return o.MaxBytes
}

func (o ReadOptions) limit() int {
	if o.Limit == 0 {
		return DefaultReadLimit
	}
	return o.Limit
}

// Page is the answer to a READ.
type Page struct {
	Messages []Message
	// Lapsed is how many messages retention removed between the reader's
	// place and the first message of the page.
	Lapsed uint64
	// Due is when a group that had nothing to hand out will have, if nothing
	// else happens; zero when time alone changes nothing.
	Due time.Time
	// HandedOut is when a group handed the messages out, on the store's clock;
	// zero where they were read as no member of one.
	HandedOut time.Time
}

// empty reports whether there is nothing to tell, so that a READ with WAIT
// goes on waiting.
func (p Page) empty() bool { return len(p.Messages) == 0 && p.Lapsed == 0 }

// state is one state of a database that a statement reads and changes: what a
// transaction sees, or the newest state while a commit is sealed.
type state interface {
	rowSource
	context() context.Context
	now() time.Time
	set(key, row []byte)
	remove(key []byte)
	// tail is the topic as the state sees it.
	tail(t *Table) (tail, error)
	// group is a group as the state sees it.
	group(t *Table, g *Group) (*topic.Group, error)
	// forget drops what is known of a group that a command failed on.
	forget(g *Group)
	// change applies what a command did to a group.
	change(t *Table, g *Group, c topic.Change) error
}

// readPlain reads without a name.
func readPlain(source messageSource, table *Table, t tail, options ReadOptions) (Page, error) {
	next := topic.Position(1)
	if options.After != nil {
		if *options.After >= t.last {
			return Page{}, nil
		}
		next = *options.After + 1
	}
	if options.Since != nil {
		since, err := firstSince(source, table, t, *options.Since)
		if err != nil {
			return Page{}, err
		}
		next = since
	}
	start, lapsed := topic.Start(next, t.first)
	messages, err := readMessages(source, table, start, t.last, options)
	return Page{Messages: messages, Lapsed: lapsed}, err
}

// readMessages reads the messages from a position up to and with another,
// within the limits of one answer.
func readMessages(source messageSource, table *Table, from, to topic.Position, options ReadOptions) ([]Message, error) {
	if from > to {
		return nil, nil
	}
	limit := options.limit()
	if held := uint64(to - from + 1); uint64(limit) > held {
		limit = int(held)
	}
	messages := make([]Message, 0, min(limit, DefaultReadLimit*10))
	var chunk rowChunk
	var answered int
	cursor := source.messages(table, from, from+topic.Position(limit)-1)
	for len(messages) < limit && cursor.next() {
		message, err := messageOf(table, cursor.position(), chunk.copy(cursor.row()))
		if err != nil {
			_ = cursor.close()
			return nil, err
		}
		answered += len(message.encoded)
		if answered > options.maxBytes() && len(messages) > 0 {
			break
		}
		messages = append(messages, message)
	}
	return messages, cursor.close()
}

// readAs reads for a consumer and moves its place.
func readAs(st state, table *Table, options ReadOptions) (Page, error) {
	if group, ok := table.Groups[options.Consumer]; ok {
		return handOut(st, table, group, options)
	}
	t, err := st.tail(table)
	if err != nil {
		return Page{}, err
	}
	key := objectNameKey(rowReader, table.ID, options.Consumer)
	stored, found, err := readerPosition(st, key)
	if err != nil {
		return Page{}, err
	}
	place := stored
	switch {
	case options.After != nil:
		place = *options.After
		if err := topic.CheckAfter(table.Name, options.Consumer, place, t.last); err != nil {
			return Page{}, err
		}
	case options.Since != nil:
		since, err := firstSince(st, table, t, *options.Since)
		if err != nil {
			return Page{}, err
		}
		place = since - 1
	}
	start, lapsed := topic.Start(place+1, t.first)
	messages, err := readMessages(st, table, start, t.last, options)
	if err != nil {
		return Page{}, err
	}
	place = topic.Place(start, len(messages))
	moved := options.After != nil || options.Since != nil
	if place != stored || moved && !found {
		st.set(key, encodePosition(place))
	}
	return Page{Messages: messages, Lapsed: lapsed}, nil
}

func readerPosition(st rowSource, key []byte) (p topic.Position, found bool, err error) {
	row, found, err := st.get(key)
	if err != nil || !found {
		return 0, false, err
	}
	return decodePosition(row), true, nil
}

func encodePosition(p topic.Position) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(p))
}

func decodePosition(row []byte) topic.Position {
	if len(row) != 8 {
		return 0
	}
	return topic.Position(binary.BigEndian.Uint64(row))
}

// snapshotSource reads the messages of a snapshot.
type snapshotSource struct {
	ctx context.Context
	engine.Reader
}

func (s snapshotSource) messages(table *Table, from, to topic.Position) messageCursor {
	return engineCursor{s.Scan(s.ctx, positionRange(rowMessage, table.ID, from, to+1), false, int(to+1-from))}
}

func (s snapshotSource) messageRow(table *Table, p topic.Position) ([]byte, error) {
	entry, err := s.Get(s.ctx, positionKey(rowMessage, table.ID, p))
	return entry.Value, err
}

func (s snapshotSource) get(key []byte) ([]byte, bool, error) {
	entry, err := s.Get(s.ctx, key)
	return entry.Value, entry.Sequence != 0, err
}
