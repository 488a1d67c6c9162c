package client

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Options are the settings of a connection. The zero value is a good default.
type Options struct {
	// Namespace and Database are in use from the start of a session that Dial
	// opens. Both may be left out, or Database alone. Connect passes over them:
	// there Store.Database names them.
	Namespace, Database string
	// User and Password sign in. A user in the URL, ws://user:password@host,
	// does the same; these go before it.
	User, Password string
	// Token signs in instead of a password.
	Token string
	// HTTPClient connects. Default: http.DefaultClient; set it for a TLS
	// configuration of your own.
	HTTPClient *http.Client

	// The following are of Connect alone.

	// Patience is how long a request goes on looking for a node that answers
	// before it fails, 30 seconds when 0. Consumers, workers and followers look
	// for as long as their context lasts.
	Patience time.Duration
	// Sessions bounds how many sessions a database works on at once, 64 when 0:
	// a statement, a transaction, a wait and a FOLLOW hold one each while they
	// last. All appends share one more.
	Sessions int
	// Log is told of nodes that are lost and found, and of what workers hand
	// back. Default: slog.Default().
	Log *slog.Logger

	pings pings // of tests
}

// Store is a store to work with, wherever it is: on the nodes that Connect was
// told of, or in this process, where package tidemark opened it. It is safe for
// concurrent use, and must be closed.
type Store struct {
	backend Backend
	log     *slog.Logger
}

// Over is a store over a backend. Programs use Connect, or package tidemark. A
// nil log is slog.Default().
func Over(backend Backend, log *slog.Logger) *Store {
	if log == nil {
		log = slog.Default()
	}
	return &Store{backend: backend, log: log}
}

// Connect connects to the node at a URL, ws://host:port or wss://host:port, or
// to the first that answers of several nodes of one store, separated by commas:
//
//	ws://db-1:7420,db-2:7420,db-3:7420
//
// When a node dies, or a connection to it, the store goes on with the next. What
// is safe to send again is: what was never sent, reads, settlements, appends
// that name their identity, and whole transactions of Database.Transact that
// did not come to their COMMIT. Of everything else that was on its way, the
// error fault.Unavailable says that its outcome is unknown.
//
// Connect itself returns once a node has answered.
func Connect(ctx context.Context, url string, options Options) (*Store, error) {
	w, err := connect(ctx, url, options)
	if err != nil {
		return nil, err
	}
	return Over(w, options.Log), nil
}

// Database opens a database of a namespace; both are created where they are
// missing.
func (s *Store) Database(ctx context.Context, namespace, name string) (*Database, error) {
	backend, err := s.backend.Database(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &Database{backend: backend, log: s.log.With("namespace", namespace, "database", name)}, nil
}

// Close lets go of the store. On nodes, what is not answered fails, and open
// transactions are rolled back. A store of this process lets its declared
// consumers finish the batches that they hold, commits what waits, and closes.
func (s *Store) Close() error { return s.backend.Close() }

// Backend is what carries the store.
func (s *Store) Backend() Backend { return s.backend }
