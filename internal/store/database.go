package store

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Database is one database of an open store. It is safe for concurrent use.
type Database struct {
	Namespace string
	Name      string

	store     *Store
	id        engine.SpaceID
	space     engine.Space
	committer *committer

	// catalog is the newest catalog that a reader or a commit has seen.
	catalog atomic.Pointer[Catalog]
	alarms  alarms
	// lookout rings the alarms for what other processes commit.
	lookout *lookout
	closing sync.Once
	closed  chan struct{}
	// newest is the last commit that this process is known to have made.
	newest atomic.Uint64
	// dropped says that the database was dropped, not the store closed.
	dropped atomic.Bool
}

// commitsOnTheirWay is how many commits of one database may be on their way to
// the disk at once: one that waits for its sync and one that is formed
// meanwhile. More were not measured to give more.
const commitsOnTheirWay = 2

func newDatabase(s *Store, id engine.SpaceID, space engine.Space, namespace, name string) *Database {
	db := &Database{Namespace: namespace, Name: name, store: s, id: id, space: space, closed: make(chan struct{})}
	goroutines := commitsOnTheirWay
	if s.engine.Shared() {
		goroutines = 1
	}
	db.committer = newCommitter(db, goroutines)
	db.lookout = newLookout(db)
	return db
}

// close commits what waits and ends what waits for messages.
func (db *Database) close() {
	db.closing.Do(func() {
		close(db.closed)
		db.committer.close()
		db.lookout.end()
		db.alarms.ringAll()
	})
}

// unavailable is why the database is closed.
func (db *Database) unavailable() error {
	if db.dropped.Load() {
		return databaseNotFound(db.Namespace, db.Name)
	}
	return fault.New(fault.Unavailable, "the store is closed")
}

// snapshot is the newest durable state.
func (db *Database) snapshot(ctx context.Context) (engine.Snapshot, error) {
	snapshot, err := db.space.Snapshot(ctx)
	if errors.Is(err, fault.NotFound) {
		// The space is gone: another process dropped the database.
		db.dropped.Store(true)
		return nil, db.unavailable()
	}
	return snapshot, err
}

// Now reads the store's clock.
func (db *Database) Now(ctx context.Context) (time.Time, error) { return db.store.engine.Now(ctx) }

// catalogOf returns the definitions of a state.
func (db *Database) catalogOf(ctx context.Context, r engine.Reader) (*Catalog, error) {
	version, err := r.Get(ctx, catalogVersionKey)
	if err != nil {
		return nil, err
	}
	if known := db.catalog.Load(); known != nil && known.version == version.Sequence {
		return known, nil
	}
	catalog, err := loadCatalog(ctx, r, version.Sequence)
	if err != nil {
		return nil, err
	}
	db.remember(catalog)
	return catalog, nil
}

// remember keeps a catalog unless a newer one is known.
func (db *Database) remember(catalog *Catalog) {
	for {
		known := db.catalog.Load()
		if known != nil && known.version >= catalog.version {
			return
		}
		if db.catalog.CompareAndSwap(known, catalog) {
			return
		}
	}
}

// Catalog returns the newest definitions.
func (db *Database) Catalog(ctx context.Context) (*Catalog, error) {
	snapshot, err := db.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer snapshot.Release()
	return db.catalogOf(ctx, snapshot)
}

// NewestCatalog returns the newest definitions of any node. Where this process
// alone commits, what it remembers is the newest, and nothing is read.
func (db *Database) NewestCatalog(ctx context.Context) (*Catalog, error) {
	if db.dropped.Load() {
		return nil, db.unavailable()
	}
	if known := db.catalog.Load(); known != nil && !db.store.engine.Shared() {
		return known, nil
	}
	return db.Catalog(ctx)
}

// committed is told of every commit that is durable, and the sequence that it
// has, or read where it wrote nothing.
func (db *Database) committed(s *sealing, sequence engine.Sequence) {
	db.newest.Store(uint64(sequence))
	db.ring(s)
	if sequence == s.next() {
		db.lookout.committed(sequence)
	}
}

// ring wakes those who wait for what a commit changed.
func (db *Database) ring(s *sealing) {
	if s.changedCatalog != nil {
		// Whoever waits may wait for what is gone or goes on now.
		db.remember(s.changedCatalog)
		db.alarms.ringAll()
		return
	}
	for id := range s.touchedTopics {
		db.alarms.ring(id)
	}
	for id := range s.touchedGroups {
		db.alarms.ring(id)
	}
}

// newObjectID gives an id that was never given before. It commits by itself,
// so that definitions made at the same time do not conflict over it; a
// definition that fails leaves a gap.
func (db *Database) newObjectID(ctx context.Context) (ObjectID, error) {
	var id ObjectID
	_, err := db.space.Commit(ctx, func(c engine.Commit) error {
		entry, err := c.Get(ctx, objectIDKey)
		if err != nil {
			return err
		}
		id = 1
		if len(entry.Value) == 4 {
			id = ObjectID(binary.BigEndian.Uint32(entry.Value)) + 1
		}
		c.Set(objectIDKey, binary.BigEndian.AppendUint32(nil, uint32(id)))
		return nil
	})
	return id, err
}

// alarms wake those who wait for something new of a topic or a group.
type alarms struct {
	mu sync.Mutex
	// The following are protected by mu.
	waiting map[ObjectID]chan struct{}
}

// on returns a channel that is closed when the object changes next.
func (a *alarms) on(id ObjectID) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[ObjectID]chan struct{}{}
	}
	alarm := a.waiting[id]
	if alarm == nil {
		alarm = make(chan struct{})
		a.waiting[id] = alarm
	}
	return alarm
}

func (a *alarms) ring(id ObjectID) {
	a.mu.Lock()
	alarm := a.waiting[id]
	delete(a.waiting, id)
	a.mu.Unlock()
	if alarm != nil {
		close(alarm)
	}
}

func (a *alarms) ringAll() {
	a.mu.Lock()
	waiting := a.waiting
	a.waiting = nil
	a.mu.Unlock()
	for _, alarm := range waiting {
		close(alarm)
	}
}
