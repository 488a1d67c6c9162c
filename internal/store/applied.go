package store

import (
	"context"
	"encoding/binary"

	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// rowApplied is the position of the newest message of an identity that a
// consumer wrote into its table:
//
//	a consumer-id key -> topic-id table-id position
//
// It is kept only while the consumer's group has an earlier message that it has
// not settled: when that one is retried, it must not replace what a later one
// of the same identity wrote. Where everything earlier is settled nothing can
// come late, and the rows are forgotten.
const rowApplied = 'a'

// Applied are the positions that one consumer wrote from one topic into one
// table. Rows of another topic or table, which the consumer had before it was
// declared anew, are as if they were not there.
type Applied struct {
	tx       *Tx
	consumer ObjectID
	topic    ObjectID
	table    ObjectID
	// kept says that the snapshot has rows at all, which it mostly has not.
	kept bool
}

// Applied opens the positions that a consumer wrote.
func (tx *Tx) Applied(ctx context.Context, consumer ObjectID, from, into *Table) (*Applied, error) {
	if err := tx.run(ctx); err != nil {
		return nil, err
	}
	a := &Applied{tx: tx, consumer: consumer, topic: from.ID, table: into.ID}
	it := tx.snapshot.Scan(ctx, objectRange(rowApplied, consumer), false, 1)
	a.kept = it.Next()
	return a, it.Close()
}

func (a *Applied) key(identity value.Value) ([]byte, error) {
	encoded, err := value.AppendKey(nil, identity)
	return objectSuffixKey(rowApplied, a.consumer, encoded), err
}

// At is the position of the newest message of an identity, 0 where none is
// kept.
func (a *Applied) At(identity value.Value) (topic.Position, error) {
	if !a.kept {
		return 0, nil
	}
	key, err := a.key(identity)
	if err != nil {
		return 0, err
	}
	row, found, err := a.tx.get(key)
	if err != nil || !found || len(row) != appliedRowBytes {
		return 0, err
	}
	if ObjectID(binary.BigEndian.Uint32(row)) != a.topic || ObjectID(binary.BigEndian.Uint32(row[4:])) != a.table {
		return 0, nil
	}
	return topic.Position(binary.BigEndian.Uint64(row[8:])), nil
}

const appliedRowBytes = 4 + 4 + 8

// Keep keeps the position of the newest message of an identity.
func (a *Applied) Keep(identity value.Value, p topic.Position) error {
	key, err := a.key(identity)
	if err != nil {
		return err
	}
	row := make([]byte, 0, appliedRowBytes)
	row = binary.BigEndian.AppendUint32(row, uint32(a.topic))
	row = binary.BigEndian.AppendUint32(row, uint32(a.table))
	row = binary.BigEndian.AppendUint64(row, uint64(p))
	return a.tx.put(key, row)
}

// forgetAppliedStep bounds how many positions one transaction forgets.
const forgetAppliedStep = 10_000

// Forget removes the positions that are kept, for a consumer whose group has
// settled everything. They are removed one by one, so that a position which
// another transaction keeps meanwhile stays.
func (a *Applied) Forget() error {
	if !a.kept {
		return nil
	}
	it := a.tx.snapshot.Scan(a.tx.ctx, objectRange(rowApplied, a.consumer), false, forgetAppliedStep)
	var keys [][]byte
	for len(keys) < forgetAppliedStep && it.Next() {
		keys = append(keys, append([]byte(nil), it.Key()...))
	}
	if err := it.Close(); err != nil {
		return err
	}
	for _, key := range keys {
		if err := a.tx.put(key, nil); err != nil {
			return err
		}
	}
	return nil
}
