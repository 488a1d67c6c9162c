package postgres

import (
	"bytes"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

const (
	// maxCommitBytes bounds what one commit writes, which is in memory on both
	// sides for a moment.
	maxCommitBytes = 128 << 20

	// maxKeyBytes is what fits PostgreSQL's indexes: a third of a page, less
	// what stands beside a key.
	maxKeyBytes = 2600

	// maxStatementBytes is about how much one INSERT carries.
	maxStatementBytes = 4 << 20

	// chunkBytes is the size of the pieces of memory that copies are put in.
	chunkBytes = 64 << 10
)

// commit is a commit being formed, in the transaction that holds the space's
// row. What it writes is kept here until the form is done.
type commit struct {
	reader
	now time.Time

	writes []write
	size   int
	// free is the rest of the newest chunk of copies.
	free []byte
	// refused is why the commit cannot be taken.
	refused error
}

// write is one call of Set, Delete or DeleteRange.
type write struct {
	kind writeKind
	// key is that of a Set or Delete, and From of a range; value is To, nil for
	// a range without an end.
	key, value []byte
}

type writeKind uint8

const (
	writeSet writeKind = iota
	writeDelete
	writeDeleteRange
)

func newCommit(space engine.SpaceID, held *held) *commit {
	return &commit{
		reader: reader{
			from: held.session, space: space, sequence: held.latest.sequence,
			// The Commit that runs the form has passed the gate.
			enter: func() error { return nil },
			leave: func() {},
		},
		now: held.now,
	}
}

func (c *commit) Now() time.Time { return c.now }

func (c *commit) Set(key, value []byte) {
	if len(key) > maxKeyBytes && c.refused == nil {
		c.refused = fault.New(fault.TooLarge, "a key of %d bytes; PostgreSQL's indexes take %d", len(key), maxKeyBytes)
	}
	c.write(write{kind: writeSet, key: key, value: present(value)})
}

func (c *commit) Delete(key []byte) { c.write(write{kind: writeDelete, key: key}) }

func (c *commit) DeleteRange(r engine.Range) {
	if !empty(r) {
		c.write(write{kind: writeDeleteRange, key: r.From, value: r.To})
	}
}

func (c *commit) write(w write) {
	c.size += len(w.key) + len(w.value)
	if c.size > maxCommitBytes && c.refused == nil {
		c.refused = fault.New(fault.TooLarge, "a commit of more than %d bytes, the most that is taken; commit in parts", maxCommitBytes)
	}
	if c.refused != nil {
		return
	}
	w.key = c.copy(present(w.key))
	if w.value != nil {
		w.value = c.copy(w.value)
	}
	c.writes = append(c.writes, w)
}

// copy returns a copy in a larger piece of memory, which is never nil.
func (c *commit) copy(content []byte) []byte {
	if len(content) > chunkBytes/4 {
		return bytes.Clone(content)
	}
	if c.free == nil || len(content) > len(c.free) {
		c.free = make([]byte, chunkBytes)
	}
	copied := c.free[:len(content):len(content)]
	c.free = c.free[len(content):]
	copy(copied, content)
	return copied
}

// changes are what a commit's writes come to: first ranges are deleted, then
// the rows of the keys in touched, and then rows are inserted. In this order
// they may be made whatever the order of the calls was, because only the last
// write of a key is left, and none that a later range deletes.
type changes struct {
	ranges       []engine.Range
	touched      [][]byte
	keys, values [][]byte
}

func (c *commit) changes() changes {
	var made changes
	decided := make(map[string]struct{}, len(c.writes))
	for i := len(c.writes) - 1; i >= 0; i-- {
		w := c.writes[i]
		if w.kind == writeDeleteRange {
			made.ranges = append(made.ranges, engine.Range{From: w.key, To: w.value})
			continue
		}
		if _, later := decided[string(w.key)]; later || inRanges(made.ranges, w.key) {
			continue
		}
		decided[string(w.key)] = struct{}{}
		made.touched = append(made.touched, w.key)
		if w.kind == writeSet {
			made.keys = append(made.keys, w.key)
			made.values = append(made.values, w.value)
		}
	}
	// In the order of the calls, in which keys mostly ascend, as indexes like it.
	slices.Reverse(made.touched)
	slices.Reverse(made.keys)
	slices.Reverse(made.values)
	return made
}

func inRanges(ranges []engine.Range, key []byte) bool {
	for _, r := range ranges {
		if bytes.Compare(key, r.From) >= 0 && (r.To == nil || bytes.Compare(key, r.To) < 0) {
			return true
		}
	}
	return false
}

// queue adds the statements that make the changes to a batch.
func (m changes) queue(batch *pgx.Batch, sql *statements, space engine.SpaceID, sequence engine.Sequence) {
	for _, r := range m.ranges {
		if r.To == nil {
			batch.Queue(sql.dropRange, int32(space), r.From)
		} else {
			batch.Queue(sql.dropRangeTo, int32(space), r.From, r.To)
		}
	}
	if len(m.touched) > 0 {
		batch.Queue(sql.remove, int32(space), m.touched)
	}
	for begin := 0; begin < len(m.keys); {
		end, size := begin, 0
		for end < len(m.keys) && size < maxStatementBytes {
			size += len(m.keys[end]) + len(m.values[end])
			end++
		}
		batch.Queue(sql.insert, int32(space), int64(sequence), m.keys[begin:end], m.values[begin:end])
		begin = end
	}
}
