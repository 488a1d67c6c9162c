// Package backup carries a whole store in a stream of bytes: Write makes one of
// a store that is in use, Restore makes a store of one. It knows keys and
// values and nothing of what they mean, so a backup of one engine is restored
// into any other; that is also how a store moves between engines.
//
// Three ideas:
//
//   - A backup is a cut: all databases, and what is above them, at one moment.
//     Whatever was acknowledged before the backup began is in it, and of each
//     database a prefix of its commits; a commit that followed another, also in
//     another database, is not in it without that one.
//   - Nothing is derived again: positions, places of readers, deadlines,
//     deliveries and deduplication windows are rows like any other. Only
//     commit sequences begin anew. The restored store's clock goes on from the
//     moment of the backup.
//   - A backup is whole or refused. Each block's checksum goes on from that of
//     the block before, and the last one holds the counts. A store is restored
//     where nobody looks for one, read back and compared, and put in its place
//     last.
package backup

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Header is what a backup says of itself at its beginning.
type Header struct {
	// Taken is the moment of the backup on the store's clock, not before the
	// time of any commit in it.
	Taken time.Time
	// Engine is the name of the engine that carried the store.
	Engine string
	// Spaces is how many spaces follow: one a database, and one for what is above
	// them.
	Spaces int
}

// Progress is how far a backup or a restore is.
type Progress struct {
	// Spaces is how many are done, of those that the header names.
	Spaces int
	Rows   uint64
	// Bytes are those of the rows' keys and values.
	Bytes uint64
}

// Write writes a backup of a store that is open, and may be written meanwhile.
// It holds the state of all of the store while it writes: on Pebble that keeps
// files on disk that would be merged, on PostgreSQL rows that would be
// vacuumed. Memory is that of a block. tell, unless nil, is called after each
// block.
func Write(ctx context.Context, e engine.Engine, to io.Writer, tell func(Header, Progress)) error {
	cut, err := e.Cut(ctx)
	if err != nil {
		return err
	}
	defer cut.Release()
	// After the cut, so that no commit in it is later.
	now, err := e.Now(ctx)
	if err != nil {
		return err
	}
	spaces := slices.Clone(cut.Spaces())
	if len(spaces) == 0 {
		return fault.New(fault.NotFound, "the store is empty: nothing was ever committed to it, so there is nothing to back up")
	}
	// What is above databases comes last, so that what was restored in part has
	// no databases.
	slices.Reverse(spaces)
	header := Header{Taken: now, Engine: e.Name(), Spaces: len(spaces)}
	w, err := newWriter(to, header)
	if err != nil {
		return err
	}
	if tell != nil {
		w.tell = func(p Progress) { tell(header, p) }
	}
	for _, id := range spaces {
		if err := writeSpace(ctx, w, id, cut.Space(id)); err != nil {
			return err
		}
	}
	return w.close()
}

// writeSpace writes all rows of a space.
func writeSpace(ctx context.Context, w *writer, id engine.SpaceID, r engine.Reader) error {
	if err := w.beginSpace(id); err != nil {
		return err
	}
	rows := r.Scan(ctx, engine.Range{}, false, 0)
	for rows.Next() {
		if err := w.row(rows.Key(), rows.Value()); err != nil {
			_ = rows.Close() // The first error is the one to tell.
			return err
		}
	}
	if err := rows.Close(); err != nil {
		return err
	}
	return w.endSpace()
}

// Check reads a backup to its end and returns what it says of itself and what
// it holds, or why it is refused.
func Check(from io.Reader) (Header, Progress, error) {
	r, err := NewReader(from)
	if err != nil {
		return Header{}, Progress{}, err
	}
	for r.Next() {
	}
	return r.Header(), r.Progress(), r.Err()
}
