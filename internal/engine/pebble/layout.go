package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	crdb "github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// The layout of keys and values in Pebble, all numbers big-endian:
//
//	space id (4) | key                        -> sequence (8) | value
//	0xFFFFFFFF (4) | space id (4)             -> version (1) | state (1) | sequence (8) | time (8)
//
// The second kind is the row of a space: its newest commit, when that was (in
// nanoseconds since 1970), and whether the space was dropped. The rows are at
// the end, where tuning.go keeps them in files of their own: they change with
// every commit, and in a file with the messages of a commit they would stretch
// it over all keys, so that each merge had to rewrite what it could move.
const (
	prefixBytes   = 4
	sequenceBytes = 8

	// maxSpaceID is the largest id of a space; the one after it is of the rows.
	maxSpaceID engine.SpaceID = math.MaxUint32 - 1

	rowBytes   = 1 + 1 + 8 + 8
	rowVersion = 1

	rowLive    = 0
	rowDropped = 1
)

var (
	rowsPrefix = []byte{0xff, 0xff, 0xff, 0xff}
	// rowsEnd is past all keys of rows, which have 8 bytes.
	rowsEnd = bytes.Repeat([]byte{0xff}, 9)
)

// prefix is what the keys of a space begin with.
type prefix [prefixBytes]byte

func prefixOf(id engine.SpaceID) prefix {
	var p prefix
	binary.BigEndian.PutUint32(p[:], uint32(id))
	return p
}

// key returns the key in Pebble of a key in the space.
func (p prefix) key(key []byte) []byte {
	prefixed := make([]byte, prefixBytes+len(key))
	copy(prefixed, p[:])
	copy(prefixed[prefixBytes:], key)
	return prefixed
}

// bounds returns a range of the space as one of Pebble.
func (p prefix) bounds(r engine.Range) (from, to []byte) {
	if r.To != nil {
		return p.key(r.From), p.key(r.To)
	}
	next := prefixOf(engine.SpaceID(binary.BigEndian.Uint32(p[:]) + 1))
	return p.key(r.From), next[:]
}

// split takes a value of Pebble apart.
func split(stored []byte) (engine.Sequence, []byte, error) {
	if len(stored) < sequenceBytes {
		return 0, nil, fmt.Errorf("a value of %d bytes is damaged: %w", len(stored), crdb.ErrCorruption)
	}
	return engine.Sequence(binary.BigEndian.Uint64(stored)), stored[sequenceBytes:], nil
}

// spaceRow is the row of a space.
type spaceRow struct {
	dropped  bool
	sequence engine.Sequence
	time     time.Time
}

func rowKey(id engine.SpaceID) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(rowsPrefix), uint32(id))
}

func (r spaceRow) encode() []byte {
	encoded := make([]byte, 0, rowBytes)
	state := byte(rowLive)
	if r.dropped {
		state = rowDropped
	}
	encoded = append(encoded, rowVersion, state)
	encoded = binary.BigEndian.AppendUint64(encoded, uint64(r.sequence))
	return binary.BigEndian.AppendUint64(encoded, uint64(r.time.UnixNano()))
}

func decodeRow(encoded []byte) (spaceRow, error) {
	if len(encoded) != rowBytes || encoded[0] != rowVersion || encoded[1] > rowDropped {
		return spaceRow{}, fmt.Errorf("the row of a space, %x, is damaged: %w", encoded, crdb.ErrCorruption)
	}
	return spaceRow{
		dropped:  encoded[1] == rowDropped,
		sequence: engine.Sequence(binary.BigEndian.Uint64(encoded[2:])),
		time:     time.Unix(0, int64(binary.BigEndian.Uint64(encoded[10:]))).UTC(),
	}, nil
}

// readSpaceRow returns the row of a space, the zero row where it has none.
func readSpaceRow(db *crdb.DB, id engine.SpaceID) (spaceRow, error) {
	encoded, closer, err := db.Get(rowKey(id))
	if errors.Is(err, crdb.ErrNotFound) {
		return spaceRow{}, nil
	}
	if err != nil {
		return spaceRow{}, err
	}
	row, err := decodeRow(encoded)
	return row, errors.Join(err, closer.Close())
}

// readTotals returns the newest time of all spaces, the zero time where there
// was no commit, and how many commits there were.
func readTotals(db *crdb.DB) (newest time.Time, commits uint64, err error) {
	err = scanSpaceRows(context.Background(), db, func(_ engine.SpaceID, row spaceRow) {
		commits += uint64(row.sequence)
		if row.time.After(newest) {
			newest = row.time
		}
	})
	return newest, commits, err
}

// scanSpaceRows visits the rows of all spaces, in the order of their ids.
func scanSpaceRows(ctx context.Context, from source, visit func(engine.SpaceID, spaceRow)) (err error) {
	iter, err := from.NewIterWithContext(ctx, &crdb.IterOptions{LowerBound: rowsPrefix, UpperBound: rowsEnd})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for ok := iter.First(); ok; ok = iter.Next() {
		encoded, err := iter.ValueAndErr()
		if err != nil {
			return err
		}
		row, err := decodeRow(encoded)
		if err != nil {
			return err
		}
		visit(engine.SpaceID(binary.BigEndian.Uint32(iter.Key()[prefixBytes:])), row)
	}
	return nil
}
