package tidemark

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// PostgresTx is a transaction that the application opened on the PostgreSQL of
// its store, for InTx. Pgx and SQL make one of what the two usual libraries
// give; for another library it is this one method.
type PostgresTx interface {
	// Query runs a statement, whose parameters are written $1, $2, and calls
	// row, if it is not nil, with each row of the answer. It returns the first
	// error of either; an error of the server has a method SQLState.
	Query(ctx context.Context, statement string, arguments []any, row func(scan func(into ...any) error) error) error
}

// Pgx is a transaction of github.com/jackc/pgx, for InTx.
func Pgx(tx pgx.Tx) PostgresTx { return postgres.PgxHost(tx) }

// SQL is a transaction of database/sql, for InTx, whichever driver carries it.
func SQL(tx *sql.Tx) PostgresTx { return postgres.SQLHost(tx) }

// InTx runs work as a part of a transaction that the application opened on the
// PostgreSQL that carries its store (OpenPostgres): what the application wrote
// to its own tables, and what work appends, reads as a consumer, settles and
// writes, commit together or not at all. The application commits; until it does
// nobody sees anything of it, and when it rolls back nothing was there.
//
// One rule: call it last, and commit soon after. From its end until the
// application's COMMIT no other transaction of the database commits, on any
// node. PostgreSQL ends a transaction that holds up the others so and says
// nothing for five seconds.
//
// Where another transaction committed first what work wrote or read as a
// consumer, work runs again, also when it failed: what it did is taken back
// first, in tx too. At
// REPEATABLE READ and above only the application can run its whole transaction
// again, and InTx returns fault.Conflict. After an error, whatever it is, tx is
// as it was before InTx, and can go on without.
//
// InTx returns the positions of what work appended, by topic, which are true
// once the application has committed. A transaction that has ended is
// fault.NoTransaction, one that failed before is fault.TransactionFailed, and
// one on another PostgreSQL is fault.InvalidClause, as is a store that is not
// opened with OpenPostgres.
func InTx(ctx context.Context, db *Database, tx PostgresTx, work func(tx *JoinedTx) error) (map[string]Appended, error) {
	backend, err := embeddedOf(db)
	if err != nil {
		return nil, err
	}
	e, ok := backend.owner.store.Engine().(*postgres.Engine)
	if !ok {
		return nil, fault.New(fault.InvalidClause, "the store is carried by %s; only one that PostgreSQL carries can be part of its transactions: OpenPostgres opens one",
			backend.owner.store.Engine().Name())
	}
	join, err := e.Join(ctx, tx)
	if err != nil {
		return nil, err
	}
	var appended map[string]Appended
	attempt := func() (err error) {
		appended, err = backend.attemptInTx(ctx, join, work)
		return err
	}
	if join.Fixed() {
		err = attempt()
	} else {
		err = session.Rerun(ctx, attempt)
	}
	return appended, err
}

func embeddedOf(db *Database) (*embeddedDatabase, error) {
	backend, ok := db.Backend().(*embeddedDatabase)
	if !ok {
		return nil, fault.New(fault.InvalidClause, "the store is on the other side of a connection to a node; open it in this process with OpenPostgres")
	}
	return backend, nil
}

// attemptInTx runs work once, and leaves no trace of it in the application's
// transaction when it fails.
func (db *embeddedDatabase) attemptInTx(ctx context.Context, join *postgres.Join, work func(tx *JoinedTx) error) (map[string]Appended, error) {
	if err := join.Begin(ctx); err != nil {
		return nil, err
	}
	appended, err := db.workIn(ctx, join, work)
	if err == nil {
		err = join.Done(ctx)
	}
	if err == nil {
		return appended, nil
	}
	if undone := join.Undo(ctx); undone != nil && errors.Is(err, fault.Conflict) {
		return nil, undone // It cannot be run again in this transaction.
	}
	return nil, err
}

func (db *embeddedDatabase) workIn(ctx context.Context, host store.Host, work func(tx *JoinedTx) error) (map[string]Appended, error) {
	backend := &embeddedTx{db, db.newSession()}
	defer backend.Cancel()
	if err := backend.session.Join(ctx, host); err != nil {
		return nil, err
	}
	if err := work(&JoinedTx{client.NewTx(backend), backend}); err != nil {
		// Work that lost to another may fail of what the other did: it finds its
		// row in the application's table there already.
		if lost := backend.session.Lost(ctx); lost != nil {
			return nil, fault.New(fault.Conflict, "%s: %w", fault.Of(lost).Message, err)
		}
		return nil, err
	}
	return backend.Commit(ctx)
}

// JoinedTx is a transaction of the store inside one of the application's. It
// does what a Tx does, and reads and settles as a consumer. InTx ends it: its
// Commit and Cancel are not for work to call.
type JoinedTx struct {
	*Tx
	backend *embeddedTx
}

// ReadFor reads messages of a topic for a consumer, a reader or a group: at
// most limit of them, 100 when 0. The moved place, or the hand-out, is part of
// the transaction. It does not wait; Await does, before the transaction begins.
func (tx *JoinedTx) ReadFor(ctx context.Context, topic, consumer string, limit int) (Page, error) {
	if limit < 0 || limit > store.MaxReadLimit {
		return Page{}, fault.New(fault.InvalidClause, "a read's limit is 1 to %d, not %d", store.MaxReadLimit, limit)
	}
	return tx.backend.Read(ctx, topic, client.ReadRequest{Consumer: consumer, Limit: limit})
}

// Ack says that messages of a group are done, as Group.Ack does.
func (tx *JoinedTx) Ack(ctx context.Context, topic, group string, messages ...Message) (int, error) {
	return tx.settle(ctx, topic, group, client.Settlement{Verb: client.VerbAck, Messages: messages})
}

// Nack hands messages of a group back, as Group.Nack does.
func (tx *JoinedTx) Nack(ctx context.Context, topic, group string, messages ...Message) (int, error) {
	return tx.settle(ctx, topic, group, client.Settlement{Verb: client.VerbNack, Messages: messages})
}

// NackAfter hands messages of a group back, as Group.NackAfter does.
func (tx *JoinedTx) NackAfter(ctx context.Context, topic, group string, delay time.Duration, messages ...Message) (int, error) {
	return tx.settle(ctx, topic, group, client.Settlement{Verb: client.VerbNack, Delay: &delay, Messages: messages})
}

// Reject gives messages of a group up, as Group.Reject does.
func (tx *JoinedTx) Reject(ctx context.Context, topic, group, reason string, messages ...Message) (int, error) {
	return tx.settle(ctx, topic, group, client.Settlement{Verb: client.VerbReject, Reason: reason, Messages: messages})
}

func (tx *JoinedTx) settle(ctx context.Context, topic, group string, s client.Settlement) (int, error) {
	settlement, err := settlementOf(s)
	if err != nil {
		return 0, err
	}
	return tx.backend.session.Settle(ctx, topic, group, settlement)
}

// Await waits until there is something to read for a consumer of a topic, or
// wait has passed, or ctx ends. It takes nothing: another of the same name may
// read it first. With it a loop over InTx waits outside the application's
// transaction, which would hold up PostgreSQL's vacuum while it waits.
func Await(ctx context.Context, db *Database, topic, consumer string, wait time.Duration) error {
	backend, err := embeddedOf(db)
	if err != nil {
		return err
	}
	return backend.database.Await(ctx, topic, store.ReadOptions{Consumer: consumer, Limit: 1}, wait)
}
