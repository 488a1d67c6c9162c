package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// cut is one REPEATABLE READ transaction, which shows all spaces at one moment.
type cut struct {
	*state
	spaces    []engine.SpaceID
	snapshots map[engine.SpaceID]*snapshot
}

// Cut returns the state of all spaces at one moment. It takes one connection
// until it is released, out of those for snapshots.
func (e *Engine) Cut(ctx context.Context) (engine.Cut, error) {
	if !e.gate.enter() {
		return nil, errClosed()
	}
	defer e.gate.leave()
	if err := ctx.Err(); err != nil {
		return nil, cancelled(err)
	}
	if e.forked.Load() {
		return nil, errForked()
	}
	if err := e.takeStateToken(); err != nil {
		return nil, err
	}
	var c *cut
	err := e.persist(ctx, "open a snapshot of all spaces", func(ctx context.Context) (err error) {
		c, err = e.beginCut(ctx)
		return err
	})
	if err != nil {
		<-e.openStates
		return nil, err
	}
	c.users.Store(1)
	e.mu.Lock()
	e.states[c.state] = struct{}{}
	e.mu.Unlock()
	return c, nil
}

// beginCut begins the transaction of a cut.
func (e *Engine) beginCut(ctx context.Context) (*cut, error) {
	known := e.knownSequences()
	c := &cut{snapshots: map[engine.SpaceID]*snapshot{}}
	sequences := map[engine.SpaceID]engine.Sequence{}
	stale := false
	first := &pgx.Batch{}
	first.Queue(e.sql.cut).Query(func(rows pgx.Rows) error {
		var id int32
		var sequence int64
		var standby string
		_, err := pgx.ForEachRow(rows, []any{&id, &sequence, &standby}, func() error {
			space := engine.SpaceID(id)
			stale = stale || standby == "on" || engine.Sequence(sequence) < known[space]
			if sequence > 0 {
				c.spaces = append(c.spaces, space)
				sequences[space] = engine.Sequence(sequence)
			}
			return nil
		})
		return err
	})
	first.Queue(setSnapshotTimeout)
	session, err := e.begin(ctx, beginSnapshot, first)
	if err != nil {
		return nil, err
	}
	if stale {
		err := session.fail(errStale)
		session.end()
		return nil, err
	}
	c.state = &state{session: session}
	for _, id := range c.spaces {
		c.snapshots[id] = newSnapshot(e, id, &state{session: session, sequence: sequences[id]})
	}
	return c, nil
}

// knownSequences are the newest sequences of all spaces that this process was
// shown or made.
func (e *Engine) knownSequences() map[engine.SpaceID]engine.Sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := make(map[engine.SpaceID]engine.Sequence, len(e.spaces))
	for id, s := range e.spaces {
		known[id] = s.newestKnown().sequence
	}
	return known
}

func (c *cut) Spaces() []engine.SpaceID { return c.spaces }

func (c *cut) Space(id engine.SpaceID) engine.Reader { return c.snapshots[id] }

// Release ends the cut; a second call does nothing.
func (c *cut) Release() {
	for _, shown := range c.snapshots {
		shown.released.Store(true)
	}
	c.end()
}
