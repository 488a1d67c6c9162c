package pebble

import (
	"encoding/binary"
	"time"

	crdb "github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// maxCommitBytes bounds what one commit writes. It is in memory three times
// for a moment: as a batch, in the log's buffers and sorted.
const maxCommitBytes = 128 << 20

// commit is a commit being formed. It reads what Pebble shows, which is what
// was applied: the space's turn is held, so that does not change meanwhile.
type commit struct {
	reader
	db       *crdb.DB
	now      time.Time
	batch    *crdb.Batch
	tooLarge bool
}

func newCommit(s *space) *commit {
	return &commit{
		reader: reader{engine: s.engine, prefix: s.prefix, from: s.engine.db, sequence: s.latest},
		db:     s.engine.db,
		now:    s.engine.clock.Now(),
	}
}

func (c *commit) Now() time.Time { return c.now }

// Set writes the sequence and the value into the batch without a copy between.
func (c *commit) Set(key, value []byte) {
	batch := c.room()
	if batch == nil {
		return
	}
	put := batch.SetDeferred(prefixBytes+len(key), sequenceBytes+len(value))
	copy(put.Key, c.prefix[:])
	copy(put.Key[prefixBytes:], key)
	binary.BigEndian.PutUint64(put.Value, uint64(c.sequence+1))
	copy(put.Value[sequenceBytes:], value)
	finish(put)
}

func (c *commit) Delete(key []byte) {
	batch := c.room()
	if batch == nil {
		return
	}
	put := batch.DeleteDeferred(prefixBytes + len(key))
	copy(put.Key, c.prefix[:])
	copy(put.Key[prefixBytes:], key)
	finish(put)
}

func (c *commit) DeleteRange(r engine.Range) {
	if empty(r) {
		return
	}
	batch := c.room()
	if batch == nil {
		return
	}
	from, to := c.prefix.bounds(r)
	put := batch.DeleteRangeDeferred(len(from), len(to))
	copy(put.Key, from)
	copy(put.Value, to)
	finish(put)
}

// finish ends an operation on a batch, which fails on indexed batches only.
func finish(put *crdb.DeferredBatchOp) {
	if err := put.Finish(); err != nil {
		panic(err)
	}
}

// room returns the batch, or nil when it is full, which fails the commit.
func (c *commit) room() *crdb.Batch {
	if c.batch == nil {
		c.batch = c.db.NewBatch()
	}
	if c.batch.Len() > maxCommitBytes {
		c.tooLarge = true
		return nil
	}
	return c.batch
}

// discard drops what was written.
func (c *commit) discard() {
	if c.batch != nil {
		_ = c.batch.Close() // Nothing is released that could fail.
	}
}
