package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// The SQLSTATEs that are told apart (PostgreSQL's documentation, appendix A),
// and the classes, which are a state's first characters.
const (
	stateStatementUnknown    = "40003" // statement_completion_unknown
	stateReadOnly            = "25006" // read_only_sql_transaction
	stateNoTransaction       = "25P01" // no_active_sql_transaction
	stateFailedTransaction   = "25P02" // in_failed_sql_transaction
	stateIdleInTransaction   = "25P03" // idle_in_transaction_session_timeout
	stateLockNotAvailable    = "55P03"
	stateQueryCancelled      = "57014"
	stateNoPrivilege         = "42501" // insufficient_privilege
	stateUndefinedColumn     = "42703"
	stateTooManyConnections  = "53300"
	stateUniqueViolation     = "23505"
	stateInvalidSchema       = "3F000"
	stateDuplicateSchema     = "42P06"
	stateDuplicateTable      = "42P07"
	stateDuplicateObject     = "42710"
	stateUndefinedTable      = "42P01"
	stateUndefinedFunction   = "42883"
	stateUndefinedParameter  = "42704" // undefined_object
	stateFeatureNotSupported = "0A000"
	stateSyntax              = "42601"
	stateProgramLimit        = "54000" // program_limit_exceeded
	stateInternal            = "XX000"

	classConnection = "08"
	classRollback   = "40" // serialization failures, deadlocks
	classShutdown   = "57P"

	// severityError is of an error that undoes a transaction and no more.
	severityError = "ERROR"
)

// What is tried again waits for retryDelay first, and twice as long each time
// up to maxRetryDelay, which is short beside the time a failover takes.
const (
	retryDelay    = 5 * time.Millisecond
	maxRetryDelay = 250 * time.Millisecond
)

// roundTripTimeout is after how long without an answer a connection is taken
// for lost. Large commits and removals of ranges are one statement.
const roundTripTimeout = time.Minute

var (
	// errStale is what a server is told off for that shows an older state than
	// this process has seen: a standby that was a primary.
	errStale = errors.New("the server is a standby, or behind what was seen of it")

	// errNotWritable is of a server that takes no writes, asked when it was
	// connected to.
	errNotWritable = errors.New("the server takes no writes")

	// errNoRow is of a space that has no row to lock yet.
	errNoRow = errors.New("the space has no row yet")

	// errPoolWait is of a call that waited for a connection of the pool.
	errPoolWait = errors.New("all connections are in use")
)

// sqlState is the SQLSTATE of an error that the server answered, "" otherwise.
func sqlState(err error) string {
	var answered interface{ SQLState() string } // Of pgx, and of other drivers.
	if errors.As(err, &answered) {
		return answered.SQLState()
	}
	return ""
}

// transient reports whether what failed may succeed when it is tried again
// soon, on another connection: a server that is gone, is about to go, or lost
// its office; a transaction that had to give way.
func transient(err error) bool {
	var known *fault.Error
	if errors.As(err, &known) {
		return false
	}
	state := sqlState(err)
	switch state {
	case "": // The connection says so, not the server.
		return true
	case stateReadOnly, stateIdleInTransaction, stateTooManyConnections, stateLockNotAvailable:
		return true
	}
	return strings.HasPrefix(state, classConnection) || strings.HasPrefix(state, classRollback) ||
		strings.HasPrefix(state, classShutdown)
}

// undecided reports whether a transaction whose COMMIT failed so may have been
// committed all the same. An error that the server answered as such has rolled
// it back; one that ends the session may come after the commit.
func undecided(err error) bool {
	if pgconn.SafeToRetry(err) {
		return false // Nothing was sent.
	}
	var answered *pgconn.PgError
	if !errors.As(err, &answered) {
		return true
	}
	severity := answered.SeverityUnlocalized
	if severity == "" {
		severity = answered.Severity
	}
	return severity != severityError || answered.Code == stateStatementUnknown ||
		strings.HasPrefix(answered.Code, classConnection)
}

// unavailable gives an error of PostgreSQL's the kind that callers know.
func unavailable(doing string, err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}
	if sqlState(err) == stateProgramLimit {
		return fault.New(fault.TooLarge, "cannot %s: %w", doing, err)
	}
	if sqlState(err) == stateLockNotAvailable {
		return fault.New(fault.Unavailable, "cannot %s: another transaction holds the database's row, without which nothing commits; "+
			"one of an application that joined the database (InTx) must commit soon after: %w", doing, err)
	}
	if sqlState(err) == stateReadOnly || errors.Is(err, errStale) || errors.Is(err, errNotWritable) {
		err = fmt.Errorf("%w: %w", engine.ErrNotWriter, err)
	}
	return fault.New(fault.Unavailable, "PostgreSQL cannot be used now: cannot %s: %w", doing, err)
}

// persist tries something until it succeeds, fails for good, or has failed for
// as long as the patience lasts.
func (e *Engine) persist(ctx context.Context, doing string, attempt func(context.Context) error) error {
	trying, cancel := context.WithTimeout(ctx, e.options.Patience)
	defer cancel()
	var failed error
	for delay := retryDelay; ; delay = min(2*delay, maxRetryDelay) {
		err := attempt(trying)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return cancelled(ctx.Err())
		case failed == nil || trying.Err() == nil:
			failed = err // What a timeout interrupted says less than what was before it.
		}
		if !transient(err) || trying.Err() != nil || e.isClosing() {
			return unavailable(doing, failed)
		}
		e.log.Debug("trying again", "what", doing, "error", err)
		e.pause(trying, delay)
	}
}

// pause waits about as long as said, or until the context or the engine ends.
func (e *Engine) pause(ctx context.Context, delay time.Duration) {
	timer := time.NewTimer(delay/2 + rand.N(delay))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-e.closing:
	}
}

func (e *Engine) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

// errForked is what everything is answered once PostgreSQL was found to have
// lost commits, as after a failover without synchronous replication: what this
// process remembers of the store is of a history that no longer is.
func errForked() error {
	return fault.New(fault.Unavailable,
		"PostgreSQL lost commits that it had acknowledged, as a failover with asynchronous replication does; open the store again")
}
