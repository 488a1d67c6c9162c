package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemarkdb/tidemark/fault"
)

const (
	// connectTimeout is for one host, unless the URL has a connect_timeout; a
	// host that is gone must leave time to try the next.
	connectTimeout = 5 * time.Second

	// pingTimeout is for a connection that was idle.
	pingTimeout = 5 * time.Second

	// snapshotTimeout is how long a snapshot may be held without being read:
	// what it could see is kept on the disk, and by a process that is paused or
	// gone for good it would be kept for ever.
	snapshotTimeout = 10 * time.Minute
)

func poolConfig(o Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fault.New(fault.InvalidClause, "the URL of PostgreSQL: %w", err)
	}
	config.MaxConns = int32(o.MaxConns)
	config.PingTimeout = pingTimeout
	connection := config.ConnConfig
	if connection.ConnectTimeout == 0 {
		connection.ConnectTimeout = connectTimeout
	}
	if connection.ValidateConnect == nil {
		connection.ValidateConnect = requireWritable
	}
	if connection.RuntimeParams["application_name"] == "" {
		connection.RuntimeParams["application_name"] = "tidemark"
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return prepareSession(ctx, conn, o) }
	return config, nil
}

// requireWritable refuses a server that cannot be written, so that the next
// host of the URL is tried.
func requireWritable(ctx context.Context, conn *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn); err != nil {
		return fmt.Errorf("%w: %w", errNotWritable, err)
	}
	return nil
}

// prepareSession sets what the engine relies on. A server that does not know a
// setting does without: none is needed to be correct, but that of
// synchronous_commit, which only PostgreSQL and its kin have.
func prepareSession(ctx context.Context, conn *pgx.Conn, o Options) error {
	settings := []string{
		// Nobody may see what a crash could take back. Weaker forms of waiting
		// for standbys than "on" are the operator's to choose.
		`SELECT set_config('synchronous_commit', 'local', false) WHERE current_setting('synchronous_commit', true) = 'off'`,
		fmt.Sprintf(`SET idle_in_transaction_session_timeout = %d`, o.HoldTimeout.Milliseconds()),
		// Whoever waits for a row this long is told what for, and waits again
		// while its patience lasts.
		fmt.Sprintf(`SET lock_timeout = %d`, o.lockTimeout().Milliseconds()),
		// Every statement finds its rows through a primary key, with an index
		// scan inside nested loops. Where statistics are missing or of a time
		// when the tables were empty, the planner would read all of them.
		`SET enable_seqscan = off`,
		`SET enable_bitmapscan = off`,
		`SET enable_hashjoin = off`,
		`SET enable_mergejoin = off`,
	}
	together := &pgx.Batch{}
	for _, setting := range settings {
		together.Queue(setting)
	}
	err := conn.SendBatch(ctx, together).Close()
	if err == nil {
		return nil
	}
	for _, setting := range settings {
		_, err := conn.Exec(ctx, setting)
		switch sqlState(err) {
		case stateUndefinedParameter, stateUndefinedFunction, stateFeatureNotSupported, stateSyntax:
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// acquire takes a connection from the pool.
func (e *Engine) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := e.pool.Acquire(ctx)
	if err != nil && ctx.Err() != nil && e.pool.Stat().AcquiredConns() >= e.pool.Config().MaxConns {
		return nil, fmt.Errorf("%w (%d)", errPoolWait, e.pool.Config().MaxConns)
	}
	return conn, err
}

// giveBack returns a connection to the pool, unless what failed on it says
// that its server is not the one to ask.
func (e *Engine) giveBack(conn *pgxpool.Conn, failed error) {
	if sqlState(failed) == stateReadOnly || errors.Is(failed, errStale) {
		e.log.Warn("a server is not the primary any more", "host", conn.Conn().Config().Host, "error", failed)
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = conn.Conn().Close(closing) // It is of no use either way.
		cancel()
		conn.Release()
		e.pool.Reset() // The others are connected to the same server.
		return
	}
	conn.Release()
}

// onConnection runs something on a connection outside a transaction.
func (e *Engine) onConnection(ctx context.Context, use func(*pgxpool.Conn) error) error {
	conn, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	err = use(conn)
	e.giveBack(conn, err)
	return err
}

func (e *Engine) queryRow(ctx context.Context, sql string, into ...any) error {
	return e.onConnection(ctx, func(conn *pgxpool.Conn) error { return conn.QueryRow(ctx, sql).Scan(into...) })
}

// session is a transaction on a connection of the pool.
type session struct {
	engine *Engine

	mu sync.Mutex
	// The following are protected by mu.
	conn *pgxpool.Conn // nil once it ended
	// failed is the first error; after it the transaction is no more.
	failed error
}

// The ways in which sessions begin.
const (
	beginCommit   = `BEGIN ISOLATION LEVEL READ COMMITTED`
	beginSnapshot = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
)

// begin opens a transaction with its first statements, in one round trip.
func (e *Engine) begin(ctx context.Context, with string, first *pgx.Batch) (*session, error) {
	conn, err := e.acquire(ctx)
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	batch.Queue(with)
	batch.QueuedQueries = append(batch.QueuedQueries, first.QueuedQueries...)
	s := &session{engine: e, conn: conn}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		s.failed = err
		s.end()
		return nil, err
	}
	return s, nil
}

// run uses the connection, for one caller at a time. A context that ends is
// noticed before, and not meanwhile: the transaction may be of others too.
func (s *session) run(ctx context.Context, use func(context.Context, *pgxpool.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	if s.conn == nil {
		return errClosed()
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), roundTripTimeout)
	defer cancel()
	s.failed = use(bounded, s.conn)
	return s.failed
}

// query makes the session a source of reads.
func (s *session) query(ctx context.Context, sql string, arguments []any, row func(scan scanner) error) error {
	return s.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return eachRow(ctx, conn, sql, arguments, row)
	})
}

func (s *session) explain(doing string, err error) error { return unavailable(doing, err) }

func (s *session) statements() *statements { return &s.engine.sql }

// querier is a connection, or a transaction on one.
type querier interface {
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
}

// eachRow runs a statement as source.query says.
func eachRow(ctx context.Context, conn querier, sql string, arguments []any, row func(scan scanner) error) error {
	rows, err := conn.Query(ctx, sql, arguments...)
	if err != nil {
		return err
	}
	return visit(rows, row)
}

// visit calls row with each row, and closes them.
func visit(rows pgx.Rows, row func(scan scanner) error) error {
	defer rows.Close() // It reads the rest from the connection, and drops it.
	for rows.Next() {
		if row == nil {
			continue
		}
		switch err := row(rows.Scan); {
		case errors.Is(err, errEnough):
			rows.Close()
			return rows.Err()
		case err != nil:
			return err
		}
	}
	return rows.Err()
}

// failure is what ended the transaction, nil while it goes on.
func (s *session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// fail ends the transaction for a reason of the engine's.
func (s *session) fail(reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = reason
	return reason
}

// end rolls back what was not committed and gives the connection back. A
// second call does nothing.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return
	}
	if connection := s.conn.Conn(); !connection.IsClosed() && connection.PgConn().TxStatus() != 'I' {
		bounded, cancel := context.WithTimeout(context.Background(), pingTimeout)
		_, _ = s.conn.Exec(bounded, `ROLLBACK`) // If it fails, the connection is dropped.
		cancel()
	}
	s.engine.giveBack(s.conn, s.failed)
	s.conn = nil
}
