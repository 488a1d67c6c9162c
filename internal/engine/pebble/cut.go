package pebble

import (
	"context"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// cut is one Pebble snapshot, which shows all spaces at one moment.
type cut struct {
	engine *Engine
	state  *state
	// rows are the spaces' own, as the snapshot shows them.
	rows      map[engine.SpaceID]spaceRow
	spaces    []engine.SpaceID
	snapshots map[engine.SpaceID]*snapshot
	released  atomic.Bool
}

// Cut returns the state of all spaces at one moment. Pebble's snapshot also
// shows commits that are not durable yet, so it waits for those: they were
// applied before, and what they follow is before them in the log.
func (e *Engine) Cut(ctx context.Context) (engine.Cut, error) {
	if !e.gate.enter() {
		return nil, errClosed()
	}
	defer e.gate.leave()
	if err := ctx.Err(); err != nil {
		return nil, cancelled(err)
	}
	if err := e.failure.err(); err != nil {
		return nil, err
	}
	c := &cut{engine: e, rows: map[engine.SpaceID]spaceRow{}, snapshots: map[engine.SpaceID]*snapshot{}}
	err := e.apart(func() error {
		c.state = e.newState(0)
		return scanSpaceRows(ctx, c.state.pebble, func(id engine.SpaceID, row spaceRow) {
			c.rows[id] = row
			if !row.dropped {
				c.spaces = append(c.spaces, id)
				c.snapshots[id] = &snapshot{
					reader: reader{engine: e, prefix: prefixOf(id), from: c.state.pebble, sequence: row.sequence, gated: true},
					state:  c.state,
				}
			}
		})
	})
	if err != nil {
		if failed := e.failure.err(); failed != nil {
			return nil, failed
		}
		c.state.release()
		return nil, e.failure.reading(err)
	}
	e.snapshots.Add(1)
	if err := c.awaitDurable(ctx); err != nil {
		c.Release()
		return nil, err
	}
	return c, nil
}

// awaitDurable waits until all that the cut shows is durable. A space that
// this process has not opened it has not committed to.
func (c *cut) awaitDurable(ctx context.Context) error {
	for id, row := range c.rows {
		c.engine.mu.Lock()
		s := c.engine.spaces[id]
		c.engine.mu.Unlock()
		if s == nil {
			continue
		}
		if err := s.awaitDurable(ctx, row.sequence); err != nil {
			return err
		}
	}
	return nil
}

func (c *cut) Spaces() []engine.SpaceID { return c.spaces }

func (c *cut) Space(id engine.SpaceID) engine.Reader { return c.snapshots[id] }

// Release ends the cut; a second call does nothing.
func (c *cut) Release() {
	if c.released.Swap(true) {
		return
	}
	for _, shown := range c.snapshots {
		shown.released.Store(true)
	}
	c.engine.snapshots.Add(-1)
	if !c.engine.gate.enter() {
		return // Close has taken everything with it.
	}
	defer c.engine.gate.leave()
	c.state.release()
}
