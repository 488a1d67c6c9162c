package store

import (
	"encoding/binary"
	"slices"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// The messages that a group has not settled lie in rows of a few positions
// each. Messages are mostly handed out and acknowledged by neighbours, so that
// a page of a hundred changes thirteen rows and not a hundred; and a row is small
// enough that one message acknowledged by itself rewrites little.
const entriesARow = 8

// entryRow is the number of the row that holds a position.
func entryRow(p topic.Position) topic.Position { return p / entriesARow }

func entryRowKey(group ObjectID, row topic.Position) []byte {
	return positionKey(rowGroupEntry, group, row)
}

// A row is, for each position that is not settled, in order:
//
//	offset   1 byte, from the row's first position
//	size     2 bytes
//	entry    as topic encodes it
func encodeEntryRow(group *topic.Group, row topic.Position) []byte {
	var encoded []byte
	for offset := range topic.Position(entriesARow) {
		entry := group.Entry(row*entriesARow + offset)
		if entry.State == topic.Settled {
			continue
		}
		encoded = append(encoded, byte(offset), 0, 0)
		start := len(encoded)
		encoded = entry.Append(encoded)
		binary.BigEndian.PutUint16(encoded[start-2:], uint16(len(encoded)-start))
	}
	return encoded
}

// loadEntryRow adds the entries of a row to a group.
func loadEntryRow(group *topic.Group, row topic.Position, encoded []byte) error {
	for len(encoded) > 0 {
		if len(encoded) < 3 {
			return fault.New(fault.Internal, "its row %d ends within an entry", row)
		}
		offset, size := topic.Position(encoded[0]), int(binary.BigEndian.Uint16(encoded[1:]))
		if offset >= entriesARow || len(encoded) < 3+size {
			return fault.New(fault.Internal, "its row %d holds no entries", row)
		}
		entry, err := topic.DecodeEntry(encoded[3 : 3+size])
		if err != nil {
			return err
		}
		if err := group.Load(row*entriesARow+offset, entry); err != nil {
			return err
		}
		encoded = encoded[3+size:]
	}
	return nil
}

// writeEntryRows writes the rows of a group that a change touched. The change
// is applied already.
func writeEntryRows(commit engine.Commit, id ObjectID, group *topic.Group, change topic.Change) {
	if change.ForgetTo > 0 {
		last := entryRow(change.ForgetTo)
		commit.DeleteRange(positionRange(rowGroupEntry, id, 0, last+1))
		writeEntryRow(commit, id, group, last)
	}
	rows := make([]topic.Position, len(change.Entries))
	for i, transition := range change.Entries {
		rows[i] = entryRow(transition.Position)
	}
	slices.Sort(rows)
	for _, row := range slices.Compact(rows) {
		writeEntryRow(commit, id, group, row)
	}
}

func writeEntryRow(commit engine.Commit, id ObjectID, group *topic.Group, row topic.Position) {
	if encoded := encodeEntryRow(group, row); len(encoded) > 0 {
		commit.Set(entryRowKey(id, row), encoded)
	} else {
		commit.Delete(entryRowKey(id, row))
	}
}
