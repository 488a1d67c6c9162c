package postgres

import "sync"

// gate lets calls in until it is shut, and then can wait for those inside.
type gate struct{ *gateState }

type gateState struct {
	mu sync.Mutex
	// The following are protected by mu.
	inside int
	closed bool
	// empty is closed when the gate is shut and nobody is inside.
	empty chan struct{}
}

func newGate() gate { return gate{&gateState{empty: make(chan struct{})}} }

// enter reports whether the call may go on; if so, it must leave.
func (g gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// shut ends the entering, and reports whether it was this call that did.
func (g gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.closed = true
	if g.inside == 0 {
		close(g.empty)
	}
	return true
}

func (g gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// wait waits until the gate is shut and nobody is inside.
func (g gate) wait() { <-g.empty }
