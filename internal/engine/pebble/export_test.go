package pebble

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// What tests look at behind the engine.

// OldestSnapshot returns Pebble's sequence number of the oldest snapshot open.
func OldestSnapshot(e *Engine) uint64 {
	return uint64(e.db.Metrics().Snapshots.EarliestSeqNum)
}

// Metrics returns Pebble's tables of its levels and caches.
func Metrics(e *Engine) string { return e.db.Metrics().String() }

// RawScan reads up to limit entries from Pebble itself.
func RawScan(e *Engine, limit int) (read int) {
	iter, err := e.db.NewIter(nil)
	if err != nil {
		panic(err)
	}
	for ok := iter.First(); ok && read < limit; ok = iter.Next() {
		if _, err := iter.ValueAndErr(); err != nil {
			panic(err)
		}
		read++
	}
	if err := iter.Close(); err != nil {
		panic(err)
	}
	return read
}

// CompactAndCommit makes Pebble rewrite all tables, and commits until that has
// failed, for some seconds at most. It returns the last commit's outcome.
func CompactAndCommit(e *Engine, commit func() (engine.Sequence, error)) (engine.Sequence, error) {
	go func() { _ = e.db.Compact(context.Background(), []byte{0}, rowsEnd, false) }()
	deadline := time.Now().Add(10 * time.Second)
	for {
		sequence, err := commit()
		if err != nil || time.Now().After(deadline) {
			return sequence, err
		}
	}
}
