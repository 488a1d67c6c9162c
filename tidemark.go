package tidemark

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// Option changes a setting of a store that is opened.
type Option func(*settings)

type settings struct {
	log        *slog.Logger
	clock      func() time.Time
	cacheBytes int64
	schema     string
	// nodes are the settings of a connection to nodes.
	nodes client.Options
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

// WithUser signs in on the nodes of Connect.
func WithUser(name, password string) Option {
	return func(s *settings) { s.nodes.User, s.nodes.Password = name, password }
}

// WithToken signs in on the nodes of Connect with a token instead of a password.
func WithToken(token string) Option { return func(s *settings) { s.nodes.Token = token } }

// WithHTTPClient connects to the nodes of Connect by a client of the caller's,
// such as one with a TLS configuration. Default: http.DefaultClient.
func WithHTTPClient(c *http.Client) Option { return func(s *settings) { s.nodes.HTTPClient = c } }

// WithPatience sets how long a request goes on looking for one of the nodes of
// Connect that answers, before it fails. Default: 30 seconds.
func WithPatience(d time.Duration) Option { return func(s *settings) { s.nodes.Patience = d } }

// Connect opens the store that a URL names, so that a program moves by changing
// it:
//
//	memory:                           in memory, for tests
//	file:./data                       in a folder of this process (Open)
//	postgres://user@host/database     on a PostgreSQL that many processes share (OpenPostgres)
//	ws://host:7420                    on a node, or wss:
//	ws://db-1:7420,db-2:7420          on the first that answers of several nodes of one store
//
// See client.Connect for what happens when a node dies.
func Connect(ctx context.Context, url string, options ...Option) (*Store, error) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok {
		return nil, errScheme
	}
	switch scheme {
	case "memory":
		return OpenMemory(options...)
	case "file":
		// file:///var/lib/tidemark names the folder as file:/var/lib/tidemark does.
		return Open(strings.TrimPrefix(rest, "//"), options...)
	case "postgres", "postgresql":
		return OpenPostgres(ctx, url, options...)
	case "ws", "wss", "http", "https":
		s := newSettings(options)
		s.nodes.Log = s.log
		return client.Connect(ctx, url, s.nodes)
	}
	return nil, errScheme
}

var errScheme = fault.New(fault.InvalidClause, "the URL of a store begins with memory:, file:, postgres:, ws: or wss:")

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
	consumers := ingest.Start(opened, ingest.Options{Log: s.log})
	return client.Over(&embedded{opened, consumers}, s.log), nil
}
