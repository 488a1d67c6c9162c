package client

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// remoteTx is a transaction on a node: a session is its own until it ends.
type remoteTx struct {
	db      *remoteDatabase
	session *Session
	// failure is why the transaction cannot commit any more, nil while it can.
	failure error
	// spent says that the session may be in another database since.
	spent bool
	ended bool
}

// Begin starts a transaction.
func (db *remoteDatabase) Begin(ctx context.Context) (BackendTx, error) {
	began, pause := time.Now(), pauses{}
	for {
		s, err := db.pool.take(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = s.one(ctx, "BEGIN", nil); err == nil {
			return &remoteTx{db: db, session: s}, nil
		}
		db.finish(s, err)
		if !nodeWasLost(err) || time.Since(began) > db.pool.nodes.patience {
			return nil, err
		}
		if err := pause.take(ctx, db.pool.nodes.closed); err != nil {
			return nil, err
		}
	}
}

// Run runs statements in the transaction.
func (tx *remoteTx) Run(ctx context.Context, script string, params map[string]value.Value) ([]Answer, error) {
	return tx.run(ctx, request{sql: script, params: params})
}

func (tx *remoteTx) run(ctx context.Context, r request) ([]Answer, error) {
	if tx.ended {
		return nil, fault.New(fault.NoTransaction, "the transaction has ended")
	}
	answers, err := tx.session.runRequest(ctx, r)
	tx.spent = tx.spent || changesSession.MatchString(r.sql)
	return answers, tx.note(err)
}

// note keeps that the session is lost. With it the transaction is: nothing of it
// has run, as far as anybody sees.
func (tx *remoteTx) note(err error) error {
	if nodeWasLost(err) {
		err = neverSent(err)
	}
	if nodeWasLost(err) || errors.Is(err, fault.Cancelled) {
		tx.failure = err
	}
	return err
}

func (tx *remoteTx) one(ctx context.Context, statement string, params map[string]value.Value) (Answer, error) {
	answers, err := tx.Run(ctx, statement, params)
	if err := firstFailure(answers, err); err != nil {
		return Answer{}, err
	}
	return answers[0], nil
}

// Append appends in the transaction.
func (tx *remoteTx) Append(ctx context.Context, topic string, message NewMessage) error {
	params := map[string]value.Value{"value": message.Value, "key": message.Key}
	_, err := tx.one(ctx, createStatement(topic, !message.Key.IsNone()), params)
	return err
}

// Put writes a record.
func (tx *remoteTx) Put(ctx context.Context, table string, key, record value.Value) error {
	_, err := tx.one(ctx, "UPSERT "+value.QuoteIdentifier(table)+":$key = $record", map[string]value.Value{"key": key, "record": record})
	return err
}

// Read reads for a consumer. It may end before there is anything, and before
// the wait is over: a transaction waits once.
func (tx *remoteTx) Read(ctx context.Context, topic string, asked ReadRequest) (Page, error) {
	asked.Wait = min(asked.Wait, maxWait)
	statement, params := readStatement(topic, asked)
	answers, err := tx.run(ctx, request{sql: statement, params: params, page: true})
	answer, err := onlyAnswer(answers, err)
	return answer.page(), err
}

// Settle settles in the transaction.
func (tx *remoteTx) Settle(ctx context.Context, topic, group string, settlement Settlement) (int, error) {
	statement, params := settleStatement(topic, group, settlement)
	answer, err := tx.one(ctx, statement, params)
	count, _ := answer.Value.AsInt()
	return int(count), err
}

// Commit commits.
func (tx *remoteTx) Commit(ctx context.Context) (map[string]Appended, error) {
	if tx.ended {
		return nil, fault.New(fault.NoTransaction, "the transaction has ended")
	}
	if tx.failure != nil {
		tx.end(tx.failure)
		return nil, tx.failure
	}
	answer, err := tx.session.one(ctx, "COMMIT", nil)
	tx.end(err)
	if err != nil {
		return nil, err
	}
	return appendedOf(answer.Value), nil
}

func appendedOf(v value.Value) map[string]Appended {
	answer, _ := v.AsObject()
	topics, _ := answer["appended"].AsObject()
	appended := make(map[string]Appended, len(topics))
	for topic, positions := range topics {
		if span, _ := positions.AsArray(); len(span) == 2 {
			first, _ := span[0].AsInt()
			last, _ := span[1].AsInt()
			appended[topic] = Appended{First: uint64(first), Last: uint64(last)}
		}
	}
	return appended
}

// Cancel rolls back.
func (tx *remoteTx) Cancel() {
	if tx.ended {
		return
	}
	if tx.failure == nil {
		// Nobody waits for it: what the session is asked next comes after it.
		tx.session.Start("CANCEL", nil)
	}
	tx.end(tx.failure)
}

// end lets go of the session.
func (tx *remoteTx) end(err error) {
	tx.ended = true
	if tx.spent {
		tx.session.end(errSpent)
	}
	tx.db.finish(tx.session, err)
}
