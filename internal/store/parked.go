package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// The bounds of what one consumer parks. Together they keep its quarantine
// under 64 MiB, so that INFO can show all of it in one answer.
const (
	// MaxParked is how many messages are kept, the newest.
	MaxParked = 1000
	// MaxParkedPayloadBytes is where a longer payload is cut.
	MaxParkedPayloadBytes = 64 << 10
)

// Parked is a message of another system that a consumer could not apply and
// put aside.
type Parked struct {
	Partition int32
	Offset    int64
	// Reason is why, and says where the payload was cut.
	Reason string
	// Payload is nil for a message that had none.
	Payload []byte
	At      time.Time
}

// Park puts a message aside in the transaction, with its payload cut to
// MaxParkedPayloadBytes, and removes the oldest of what is more than MaxParked.
func (tx *Tx) Park(ctx context.Context, consumer ObjectID, parked Parked) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	if size := len(parked.Payload); size > MaxParkedPayloadBytes {
		parked.Payload = cutText(parked.Payload, MaxParkedPayloadBytes)
		parked.Reason += fmt.Sprintf(" (the payload of %d bytes is cut to %d)", size, len(parked.Payload))
	}
	row, err := encodeDefinition(parked)
	if err != nil {
		return err
	}
	numbers, err := tx.objectRows(rowParked, consumer)
	if err != nil {
		return err
	}
	next := uint64(1)
	if len(numbers) > 0 {
		next = binary.BigEndian.Uint64([]byte(numbers[len(numbers)-1][5:])) + 1
	}
	for len(numbers) >= MaxParked {
		if err := tx.put([]byte(numbers[0]), nil); err != nil {
			return err
		}
		numbers = numbers[1:]
	}
	return tx.put(binary.BigEndian.AppendUint64(objectKey(rowParked, consumer), next), row)
}

// cutText cuts bytes to at most a size, not within a character.
func cutText(text []byte, size int) []byte {
	cut := size
	for cut > size-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// Parked returns what a consumer has put aside, oldest first.
func (tx *Tx) Parked(ctx context.Context, consumer ObjectID) ([]Parked, error) {
	if err := tx.run(ctx); err != nil {
		return nil, err
	}
	keys, err := tx.objectRows(rowParked, consumer)
	if err != nil {
		return nil, err
	}
	list := make([]Parked, len(keys))
	for i, key := range keys {
		row, _, err := tx.get([]byte(key))
		if err != nil {
			return nil, err
		}
		if err := decodeDefinition(row, &list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// objectRows are the keys of an object's rows as the transaction sees them, in
// order. It is for kinds of rows that are few.
func (tx *Tx) objectRows(row byte, id ObjectID) ([]string, error) {
	rows := objectRange(row, id)
	var stored []string
	if !tx.isDropped(rows.From) {
		err := scanRows(tx.ctx, tx.snapshot, rows, func(key, _ []byte) error {
			stored = append(stored, string(key))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return tx.mergeWritten(rows, stored), nil
}

// mergeWritten adds the keys that the transaction set to those that the
// snapshot has, and takes away those that it removed.
func (tx *Tx) mergeWritten(rows engine.Range, stored []string) []string {
	var merged []string
	tx.writes.Ascend(string(rows.From), func(key string, w write) bool {
		if key >= string(rows.To) {
			return false
		}
		for len(stored) > 0 && stored[0] < key {
			merged, stored = append(merged, stored[0]), stored[1:]
		}
		if len(stored) > 0 && stored[0] == key {
			stored = stored[1:]
		}
		if w.row != nil {
			merged = append(merged, key)
		}
		return true
	})
	return append(merged, stored...)
}
