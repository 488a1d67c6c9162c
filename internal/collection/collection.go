// Package collection lets the heap of a process grow further between two garbage
// collections than Go does by itself, while it is small. The processes that carry
// messages make much garbage and hold little: a node's store is mostly outside the
// heap, and a module's process holds a few events. With Go's own 100 percent they
// collect all the time.
package collection

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much a heap may grow between two garbage collections, in percent. At 400
// pipelined appends over the wire were measured to gain half, and what a module
// publishes and handles a quarter. A heap that is large, because much is on its
// way, must not grow to five times its size: from mostGarbage on it grows by less.
const (
	mostPercent, leastPercent = 400, 100
	mostGarbage               = 128 << 20
)

// Relax lets the heap grow so far, unless somebody has said how far: an operator by
// GOGC, or the program by debug.SetGCPercent.
func Relax() {
	if os.Getenv("GOGC") != "" {
		return
	}
	if before := debug.SetGCPercent(mostPercent); before != leastPercent {
		debug.SetGCPercent(before)
		return
	}
	afterCollection(adjustCollection(mostPercent))
}

// adjustCollection returns what adjusts the percentage to what lives.
func adjustCollection(percent int) func() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	return func() {
		metrics.Read(live)
		if now := collectionPercent(live[0].Value.Uint64()); now != percent {
			percent = now
			debug.SetGCPercent(percent)
		}
	}
}

// collectionPercent is how much a heap of which so much lives may grow, in steps,
// since every change stops the program for a moment.
func collectionPercent(live uint64) int {
	const step = 50
	percent := mostGarbage * 100 / max(live, 1) / step * step
	return int(min(max(percent, leastPercent), mostPercent))
}

// afterCollection has something done after every collection. Only a finalizer is
// told of them: one that finds its object dead, and revives it for the next.
func afterCollection(do func()) {
	type sentinel struct{ _ *int }
	var watch func(s *sentinel)
	watch = func(s *sentinel) {
		do()
		runtime.SetFinalizer(s, watch)
	}
	runtime.SetFinalizer(&sentinel{}, watch)
}
