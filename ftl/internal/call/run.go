package call

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
)

// The bounds of running a verb again whose transaction lost to another.
const (
	maxRuns     = 10
	firstPause  = time.Millisecond
	longestRest = 100 * time.Millisecond
)

// Panic is the error of a verb that panicked.
type Panic struct {
	// Value is what it panicked with.
	Value any
	// Stack is where.
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Settle adds to a call's transaction what commits together with its effect. What
// it appends carries the headers of the call's events.
type Settle[Result any] func(ctx context.Context, tx *client.Tx, result Result) error

// Run runs a verb as the call c. A transaction that the verb began is committed
// when the verb returns nil, with what settle adds to it, and settled says that
// it was; otherwise the transaction is cancelled. A verb whose transaction lost
// to another is run again, a few times. A panic is returned as a *Panic.
func Run[Result any](ctx context.Context, c *Call, verb func(ctx context.Context) (Result, error), settle Settle[Result]) (result Result, settled bool, err error) {
	pause := firstPause
	for run := 1; ; run++ {
		result, settled, err = runOnce(ctx, c, verb, settle)
		if !errors.Is(err, fault.Conflict) || !c.transaction.isWanted() || run == maxRuns {
			return result, settled, err
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return result, false, err
		}
		pause = min(2*pause, longestRest)
	}
}

func runOnce[Result any](ctx context.Context, c *Call, verb func(ctx context.Context) (Result, error), settle Settle[Result]) (result Result, settled bool, err error) {
	c.transaction = &transaction{database: c.Surroundings.Database()}
	defer c.transaction.end()
	if result, err = guarded(With(ctx, c), verb); err != nil {
		return result, false, err
	}
	tx, err := c.transaction.finish()
	if tx == nil || err != nil {
		return result, false, err
	}
	if settle != nil {
		if err := settle(client.WithHeaders(ctx, c.Headers(ctx)), tx, result); err != nil {
			return result, false, err
		}
	}
	_, err = tx.Commit(ctx)
	return result, settle != nil && err == nil, err
}

func guarded[Result any](ctx context.Context, verb func(ctx context.Context) (Result, error)) (result Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Panic{Value: p, Stack: debug.Stack()}
		}
	}()
	return verb(ctx)
}

// transaction is the transaction of a call and of the calls that it makes.
type transaction struct {
	database *client.Database

	mu sync.Mutex
	// The following are protected by mu. wanted says that the verb asked for a
	// transaction, tx is the one that began, nil before the first use.
	wanted, ended bool
	tx            *client.Tx
	// failed is the first statement's error, which a commit would only hide.
	failed error
}

// WantTransaction makes everything that the call does from now on part of a
// transaction.
func (c *Call) WantTransaction() {
	if t := c.transaction; t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.wanted = true
	}
}

// Transact does something in the call's transaction. What is appended under the
// context that work is given carries the headers of the call's events.
func (c *Call) Transact(ctx context.Context, work func(ctx context.Context, tx *client.Tx) error) error {
	t := c.transaction
	if t == nil {
		return fault.New(fault.NotAllowed, "the test calls a verb that uses ftl.Tx as a function: call it with ftl.Call, which commits when it returns")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return fault.New(fault.NoTransaction, "%s has returned, and its transaction has ended; wait in the verb for what uses it", c.Name())
	}
	if t.failed != nil {
		return fault.New(fault.TransactionFailed, "a statement of %s's transaction failed, so nothing of it commits: %w", c.Name(), t.failed)
	}
	if t.tx == nil {
		tx, err := t.database.Begin(ctx)
		if err != nil {
			return err
		}
		t.tx = tx
	}
	err := work(client.WithHeaders(ctx, c.Headers(ctx)), t.tx)
	t.failed = err
	return err
}

func (t *transaction) isWanted() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wanted
}

// finish returns the transaction to commit, nil where none began. One of which a
// statement failed has its error: a verb that returned nil all the same would
// lose what it wrote and not know.
func (t *transaction) finish() (*client.Tx, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return t.tx, t.failed
}

// end cancels what was not committed.
func (t *transaction) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.tx != nil {
		t.tx.Cancel()
	}
}
