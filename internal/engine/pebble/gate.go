package pebble

import (
	"sync"
	"sync/atomic"
)

// gate lets calls in until it is closed, and tells when the last is out.
type gate struct {
	// state is the number of calls inside, and gateClosed where no more enter.
	state atomic.Int64
	// empty is closed when the gate is closed and nobody is inside.
	empty     chan struct{}
	emptyOnce *sync.Once
}

const gateClosed = 1 << 62

func newGate() gate { return gate{empty: make(chan struct{}), emptyOnce: new(sync.Once)} }

// enter reports whether the call may go on; if so, it must leave.
func (g *gate) enter() bool {
	if g.state.Add(1) >= gateClosed {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.state.Add(-1) == gateClosed {
		g.emptyOnce.Do(func() { close(g.empty) })
	}
}

// inside returns how many are inside.
func (g *gate) inside() int64 { return g.state.Load() & (gateClosed - 1) }

// closed reports whether no more calls enter.
func (g *gate) closed() bool { return g.state.Load() >= gateClosed }

// close ends the entering, and reports whether it was this call that did.
func (g *gate) close() bool {
	for {
		inside := g.state.Load()
		if inside >= gateClosed {
			return false
		}
		if g.state.CompareAndSwap(inside, inside+gateClosed) {
			break
		}
	}
	if g.state.Load() == gateClosed {
		g.emptyOnce.Do(func() { close(g.empty) })
	}
	return true
}
