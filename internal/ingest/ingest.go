// Package ingest runs the declared consumers: topics of the store and topics of
// Kafka that are read into tables, because a statement says so and for as long
// as it does.
//
// Three ideas:
//
//   - A declaration is a row of the catalog. The Supervisor looks at the
//     catalogs and makes what runs here equal to what is declared, whenever a
//     definition changes and every half second. What runs is in memory only,
//     so that nothing can claim to run after the process that ran it.
//   - A consumer runs members, and each member does one thing over and over: in
//     one transaction it takes a batch from its source, writes the records at
//     their identities, settles the batch, and commits. Both sources run on
//     this one loop; what differs is the interface source.
//   - What cannot be applied is told apart by whose fault it is. A message that
//     the mapping or the table refuses is decided by ON FAILURE. Everything
//     else (a full disk, a lost engine, a dropped table) is nobody's message:
//     it moves nothing, is told in the report, and is tried again.
//
// The topic source settles in the transaction that writes the records, so each
// message is applied exactly once. Kafka's offset is committed after it, so a
// message may come again, and lands on the same record.
package ingest

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// lookEvery is how often the catalogs are looked at when nothing woke the
// supervisor: what another process declares is found this way, within the
// second that is promised.
const lookEvery = 500 * time.Millisecond

// Options are a supervisor's settings. The zero value is a good default.
type Options struct {
	// Log receives a line for every start, stop, halt and quarantine. Default:
	// slog.Default().
	Log *slog.Logger
}

// Supervisor runs the declared consumers of a store. It is safe for concurrent
// use.
type Supervisor struct {
	store *store.Store
	log   *slog.Logger

	stop context.CancelFunc
	done sync.WaitGroup
	// wake holds a token when a catalog may have changed.
	wake chan struct{}
	// watched are the databases whose catalogs are watched; only the
	// supervisor's own goroutine uses it.
	watched map[*store.Database]context.CancelFunc

	mu sync.Mutex
	// The following are protected by mu.
	consumers map[consumerKey]*consumer
}

// consumerKey names a declaration.
type consumerKey struct {
	database *store.Database
	kind     store.ConsumerKind
	name     string
}

var _ session.Running = (*Supervisor)(nil)

// Start runs the declared consumers of a store until Stop.
func Start(s *store.Store, options Options) *Supervisor {
	sv := &Supervisor{
		store: s, log: options.Log,
		wake:      make(chan struct{}, 1),
		watched:   map[*store.Database]context.CancelFunc{},
		consumers: map[consumerKey]*consumer{},
	}
	if sv.log == nil {
		sv.log = slog.Default()
	}
	ctx, stop := context.WithCancel(context.Background())
	sv.stop = stop
	sv.done.Go(func() { sv.run(ctx) })
	return sv
}

// Stop lets every member finish the batch that it holds, and returns when all
// have. The store is closed after it. Stopping twice does nothing.
func (sv *Supervisor) Stop() {
	sv.stop()
	sv.done.Wait()
}

// Report is what INFO tells under running of a consumer; it is empty where this
// node does not run it.
func (sv *Supervisor) Report(database *store.Database, declared *store.Consumer) value.Object {
	sv.mu.Lock()
	c := sv.consumers[consumerKey{database, declared.Kind, declared.Name}]
	sv.mu.Unlock()
	if c == nil || c.declared.ID != declared.ID {
		return value.Object{}
	}
	return c.report()
}

func (sv *Supervisor) run(ctx context.Context) {
	defer sv.stopAll()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		changed, err := sv.store.Changed(ctx)
		if err == nil {
			err = sv.reconcile(ctx)
		}
		if err != nil && ctx.Err() == nil {
			sv.log.Warn("the declared consumers cannot be looked up and will be looked up again", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-sv.wake:
		case <-ticker.C:
		}
		if err != nil && !pause(ctx, lookEvery) {
			return
		}
	}
}

// reconcile makes what runs equal to what is declared. A database that cannot
// be read keeps what runs of it: it may be back soon.
func (sv *Supervisor) reconcile(ctx context.Context) error {
	databases, err := sv.databases(ctx)
	if err != nil {
		return err
	}
	sv.watch(ctx, databases)
	var failed error
	declared := map[consumerKey]*store.Consumer{}
	unread := map[*store.Database]bool{}
	for _, database := range databases {
		catalog, err := database.Catalog(ctx)
		if err != nil {
			failed = err
			unread[database] = true
			continue
		}
		for _, kind := range []store.ConsumerKind{store.TopicConsumer, store.KafkaConsumer} {
			for _, consumer := range catalog.Consumers(kind) {
				declared[consumerKey{database, kind, consumer.Name}] = consumer
			}
		}
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for key, running := range sv.consumers {
		if declared[key] == nil && !unread[key.database] {
			running.stop()
			delete(sv.consumers, key)
		}
	}
	for key, consumer := range declared {
		running := sv.consumers[key]
		if running != nil && running.declared.ID == consumer.ID && running.declared.Generation == consumer.Generation {
			continue
		}
		if running != nil {
			running.stop()
		}
		sv.consumers[key] = sv.startConsumer(key.database, consumer, running)
	}
	return failed
}

func (sv *Supervisor) databases(ctx context.Context) ([]*store.Database, error) {
	namespaces, err := sv.store.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	var databases []*store.Database
	for _, namespace := range namespaces {
		names, err := sv.store.Databases(ctx, namespace)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			database, err := sv.store.Database(ctx, namespace, name)
			if err != nil {
				return nil, err
			}
			databases = append(databases, database)
		}
	}
	return databases, nil
}

// watch wakes the supervisor when a definition of a database changes.
func (sv *Supervisor) watch(ctx context.Context, databases []*store.Database) {
	present := map[*store.Database]bool{}
	for _, database := range databases {
		present[database] = true
		if sv.watched[database] != nil {
			continue
		}
		watching, stop := context.WithCancel(ctx)
		sv.watched[database] = stop
		// The first look follows in this round, after the channel is taken.
		changed := database.CatalogChanged()
		sv.done.Go(func() {
			for {
				select {
				case <-watching.Done():
					return
				case <-changed:
				}
				changed = database.CatalogChanged()
				select {
				case sv.wake <- struct{}{}:
				default:
				}
			}
		})
	}
	for database, stop := range sv.watched {
		if !present[database] {
			stop()
			delete(sv.watched, database)
		}
	}
}

// stopAll stops every consumer and waits until their members have returned.
func (sv *Supervisor) stopAll() {
	sv.mu.Lock()
	consumers := sv.consumers
	sv.consumers = map[consumerKey]*consumer{}
	sv.mu.Unlock()
	for _, c := range consumers {
		c.stop()
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
