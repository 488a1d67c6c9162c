package client

import (
	"context"

	"github.com/tidemarkdb/tidemark/value"
)

// Tx is a transaction of one database. It is used by one goroutine at a time.
type Tx struct{ backend BackendTx }

// NewTx is a transaction over a backend. Programs use Database.Begin and
// Database.Transact.
func NewTx(backend BackendTx) *Tx { return &Tx{backend} }

// Appended are the first and last position that a commit gave in a topic.
type Appended struct{ First, Last uint64 }

// Exec runs statements in the transaction, as Database.Exec does. After one
// that failed, the transaction can only be cancelled.
func (tx *Tx) Exec(ctx context.Context, script string, params Params) ([]Answer, error) {
	return runWith(params, func(values map[string]value.Value) ([]Answer, error) {
		return tx.backend.Run(ctx, script, values)
	})
}

// Query runs one statement in the transaction and returns its rows.
func (tx *Tx) Query(ctx context.Context, statement string, params Params) (Rows, error) {
	return rowsOf(tx.Exec(ctx, statement, params))
}

// Append adds a message to a topic when the transaction commits.
func (tx *Tx) Append(ctx context.Context, topic string, message any, options ...AppendOption) error {
	m, err := newMessage(message, options)
	if err != nil {
		return err
	}
	return tx.backend.Append(ctx, topic, m)
}

// Put writes a record, whether or not one of its identity exists. The key is
// an int, a string or a uuid.
func (tx *Tx) Put(ctx context.Context, table string, key, record any) error {
	k, err := value.Of(key)
	if err != nil {
		return err
	}
	v, err := value.Of(record)
	if err != nil {
		return err
	}
	return tx.backend.Put(ctx, table, k, v)
}

// ReadFor reads messages of a topic in the transaction under a consumer's name,
// of a reader or a group: limit of them at most, 100 when 0. The moved place,
// or the hand-out, is part of the transaction.
func (tx *Tx) ReadFor(ctx context.Context, topic, consumer string, limit int) (Page, error) {
	if err := checkLimit(limit); err != nil {
		return Page{}, err
	}
	return tx.backend.Read(ctx, topic, ReadRequest{Consumer: consumer, Limit: limit})
}

// Commit makes what the transaction wrote durable, whole or not at all, and
// returns the positions of what was appended, by topic. fault.Conflict says
// that another transaction committed first what this one wrote or read as a
// consumer; nothing of it is written, and it can be run again.
func (tx *Tx) Commit(ctx context.Context) (map[string]Appended, error) {
	return tx.backend.Commit(ctx)
}

// Cancel ends the transaction; nothing of it is written. After Commit it does
// nothing.
func (tx *Tx) Cancel() { tx.backend.Cancel() }
