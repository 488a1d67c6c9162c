package store

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Host is a transaction that somebody else opened on what carries the store,
// and will end. What commits in it is durable, and seen by others, when the
// host commits, and was never there when it does not.
type Host interface {
	// Snapshot returns the newest state of a space that the host may see. own
	// says that the host has committed to the space before, so that nobody else
	// can until it ends.
	Snapshot(ctx context.Context, space engine.Space) (snapshot engine.Snapshot, own bool, err error)

	// Commit is the space's Commit inside the host.
	Commit(ctx context.Context, space engine.Space, form func(engine.Commit) error) error
}

// Join starts a transaction that commits inside a host. It reads and buffers as
// any other; its Commit waits for its turn among the database's commits, which
// then wait until the host ends.
//
// The committer is not asked, since nothing here is certain until the host
// commits. It, and the catalog that readers share, learn of the commit as of
// another process's: by the sequence.
func (db *Database) Join(ctx context.Context, host Host) (*Tx, error) {
	snapshot, own, err := host.Snapshot(ctx, db.space)
	if err != nil {
		return nil, err
	}
	var catalog *Catalog
	if own {
		// What only the host sees must not be remembered for others.
		catalog, err = loadOwnCatalog(ctx, snapshot)
	} else {
		catalog, err = db.catalogOf(ctx, snapshot)
	}
	if err != nil {
		snapshot.Release()
		return nil, err
	}
	return &Tx{db: db, snapshot: snapshot, ctx: ctx, catalog: catalog, host: host, holds: own}, nil
}

func loadOwnCatalog(ctx context.Context, r engine.Reader) (*Catalog, error) {
	version, err := r.Get(ctx, catalogVersionKey)
	if err != nil {
		return nil, err
	}
	return loadCatalog(ctx, r, version.Sequence)
}

// commitInHost seals the transaction alone in a commit of its host.
func (tx *Tx) commitInHost(ctx context.Context) (map[string]Appended, error) {
	request := &txRequest{tx: tx}
	err := tx.host.Commit(ctx, tx.db.space, func(commit engine.Commit) error {
		s, err := tx.beginSealingAlone(ctx, commit)
		if err == nil {
			err = s.request(request)
		}
		if err == nil {
			err = s.finish()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return request.appended(), nil
}

// beginSealingAlone begins a commit that knows nothing of the newest state but
// the definitions, which most often have not changed.
func (tx *Tx) beginSealingAlone(ctx context.Context, commit engine.Commit) (*sealing, error) {
	known := &sealed{sequence: commit.Sequence() + 1}
	if !tx.catalogChanged {
		known.catalog = tx.catalog
	}
	return beginSealing(ctx, commit, known)
}

// Lost returns fault.Conflict where Commit would: where another transaction
// committed, since this one's snapshot, what it wrote or read as a consumer.
func (tx *Tx) Lost(ctx context.Context) error {
	if tx.ended || tx.holds || !tx.Wrote() {
		return nil
	}
	snapshot, err := tx.db.snapshot(ctx)
	if err != nil {
		return err
	}
	defer snapshot.Release()
	now, err := tx.db.Now(ctx)
	if err != nil {
		return err
	}
	s, err := tx.beginSealingAlone(ctx, rehearsal{snapshot, now})
	if err == nil {
		err = s.request(&txRequest{tx: tx})
	}
	if errors.Is(err, fault.Conflict) {
		return err
	}
	return nil
}

// rehearsal is a commit of which nothing is written.
type rehearsal struct {
	engine.Reader
	now time.Time
}

func (r rehearsal) Now() time.Time         { return r.now }
func (rehearsal) Set(_, _ []byte)          {}
func (rehearsal) Delete([]byte)            {}
func (rehearsal) DeleteRange(engine.Range) {}

// newObjectID gives an id for a definition of the transaction.
func (tx *Tx) newObjectID(ctx context.Context) (ObjectID, error) {
	if tx.holds {
		// The id is given by a commit of its own, which would wait for the host,
		// which waits for this.
		return 0, fault.New(fault.InvalidClause,
			"the transaction that this one joined has written to database %s before, so nothing can be defined in it any more; define first", tx.db.Name)
	}
	return tx.db.newObjectID(ctx)
}
