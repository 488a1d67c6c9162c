// Package postgres is the engine for many processes on one PostgreSQL. It
// promises what package engine promises, to every process alike, and knows
// nothing of what the keys and values mean.
//
// To hold while reading it:
//
//   - A commit is one short transaction that holds its space's row of the table
//     spaces (SELECT … FOR UPDATE). That row is never updated while the space
//     lives: what a commit leaves is a row of its own in the table commits, and
//     the newest is found from the end of an index. So a foreign transaction
//     that is held open, whose snapshot keeps dead rows alive, does not make
//     commits slower. For the same reason an entry's primary key ends with the
//     sequence that wrote it: a new version is a new row, the old one is
//     deleted, and there is one live row a key: see statements.go.
//   - Each commit has a mark, a random uuid in its row. Where a connection is
//     lost and the outcome with it, the space's row is taken once more, which
//     waits for the lost transaction's end, and then the mark is there or not:
//     see space.go.
//   - A snapshot is a REPEATABLE READ transaction on a connection of its own,
//     shared by all who asked before it was begun: see snapshot.go.
//   - Nothing is remembered of a server that is gone: connections that fail are
//     dropped, calls are tried again for a while (Options.Patience), and when
//     PostgreSQL is back the engine goes on: see failure.go.
//
// The SQL is portable: no advisory locks, and nothing that CockroachDB or
// YugabyteDB lack; NOTIFY only wakes those who wait a little earlier.
package postgres

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Options are the settings of a store. All but URL have defaults that are
// right for a node.
type Options struct {
	// URL says where PostgreSQL is, as libpq takes it: postgres://user@host/db
	// or key=value pairs, also with several hosts. Connections are made to the
	// host that can be written (target_session_attrs=read-write is the default
	// here), so that a failover is followed.
	URL string

	// Schema is the schema that holds the tables, made if it is not there. The
	// default is "tidemark"; with another one a store lives beside others, or
	// beside an application's own tables, in the same database.
	Schema string

	// MaxConns is how many connections the process opens at most, and one more
	// to listen. The default is 32: three nodes fit PostgreSQL's own default of
	// 100. At least 8.
	MaxConns int

	// Patience is how long a call goes on trying while PostgreSQL cannot be
	// reached or written, before it fails with fault.Unavailable. The default is
	// 15 seconds, in which most failovers are over.
	Patience time.Duration

	// HoldTimeout is how long a commit may keep its space's row without saying
	// anything to PostgreSQL, which then takes it away. The default is 5
	// seconds: a node that is paused holds up the others no longer.
	HoldTimeout time.Duration

	// PollInterval is how often the sequences of spaces are looked at while
	// somebody waits for them. The default is 25 milliseconds: a wake-up across
	// processes stays well below 100, for 40 small queries a second.
	PollInterval time.Duration

	// DisableNotify leaves waking to the polling alone. Set it where the
	// connection that listens would be one too many.
	DisableNotify bool

	// Clock is a clock to follow instead of PostgreSQL's, for tests.
	Clock func() time.Time

	// Logger gets trouble at warn and error, and what is tried again at debug
	// level. The default drops all of it.
	Logger *slog.Logger
}

// The defaults of Options.
const (
	defaultSchema       = "tidemark"
	defaultMaxConns     = 32
	minMaxConns         = 8
	defaultPatience     = 15 * time.Second
	defaultHoldTimeout  = 5 * time.Second
	defaultPollInterval = 25 * time.Millisecond
)

// connsForCommits are kept from snapshots, so that readers who hold on to
// theirs cannot stop the commits.
const connsForCommits = 4

// maxSchemaBytes is what PostgreSQL keeps of a name.
const maxSchemaBytes = 63

func (o Options) withDefaults() (Options, error) {
	if o.Schema == "" {
		o.Schema = defaultSchema
	}
	if len(o.Schema) > maxSchemaBytes {
		return o, fault.New(fault.InvalidClause, "the schema's name has %d bytes; PostgreSQL keeps %d", len(o.Schema), maxSchemaBytes)
	}
	if o.MaxConns <= 0 {
		o.MaxConns = defaultMaxConns
	}
	if o.MaxConns < minMaxConns {
		return o, fault.New(fault.InvalidClause, "%d connections are too few; give at least %d", o.MaxConns, minMaxConns)
	}
	if o.Patience <= 0 {
		o.Patience = defaultPatience
	}
	if o.HoldTimeout <= 0 {
		o.HoldTimeout = defaultHoldTimeout
	}
	if o.PollInterval <= 0 {
		o.PollInterval = defaultPollInterval
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// lockTimeout is how long one wait for a row lasts: less than the patience, so
// that what is answered in the end says what was waited for.
func (o Options) lockTimeout() time.Duration {
	return max(time.Millisecond, min(o.HoldTimeout, o.Patience/2))
}

// Engine is an open store. It is an engine.Engine.
type Engine struct {
	options Options
	log     *slog.Logger
	pool    *pgxpool.Pool
	sql     statements
	clock   clock
	gate    gate
	watcher *watcher

	// closing is closed when Close begins, which ends what is tried again.
	closing chan struct{}
	// background counts the goroutines that hold connections.
	background sync.WaitGroup
	// openStates has a token for each snapshot transaction that is open.
	openStates chan struct{}
	// snapshots counts those that were handed out and not released.
	snapshots atomic.Int64
	// forked is set when PostgreSQL was found to have lost commits.
	forked atomic.Bool

	mu sync.Mutex
	// The following are protected by mu.
	spaces map[engine.SpaceID]*space
	states map[*state]struct{}
}

// Open connects to PostgreSQL and makes or migrates the tables. It fails with
// fault.Unavailable where PostgreSQL cannot be reached within the patience, or
// the tables are of a newer version, which the message names.
func Open(ctx context.Context, options Options) (*Engine, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	config, err := poolConfig(options)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		options:    options,
		log:        options.Logger,
		sql:        newStatements(options.Schema),
		gate:       newGate(),
		closing:    make(chan struct{}),
		openStates: make(chan struct{}, options.MaxConns-connsForCommits),
		spaces:     make(map[engine.SpaceID]*space),
		states:     make(map[*state]struct{}),
	}
	if e.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, unavailable("connect to PostgreSQL", err)
	}
	e.watcher = newWatcher(e, config.ConnConfig)
	if err := e.migrate(ctx); err != nil {
		e.pool.Close()
		return nil, err
	}
	return e, nil
}

// Name is "postgres".
func (e *Engine) Name() string { return "postgres" }

// Shared is true: other processes may use the same tables.
func (e *Engine) Shared() bool { return true }

// maxSpaceID is the largest id that the tables take.
const maxSpaceID engine.SpaceID = math.MaxInt32

// Space opens a space. It does not ask PostgreSQL for it.
func (e *Engine) Space(ctx context.Context, id engine.SpaceID) (engine.Space, error) {
	if !e.gate.enter() {
		return nil, errClosed()
	}
	defer e.gate.leave()
	if err := ctx.Err(); err != nil {
		return nil, cancelled(err)
	}
	return e.openSpace(id)
}

func (e *Engine) openSpace(id engine.SpaceID) (*space, error) {
	if id > maxSpaceID {
		return nil, fault.New(fault.InvalidClause, "space %d: the largest id is %d", id, maxSpaceID)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.spaces[id]
	if s == nil {
		s = newSpace(e, id)
		e.spaces[id] = s
	}
	return s, nil
}

// DropSpace removes all of a space. Its row in the table spaces stays for
// good, and says so.
func (e *Engine) DropSpace(ctx context.Context, id engine.SpaceID) error {
	if !e.gate.enter() {
		return errClosed()
	}
	defer e.gate.leave()
	s, err := e.openSpace(id)
	if err != nil {
		return err
	}
	return s.drop(ctx)
}

// Now reads PostgreSQL's clock, under the rule of engine.Clock. It is not
// before the time of any commit, of whatever process, that PostgreSQL shows.
func (e *Engine) Now(ctx context.Context) (time.Time, error) {
	if !e.gate.enter() {
		return time.Time{}, errClosed()
	}
	defer e.gate.leave()
	var now time.Time
	err := e.persist(ctx, "read the clock", func(ctx context.Context) error {
		var machine time.Time
		var newest *time.Time
		if err := e.queryRow(ctx, e.sql.clock, &machine, &newest); err != nil {
			return err
		}
		now = e.clock.at(e.machineTime(machine), timeOf(newest))
		return nil
	})
	return now, err
}

// machineTime is the time of the clock that is followed.
func (e *Engine) machineTime(server time.Time) time.Time {
	if e.options.Clock != nil {
		return e.options.Clock()
	}
	return server
}

// Close waits for the calls that are running and ends all connections.
func (e *Engine) Close() error {
	if !e.gate.shut() {
		return errClosed()
	}
	close(e.closing)
	e.gate.wait()
	e.watcher.stop()
	e.mu.Lock()
	for _, s := range e.spaces {
		s.wakeAll()
	}
	leaked := make([]*state, 0, len(e.states))
	for st := range e.states {
		leaked = append(leaked, st)
	}
	e.mu.Unlock()
	handedOut := e.snapshots.Load()
	for _, st := range leaked {
		if st.users.Load() > 0 {
			st.end()
		}
	}
	e.background.Wait()
	e.pool.Close()
	if handedOut > 0 {
		return fault.New(fault.Internal, "the store was closed while %d snapshots were not released", handedOut)
	}
	return nil
}

func errClosed() error {
	return fault.New(fault.Unavailable, "the store is closed: %w", engine.ErrClosed)
}

func cancelled(cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "the time for the call has passed: %w", cause)
	}
	return fault.New(fault.Cancelled, "the caller gave up: %w", cause)
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
