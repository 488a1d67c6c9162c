package tidemark

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// Option changes a setting of a store that is opened.
type Option func(*settings)

type settings struct {
	log        *slog.Logger
	clock      func() time.Time
	cacheBytes int64
	schema     string
}

// WithLog sends what an operator must know to a logger. Default:
// slog.Default().
func WithLog(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithClock makes a clock of the caller's the store's, for tests that move the
// time. Default: the machine's.
func WithClock(clock func() time.Time) Option { return func(s *settings) { s.clock = clock } }

// WithCacheBytes sets how much memory holds blocks that were read from the
// disk, on the embedded engine. Default: 64 MiB. More helps only a program that
// reads the same records again and again, and more of them than fit.
func WithCacheBytes(n int64) Option { return func(s *settings) { s.cacheBytes = n } }

// WithSchema sets the schema of OpenPostgres that holds the store's tables, so
// that several stores, or an application's own tables, live in one database.
// Default: tidemark.
func WithSchema(name string) Option { return func(s *settings) { s.schema = name } }

// Store is an open store. It is safe for concurrent use, and must be closed.
// While it is open it does its housekeeping and runs its declared consumers.
type Store struct {
	store     *store.Store
	consumers *ingest.Supervisor
	log       *slog.Logger
}

// Open opens the store in a folder, which is created where it is missing. A
// folder is one process's at a time: fault.Unavailable names the one that has
// it.
func Open(dir string, options ...Option) (*Store, error) {
	s := newSettings(options)
	e, err := pebble.Open(dir, s.engineOptions())
	if err != nil {
		return nil, err
	}
	return open(e, s)
}

// OpenMemory opens a store that is empty and ends with the process, for tests
// and scripts.
func OpenMemory(options ...Option) (*Store, error) {
	s := newSettings(options)
	e, err := pebble.OpenMemory(s.engineOptions())
	if err != nil {
		return nil, err
	}
	return open(e, s)
}

// OpenPostgres opens the store that a PostgreSQL carries, in a schema of its
// own. Any number of processes open it at once and see one store: each other's
// commits, definitions and declared consumers. Its tables are made on first
// use. url is as libpq takes it, also with several hosts; a failover between
// them is followed.
func OpenPostgres(ctx context.Context, url string, options ...Option) (*Store, error) {
	s := newSettings(options)
	e, err := postgres.Open(ctx, postgres.Options{URL: url, Schema: s.schema, Clock: s.clock, Logger: s.log})
	if err != nil {
		return nil, err
	}
	return open(e, s)
}

func newSettings(options []Option) settings {
	s := settings{log: slog.Default()}
	for _, option := range options {
		option(&s)
	}
	return s
}

func (s settings) engineOptions() pebble.Options {
	return pebble.Options{Clock: s.clock, Logger: s.log, CacheBytes: s.cacheBytes}
}

func open(e engine.Engine, s settings) (*Store, error) {
	ctx := context.Background()
	opened, err := store.Open(ctx, e, store.Options{Log: s.log})
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	return &Store{store: opened, consumers: ingest.Start(opened, ingest.Options{Log: s.log}), log: s.log}, nil
}

// Close lets the declared consumers finish the batches that they hold, commits
// what waits, ends what waits for messages, and closes the store.
func (s *Store) Close() error {
	s.consumers.Stop()
	return s.store.Close()
}

// Database opens a database of a namespace; both are created where they are
// missing.
func (s *Store) Database(ctx context.Context, namespace, name string) (*Database, error) {
	if err := s.store.DefineNamespace(ctx, namespace, true); err != nil {
		return nil, err
	}
	if err := s.store.DefineDatabase(ctx, namespace, name, true); err != nil {
		return nil, err
	}
	database, err := s.store.Database(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &Database{owner: s, database: database}, nil
}

// newSession starts a session in a database.
func (s *Store) newSession(database *store.Database) *session.Session {
	return session.New(s.store, session.Options{Database: database, Running: s.consumers})
}
