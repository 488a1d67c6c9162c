package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// Params are the values of a statement's parameters, by name without the $.
// They may be any Go values that value.Of takes.
type Params map[string]any

func (p Params) values() (map[string]value.Value, error) {
	values := make(map[string]value.Value, len(p))
	for name, param := range p {
		v, err := value.Of(param)
		if err != nil {
			return nil, fmt.Errorf("parameter $%s: %w", name, err)
		}
		values[name] = v
	}
	return values, nil
}

// Database is one database of a store. It is safe for concurrent use.
type Database struct {
	backend BackendDatabase
	log     *slog.Logger
}

// Backend is what carries the database.
func (db *Database) Backend() BackendDatabase { return db.backend }

// Exec runs a script and returns one answer a statement. A failed statement
// does not stop those after it; the returned error is that of the first one
// that failed, or fault.Syntax where nothing ran.
//
// A transaction that a script leaves open is cancelled.
func (db *Database) Exec(ctx context.Context, script string, params Params) ([]Answer, error) {
	return runWith(params, func(values map[string]value.Value) ([]Answer, error) {
		return db.backend.Run(ctx, script, values)
	})
}

func runWith(params Params, run func(map[string]value.Value) ([]Answer, error)) ([]Answer, error) {
	values, err := params.values()
	if err != nil {
		return nil, err
	}
	answers, err := run(values)
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		if answer.Err != nil {
			return answers, answer.Err
		}
	}
	return answers, nil
}

// Query runs a script of one statement and returns the rows it answers.
func (db *Database) Query(ctx context.Context, statement string, params Params) (Rows, error) {
	return rowsOf(db.Exec(ctx, statement, params))
}

// Begin starts a transaction, which must be ended by Commit or Cancel. Prefer
// Transact, which runs a transaction again that lost to another.
func (db *Database) Begin(ctx context.Context) (*Tx, error) {
	backend, err := db.backend.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return NewTx(backend), nil
}

// Transact runs work in a transaction and commits it. When another transaction
// committed first what this one wrote or read as a consumer, work runs again,
// on the newest state, for up to ten seconds; so it does when the node was lost
// before the COMMIT was sent. When work returns an error the transaction is
// cancelled and Transact returns that error.
//
// fault.Unavailable of a node that was lost in the COMMIT says that its outcome
// is unknown: everything of the transaction is committed, or nothing.
func (db *Database) Transact(ctx context.Context, work func(tx *Tx) error) error {
	return rerun(ctx, func() error {
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Cancel()
		if err := work(tx); err != nil {
			return err
		}
		_, err = tx.Commit(ctx)
		return err
	})
}

// The bounds of running a transaction again.
const (
	// rerunFor is how long a lost transaction is run again before its caller
	// is told. Each run starts from the newest state, so only a flood of other
	// commits to the same rows lasts that long.
	rerunFor = 10 * time.Second
	// maxRerunPause bounds the random pause between two runs.
	maxRerunPause = 20 * time.Millisecond
)

// rerun runs a transaction again while it loses to others, or its node is lost
// before it could commit.
func rerun(ctx context.Context, transaction func() error) error {
	started := time.Now()
	pause := 100 * time.Microsecond
	for {
		err := transaction()
		again := errors.Is(err, fault.Conflict) || neverRan(err)
		if !again || ctx.Err() != nil || time.Since(started) > rerunFor {
			return err
		}
		time.Sleep(rand.N(pause))
		pause = min(2*pause, maxRerunPause)
	}
}

// IsConflict reports whether an error is that of a transaction that lost to
// another and can be run again.
func IsConflict(err error) bool { return errors.Is(err, fault.Conflict) }
