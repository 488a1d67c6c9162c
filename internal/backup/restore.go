package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Place is where a store is restored to: Folder or Schema.
type Place interface {
	// Open opens an empty store where nobody looks for one, whose clock is the
	// one given. It fails where the place is taken.
	Open(ctx context.Context, clock func() time.Time) (engine.Engine, error)

	// Keep puts the store, which was closed, in its place.
	Keep(ctx context.Context) error

	// Discard removes the store that Open made. The place is as it was.
	Discard(ctx context.Context) error
}

// Restore makes a store of a backup: it writes the rows, reads them back from
// the closed and opened store, compares, and only then puts the store in its
// place. When it fails the place is as it was. tell, unless nil, is called
// after each block.
func Restore(ctx context.Context, from io.Reader, place Place, tell func(Header, Progress)) (Header, Progress, error) {
	r, err := NewReader(from)
	if err != nil {
		return Header{}, Progress{}, err
	}
	err = restore(ctx, r, place, tell)
	if err == nil {
		err = place.Keep(ctx)
	}
	if err != nil {
		// Also where the caller gave up.
		discarded := place.Discard(context.WithoutCancel(ctx))
		return r.Header(), r.Progress(), errors.Join(err, discarded)
	}
	return r.Header(), r.Progress(), nil
}

func restore(ctx context.Context, r *Reader, place Place, tell func(Header, Progress)) (err error) {
	// The store's clock stands at the moment of the backup while it is restored,
	// so that it goes on from there: commits are not before what they hold.
	taken := r.Header().Taken
	e, err := place.Open(ctx, func() time.Time { return taken })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for r.Next() {
		if err := commitRows(ctx, e, r.Space(), r.Rows()); err != nil {
			return err
		}
		if tell != nil {
			tell(r.Header(), r.Progress())
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	return verify(ctx, e, r)
}

// commitRows commits the rows of a block.
func commitRows(ctx context.Context, e engine.Engine, id engine.SpaceID, rows []Row) error {
	space, err := e.Space(ctx, id)
	if err != nil {
		return err
	}
	_, err = space.Commit(ctx, func(c engine.Commit) error {
		for _, row := range rows {
			c.Set(row.Key, row.Value)
		}
		return nil
	})
	return err
}

// verify reads back what was restored and compares it with the backup.
func verify(ctx context.Context, e engine.Engine, r *Reader) error {
	cut, err := e.Cut(ctx)
	if err != nil {
		return err
	}
	defer cut.Release()
	restored := map[engine.SpaceID]bool{}
	for _, id := range cut.Spaces() {
		restored[id] = true
	}
	for _, want := range r.sums {
		got := newSpaceSum(want.id)
		if restored[want.id] {
			if err := sum(ctx, cut.Space(want.id), got); err != nil {
				return err
			}
		}
		if !bytes.Equal(got.end(), want.end()) {
			return fault.New(fault.Internal, "space %d was restored with %d rows of %d bytes, and the backup has %d of %d: the restored store is not used",
				want.id, got.rows, got.bytes, want.rows, want.bytes)
		}
	}
	return nil
}

// sum adds up all rows of a space.
func sum(ctx context.Context, r engine.Reader, into *spaceSum) error {
	var encoded []byte
	rows := r.Scan(ctx, engine.Range{}, false, 0)
	for rows.Next() {
		encoded = appendRow(encoded[:0], rows.Key(), rows.Value())
		into.add(rows.Key(), rows.Value(), encoded)
	}
	return rows.Close()
}
