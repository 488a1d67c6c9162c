// Package workers runs many short functions at once, on goroutines that are used
// again. A new goroutine begins with a small stack, which is copied as it grows;
// where functions call deeply, as those do that talk to a store or run a module's
// verb, a tenth of their time was measured to go into that. gRPC's server keeps
// goroutines for the same reason (grpc.NumStreamWorkers).
package workers

import (
	"sync"
	"time"
)

// idleTime is for how long a goroutine waits for its next function.
const idleTime = 100 * time.Millisecond

// Group is the functions that run, as a sync.WaitGroup is. The zero Group is ready
// to use.
type Group struct {
	running    sync.WaitGroup
	begin, end sync.Once
	// idle is received from by the goroutines that have nothing to run.
	idle chan func()
}

// Go runs a function, and does not wait for anything. However many run, none waits
// for another.
func (g *Group) Go(f func()) {
	g.running.Add(1)
	select {
	case g.waiting() <- f:
	default:
		go g.work(f)
	}
}

// Wait waits until no function runs, and ends the group: nothing is run by it
// afterwards.
func (g *Group) Wait() {
	g.running.Wait()
	g.end.Do(func() { close(g.waiting()) })
}

func (g *Group) waiting() chan func() {
	g.begin.Do(func() { g.idle = make(chan func()) })
	return g.idle
}

// work runs a function, and then others for as long as they come.
func (g *Group) work(f func()) {
	timer := time.NewTimer(idleTime)
	defer timer.Stop()
	for f != nil {
		g.run(f)
		timer.Reset(idleTime)
		select {
		case f = <-g.idle:
		case <-timer.C:
			return
		}
	}
}

func (g *Group) run(f func()) {
	defer g.running.Done()
	f()
}
