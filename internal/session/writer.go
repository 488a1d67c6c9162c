package session

import (
	"context"

	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// Writer writes records into transactions of a caller's own, as a statement
// does: with the table's defaults, types and assertions. It is used by one
// goroutine at a time.
type Writer struct{ session *Session }

// NewWriter returns a writer of a store's records.
func NewWriter(s *store.Store) *Writer { return &Writer{New(s, Options{})} }

// Put writes a record, whether or not one of its identity exists. A record that
// the table refuses leaves the transaction as it was.
func (w *Writer) Put(ctx context.Context, tx *store.Tx, table *store.Table, key, record value.Value) error {
	e := &environment{ctx: ctx, store: w.session.store, limits: w.session.limits}
	_, err := w.session.writeRecord(e, table, key, record, tx.Put)
	return err
}
