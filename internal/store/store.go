// Package store is what a database means: its catalog, records, topics,
// readers and groups, and the transactions that move them together. It knows
// no text and nothing of who asks.
//
// Three ideas:
//
//   - A transaction reads a snapshot and buffers what it writes, with the
//     versions of what it must not lose. Committing hands it to the database's
//     committer.
//   - The committer takes everything that waits and seals it in one engine
//     commit: each request in turn is checked against the newest state, and
//     only there positions are given. So positions are dense and in commit
//     order by construction, and a sync is shared by all who wait.
//   - What only makes sense at the newest state (a lone append, a lone read
//     for a consumer, an acknowledgement) is a request of its own that runs
//     when it is sealed, so that workers under one name take turns instead of
//     conflicting.
package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Options are a store's settings. The zero value is a good default.
type Options struct {
	// Log receives what an operator must know. Default: slog.Default().
	Log *slog.Logger
	// HousekeepingEvery is how often retention by age and what else runs by
	// time is looked at; the language promises two seconds. Default: one
	// second. Negative turns it off, for tests that call Housekeep.
	HousekeepingEvery time.Duration
	// NodeName is what people know this process by among those that share the
	// store. Default: its host and process id.
	NodeName string
}

// Store is an open store: namespaces, and the databases in them.
type Store struct {
	engine engine.Engine
	root   engine.Space
	log    *slog.Logger
	// metrics are of all databases together.
	metrics *metrics
	// users are those of the store and its namespaces.
	users userCache
	// nodes are the processes that have the store open.
	nodes *nodes

	mu sync.Mutex
	// The following are protected by mu.
	databases map[engine.SpaceID]*Database
	closed    bool

	// stop ends what runs in the background, and background waits for it.
	stop       context.CancelFunc
	background sync.WaitGroup
}

// Open opens the store that an engine carries. Closing the store closes the
// engine.
func Open(ctx context.Context, e engine.Engine, options Options) (*Store, error) {
	root, err := e.Space(ctx, engine.Root)
	if err != nil {
		return nil, err
	}
	s := &Store{engine: e, root: root, log: options.Log, metrics: newMetrics(), databases: map[engine.SpaceID]*Database{}}
	if s.log == nil {
		s.log = slog.Default()
	}
	if err := s.finishDrops(ctx); err != nil {
		return nil, err
	}
	if s.nodes, err = openNodes(ctx, s, options.NodeName); err != nil {
		return nil, err
	}
	every := options.HousekeepingEvery
	if every == 0 {
		every = time.Second
	}
	running, stop := context.WithCancel(context.Background())
	s.stop = stop
	if s.nodes.roll != nil {
		s.background.Go(func() { s.nodes.run(running) })
	}
	if every > 0 {
		s.background.Go(func() { s.keepHouse(running, every) })
	}
	return s, nil
}

// Engine is what carries the store.
func (s *Store) Engine() engine.Engine { return s.engine }

// Now reads the store's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.engine.Now(ctx) }

// Close commits what waits, ends what waits for messages, and closes the
// engine.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	// Before closed is seen, so that housekeeping does not complain of it.
	s.stop()
	s.closed = true
	databases := s.databases
	s.mu.Unlock()
	s.background.Wait()
	for _, database := range databases {
		database.close()
	}
	s.nodes.leave()
	return s.engine.Close()
}

// The rows of the root space:
//
//	N name             a namespace
//	D namespace 0 name a database: the id of its space
//	S                  the last id of a space given
//	X id               a space whose database was dropped and whose rows may remain
const (
	rowNamespace    = 'N'
	rowDatabase     = 'D'
	rowSpaceID      = 'S'
	rowDroppedSpace = 'X'
)

func databaseKey(namespace, database string) []byte {
	return append(databasesPrefix(namespace), database...)
}

func databasesPrefix(namespace string) []byte {
	return append(nameKey(rowDatabase, namespace), 0)
}

func droppedKey(id engine.SpaceID) []byte {
	return binary.BigEndian.AppendUint32([]byte{rowDroppedSpace}, uint32(id))
}

func checkContainerName(what, name string) error {
	if err := CheckName(what, name); err != nil {
		return err
	}
	if strings.ContainsRune(name, 0) {
		return fault.New(fault.InvalidClause, "the name of a %s holds a NUL character", what)
	}
	return nil
}

// DefineNamespace creates a namespace. It returns fault.AlreadyExists where
// there is one, unless ifNotExists is set.
func (s *Store) DefineNamespace(ctx context.Context, name string, ifNotExists bool) error {
	if err := checkContainerName("namespace", name); err != nil {
		return err
	}
	_, err := s.root.Commit(ctx, func(c engine.Commit) error {
		key := nameKey(rowNamespace, name)
		existing, err := c.Get(ctx, key)
		if err != nil {
			return err
		}
		if existing.Sequence != 0 {
			if ifNotExists {
				return nil
			}
			return fault.New(fault.AlreadyExists, "namespace %s exists already", name)
		}
		c.Set(key, []byte{})
		return nil
	})
	return err
}

// CheckNamespace returns fault.NotFound where there is no such namespace.
func (s *Store) CheckNamespace(ctx context.Context, name string) error {
	snapshot, err := s.root.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer snapshot.Release()
	return namespaceExists(ctx, snapshot, name)
}

func namespaceExists(ctx context.Context, r engine.Reader, name string) error {
	entry, err := r.Get(ctx, nameKey(rowNamespace, name))
	if err == nil && entry.Sequence == 0 {
		err = fault.New(fault.NotFound, "namespace %s does not exist", name)
	}
	return err
}

// DropNamespace removes a namespace and all its databases.
func (s *Store) DropNamespace(ctx context.Context, name string) error {
	var dropped []engine.SpaceID
	_, err := s.root.Commit(ctx, func(c engine.Commit) error {
		dropped = nil
		if err := namespaceExists(ctx, c, name); err != nil {
			return err
		}
		databases := engine.PrefixRange(databasesPrefix(name))
		err := scanRows(ctx, c, databases, func(_, row []byte) error {
			dropped = append(dropped, decodeSpaceID(row))
			return nil
		})
		if err != nil {
			return err
		}
		c.Delete(nameKey(rowNamespace, name))
		c.DeleteRange(databases)
		dropUsersOf(c, name)
		for _, id := range dropped {
			c.Set(droppedKey(id), []byte{})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.dropSpaces(ctx, dropped)
}

// DefineDatabase creates a database in a namespace. It returns
// fault.AlreadyExists where there is one, unless ifNotExists is set.
func (s *Store) DefineDatabase(ctx context.Context, namespace, name string, ifNotExists bool) error {
	if err := checkContainerName("database", name); err != nil {
		return err
	}
	_, err := s.root.Commit(ctx, func(c engine.Commit) error {
		if err := namespaceExists(ctx, c, namespace); err != nil {
			return err
		}
		key := databaseKey(namespace, name)
		existing, err := c.Get(ctx, key)
		if err != nil {
			return err
		}
		if existing.Sequence != 0 {
			if ifNotExists {
				return nil
			}
			return fault.New(fault.AlreadyExists, "database %s exists already in namespace %s", name, namespace)
		}
		last, err := c.Get(ctx, []byte{rowSpaceID})
		if err != nil {
			return err
		}
		id := decodeSpaceID(last.Value) + 1
		row := binary.BigEndian.AppendUint32(nil, uint32(id))
		c.Set([]byte{rowSpaceID}, row)
		c.Set(key, row)
		return nil
	})
	return err
}

func decodeSpaceID(row []byte) engine.SpaceID {
	if len(row) != 4 {
		return engine.Root
	}
	return engine.SpaceID(binary.BigEndian.Uint32(row))
}

// DropDatabase removes a database and all that it holds.
func (s *Store) DropDatabase(ctx context.Context, namespace, name string) error {
	var id engine.SpaceID
	_, err := s.root.Commit(ctx, func(c engine.Commit) error {
		key := databaseKey(namespace, name)
		entry, err := c.Get(ctx, key)
		if err != nil {
			return err
		}
		if entry.Sequence == 0 {
			return databaseNotFound(namespace, name)
		}
		id = decodeSpaceID(entry.Value)
		c.Delete(key)
		c.Set(droppedKey(id), []byte{})
		return nil
	})
	if err != nil {
		return err
	}
	return s.dropSpaces(ctx, []engine.SpaceID{id})
}

func databaseNotFound(namespace, name string) error {
	return fault.New(fault.NotFound, "database %s does not exist in namespace %s", name, namespace)
}

// dropSpaces removes the rows of databases that are no longer defined.
func (s *Store) dropSpaces(ctx context.Context, ids []engine.SpaceID) error {
	for _, id := range ids {
		s.mu.Lock()
		database := s.databases[id]
		delete(s.databases, id)
		s.mu.Unlock()
		if database != nil {
			database.dropped.Store(true)
			database.close()
		}
		if err := s.engine.DropSpace(ctx, id); err != nil {
			return err
		}
		_, err := s.root.Commit(ctx, func(c engine.Commit) error {
			c.Delete(droppedKey(id))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// finishDrops removes what a drop that was cut short left.
func (s *Store) finishDrops(ctx context.Context) error {
	snapshot, err := s.root.Snapshot(ctx)
	if err != nil {
		return err
	}
	var ids []engine.SpaceID
	err = scanRows(ctx, snapshot, engine.PrefixRange([]byte{rowDroppedSpace}), func(key, _ []byte) error {
		ids = append(ids, decodeSpaceID(key[1:]))
		return nil
	})
	snapshot.Release()
	if err != nil {
		return err
	}
	return s.dropSpaces(ctx, ids)
}

// Namespaces returns the names of all namespaces, sorted.
func (s *Store) Namespaces(ctx context.Context) ([]string, error) {
	return s.names(ctx, []byte{rowNamespace})
}

// Databases returns the names of a namespace's databases, sorted.
func (s *Store) Databases(ctx context.Context, namespace string) ([]string, error) {
	if err := s.CheckNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	return s.names(ctx, databasesPrefix(namespace))
}

func (s *Store) names(ctx context.Context, prefix []byte) ([]string, error) {
	snapshot, err := s.root.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer snapshot.Release()
	names := []string{}
	err = scanRows(ctx, snapshot, engine.PrefixRange(prefix), func(key, _ []byte) error {
		names = append(names, string(key[len(prefix):]))
		return nil
	})
	return names, err
}

// Database opens a database, or returns fault.NotFound.
func (s *Store) Database(ctx context.Context, namespace, name string) (*Database, error) {
	snapshot, err := s.root.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	entry, err := snapshot.Get(ctx, databaseKey(namespace, name))
	if err == nil && entry.Sequence == 0 {
		if err = namespaceExists(ctx, snapshot, namespace); err == nil {
			err = databaseNotFound(namespace, name)
		}
	}
	snapshot.Release()
	if err != nil {
		return nil, err
	}
	return s.openDatabase(ctx, decodeSpaceID(entry.Value), namespace, name)
}

func (s *Store) openDatabase(ctx context.Context, id engine.SpaceID, namespace, name string) (*Database, error) {
	space, err := s.engine.Space(ctx, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fault.New(fault.Unavailable, "the store is closed")
	}
	if open := s.databases[id]; open != nil {
		return open, nil
	}
	database := newDatabase(s, id, space, namespace, name)
	s.databases[id] = database
	return database, nil
}

// everyDatabase opens all databases of the store.
func (s *Store) everyDatabase(ctx context.Context) ([]*Database, error) {
	namespaces, err := s.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	var databases []*Database
	for _, namespace := range namespaces {
		names, err := s.names(ctx, databasesPrefix(namespace))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			database, err := s.Database(ctx, namespace, name)
			if err != nil {
				return nil, fmt.Errorf("open database %s of namespace %s: %w", name, namespace, err)
			}
			databases = append(databases, database)
		}
	}
	return slices.Clip(databases), nil
}
