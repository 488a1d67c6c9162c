package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// tail is what one state knows of a topic: what it holds and what it gave.
//
// Positions first to last are held. The last message carries the topic's size
// and newest time, so that appending writes no row but the message; the
// topic's state row is written only when retention moves first, and remembers
// there what a topic that holds nothing could otherwise not tell.
type tail struct {
	first, last topic.Position
	// bytesBefore is the size of all values before first, bytes of all up to
	// last.
	bytesBefore, bytes uint64
	// appended is the time of the newest message that there was.
	appended time.Time
	// swept is the highest position whose row housekeeping has removed;
	// positions from there to before first are let go, but still on the disk.
	swept topic.Position
	// named says that an identity of the topic may have an index row.
	named bool
}

func emptyTail() tail { return tail{first: 1} }

// messages is how many the topic holds.
func (t tail) messages() uint64 { return uint64(t.last + 1 - t.first) }

// heldBytes is the size of the values that the topic holds.
func (t tail) heldBytes() uint64 { return t.bytes - t.bytesBefore }

// letGo moves first up to a position, before which all takes bytesBefore.
func (t *tail) letGo(first topic.Position, bytesBefore uint64) {
	t.first, t.bytesBefore = first, bytesBefore
}

const stateRowBytes = 8*6 + 1

func (t tail) encode() []byte {
	row := make([]byte, 0, stateRowBytes)
	row = binary.BigEndian.AppendUint64(row, uint64(t.first))
	row = binary.BigEndian.AppendUint64(row, uint64(t.last))
	row = binary.BigEndian.AppendUint64(row, t.bytesBefore)
	row = binary.BigEndian.AppendUint64(row, t.bytes)
	row = binary.BigEndian.AppendUint64(row, uint64(t.appended.UnixNano()))
	row = binary.BigEndian.AppendUint64(row, uint64(t.swept))
	if t.named {
		return append(row, 1)
	}
	return append(row, 0)
}

func decodeTail(row []byte) (tail, error) {
	if len(row) != stateRowBytes {
		return tail{}, fmt.Errorf("a topic's state row has %d bytes, not %d", len(row), stateRowBytes)
	}
	return tail{
		first:       topic.Position(binary.BigEndian.Uint64(row)),
		last:        topic.Position(binary.BigEndian.Uint64(row[8:])),
		bytesBefore: binary.BigEndian.Uint64(row[16:]),
		bytes:       binary.BigEndian.Uint64(row[24:]),
		appended:    time.Unix(0, int64(binary.BigEndian.Uint64(row[32:]))).UTC(),
		swept:       topic.Position(binary.BigEndian.Uint64(row[40:])),
		named:       row[48] != 0,
	}, nil
}

// loadTail reads a topic's tail of a state.
func loadTail(ctx context.Context, r engine.Reader, id ObjectID) (tail, error) {
	t := emptyTail()
	entry, err := r.Get(ctx, objectKey(rowTopicState, id))
	if err != nil {
		return t, err
	}
	if entry.Sequence != 0 {
		if t, err = decodeTail(entry.Value); err != nil {
			return t, err
		}
	}
	newest := r.Scan(ctx, objectRange(rowMessage, id), true, 1)
	if newest.Next() {
		head, _, err := decodeMessageRow(newest.Value())
		if err != nil {
			_ = newest.Close()
			return t, err
		}
		if p := positionOf(newest.Key()); p > t.last {
			t.last, t.bytes, t.appended = p, head.totalBytes, head.appended
		}
	}
	return t, newest.Close()
}

// messageSource reads the messages of one state.
type messageSource interface {
	// messages iterates over the rows of positions from, up to and with to,
	// which the state holds.
	messages(t *Table, from, to topic.Position) messageCursor
	// messageRow is the row of a position that the state holds.
	messageRow(t *Table, p topic.Position) ([]byte, error)
}

// messageCursor walks over the rows of messages, in order of their positions.
type messageCursor interface {
	next() bool
	position() topic.Position
	// row is valid until the next call.
	row() []byte
	close() error
}

// engineCursor reads the rows that an engine's state holds.
type engineCursor struct{ it engine.Iterator }

func (c engineCursor) next() bool               { return c.it.Next() }
func (c engineCursor) position() topic.Position { return positionOf(c.it.Key()) }
func (c engineCursor) row() []byte              { return c.it.Value() }
func (c engineCursor) close() error             { return c.it.Close() }

// firstSince is the lowest position in t whose message was appended at or
// after a time, last + 1 when there is none.
func firstSince(source messageSource, table *Table, t tail, since time.Time) (topic.Position, error) {
	return topic.FirstSince(t.first, t.last, since, appendedAt(source, table))
}

// appendedAt is the time of a message that the topic holds.
func appendedAt(source messageSource, table *Table) func(topic.Position) (time.Time, error) {
	return func(p topic.Position) (time.Time, error) {
		head, err := headAt(source, table, p)
		return head.appended, err
	}
}

func headAt(source messageSource, table *Table, p topic.Position) (messageHead, error) {
	row, err := source.messageRow(table, p)
	if err != nil {
		return messageHead{}, err
	}
	head, _, err := decodeMessageRow(row)
	if err != nil {
		err = corrupt(table.Name, p, err)
	}
	return head, err
}

// rowChunk hands out copies of rows from larger pieces of memory, so that a
// page of messages costs a few allocations.
type rowChunk struct {
	free []byte
	size int
}

const (
	minRowChunkBytes = 1 << 10
	maxRowChunkBytes = 64 << 10
)

func (c *rowChunk) copy(row []byte) []byte {
	if len(row) > len(c.free) {
		c.size = min(max(2*c.size, minRowChunkBytes), maxRowChunkBytes)
		if len(row) > c.size/4 {
			return append([]byte(nil), row...)
		}
		c.free = make([]byte, c.size)
	}
	copied := c.free[:len(row):len(row)]
	c.free = c.free[len(row):]
	copy(copied, row)
	return copied
}
