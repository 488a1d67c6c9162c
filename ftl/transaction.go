package ftl

import (
	"context"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
)

// Params are the values of a statement's parameters, by name without the $.
type Params = client.Params

// Rows are the rows that a statement answered.
type Rows = client.Rows

// Transaction is the transaction of a verb that runs. It commits when the verb
// returns nil, together with all that the verb publishes after it has begun and,
// in a sink or a mapper, with the acknowledgement of the event: what it writes
// happens exactly once an event. When the verb returns an error or panics,
// nothing of it is there.
//
// A transaction that loses to another one makes the verb run again, which is no
// attempt; what a verb does outside of the transaction it then does again.
//
// It is used by one goroutine at a time.
type Transaction struct{ call *call.Call }

// Tx returns the transaction of the verb that runs. It begins with the first
// statement, Put or Publish after Tx. Outside a verb every method of it is
// fault.NotAllowed.
func Tx(ctx context.Context) *Transaction {
	c := call.From(ctx)
	if c != nil {
		c.WantTransaction()
	}
	return &Transaction{c}
}

// Exec runs statements in the transaction; its error is that of the first one
// that failed.
func (t *Transaction) Exec(ctx context.Context, script string, params Params) error {
	return t.do(ctx, func(ctx context.Context, tx *client.Tx) error {
		_, err := tx.Exec(ctx, script, params)
		return err
	})
}

// Query runs one statement in the transaction and returns the rows it answers.
// It sees what the transaction has written, and otherwise the store as it was
// when the transaction began.
func (t *Transaction) Query(ctx context.Context, statement string, params Params) (rows Rows, err error) {
	err = t.do(ctx, func(ctx context.Context, tx *client.Tx) error {
		rows, err = tx.Query(ctx, statement, params)
		return err
	})
	return rows, err
}

// Put writes a record of a collection, a table or a space, whether or not one of
// its identity exists. The key is an int, a string or a uuid.
func (t *Transaction) Put(ctx context.Context, table string, key, record any) error {
	return t.do(ctx, func(ctx context.Context, tx *client.Tx) error { return tx.Put(ctx, table, key, record) })
}

func (t *Transaction) do(ctx context.Context, work func(ctx context.Context, tx *client.Tx) error) error {
	if t.call == nil {
		return fault.New(fault.NotAllowed, "a transaction is a verb's: pass ftl.Tx the context that the verb was given")
	}
	return t.call.Transact(ctx, work)
}
