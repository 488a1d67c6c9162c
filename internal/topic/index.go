package topic

import (
	"math"
	"time"

	"github.com/tidwall/btree"
)

// index finds the messages of a group that may be handed out, among those that
// retention has not removed. Every message that is not settled is known to it
// under exactly one of these, or waits behind another of its key:
//
//	due    in flight, and its time had come when the index was last promoted
//	later  in flight, and its time comes later: a deadline, a backoff, a delay
//	open   never handed out, and the first of its key that is not settled
//
// The trees are copied on write, so that a group is cloned at no cost however
// much is in flight.
type index struct {
	due   *btree.Set[Position]
	later *btree.BTreeG[dueAt]
	open  *btree.Set[Position]
	// promoted is the time, in nanoseconds since 1970, up to which messages
	// were moved from later to due.
	promoted int64
	// keys holds every message with a key, in order of key and position.
	keys *btree.BTreeG[keyAt]
	// inFlight counts the messages in due and later.
	inFlight int
}

type dueAt struct {
	nanoseconds int64
	position    Position
}

type keyAt struct {
	key      string
	position Position
}

func newIndex() index {
	unlocked := btree.Options{NoLocks: true}
	return index{
		due:      new(btree.Set[Position]),
		open:     new(btree.Set[Position]),
		promoted: math.MinInt64,
		later: btree.NewBTreeGOptions(func(a, b dueAt) bool {
			if a.nanoseconds != b.nanoseconds {
				return a.nanoseconds < b.nanoseconds
			}
			return a.position < b.position
		}, unlocked),
		keys: btree.NewBTreeGOptions(func(a, b keyAt) bool {
			if a.key != b.key {
				return a.key < b.key
			}
			return a.position < b.position
		}, unlocked),
	}
}

func (x *index) clone() index {
	copied := *x
	copied.due, copied.later = x.due.Copy(), x.later.Copy()
	copied.open, copied.keys = x.open.Copy(), x.keys.Copy()
	return copied
}

// dueTime is when a message that is in flight may be handed out again: one
// that was not answered waits out its backoff after its deadline.
func (g *Group) dueTime(e Entry) int64 {
	due := e.Due
	if e.State == Out {
		due = due.Add(g.definition.backoff(e.counted()))
	}
	return due.UnixNano()
}

// link makes a message known to the index.
func (g *Group) link(p Position, e Entry) {
	if e.InFlight() {
		g.index.inFlight++
	}
	if e.Key != "" {
		g.index.keys.Set(keyAt{e.Key, p})
		if _, waits := g.earlierOfKey(p, e.Key); waits {
			return
		}
		if next, ok := g.laterOfKey(p, e.Key); ok {
			g.unschedule(next, g.entry(next))
		}
	}
	g.schedule(p, e)
}

// unlink is the reverse of link.
func (g *Group) unlink(p Position, e Entry) {
	if e.InFlight() {
		g.index.inFlight--
	}
	if e.Key != "" {
		g.index.keys.Delete(keyAt{e.Key, p})
		if _, waits := g.earlierOfKey(p, e.Key); waits {
			return
		}
		if next, ok := g.laterOfKey(p, e.Key); ok {
			g.schedule(next, g.entry(next))
		}
	}
	g.unschedule(p, e)
}

// relink is unlink and link of one message whose key stays.
func (g *Group) relink(p Position, before, after Entry) {
	if before.InFlight() {
		g.index.inFlight--
	}
	if after.InFlight() {
		g.index.inFlight++
	}
	if after.Key != "" {
		if _, waits := g.earlierOfKey(p, after.Key); waits {
			return
		}
	}
	g.unschedule(p, before)
	g.schedule(p, after)
}

func (g *Group) schedule(p Position, e Entry) {
	if !e.InFlight() {
		g.index.open.Insert(p)
		return
	}
	if at := g.dueTime(e); at <= g.index.promoted {
		g.index.due.Insert(p)
	} else {
		g.index.later.Set(dueAt{at, p})
	}
}

func (g *Group) unschedule(p Position, e Entry) {
	if !e.InFlight() {
		g.index.open.Delete(p)
		return
	}
	if at := g.dueTime(e); at <= g.index.promoted {
		g.index.due.Delete(p)
	} else {
		g.index.later.Delete(dueAt{at, p})
	}
}

// promote moves to due the messages whose time has come.
func (g *Group) promote(now time.Time) {
	nanoseconds := now.UnixNano()
	if nanoseconds <= g.index.promoted {
		return
	}
	for {
		next, ok := g.index.later.Min()
		if !ok || next.nanoseconds > nanoseconds {
			break
		}
		g.index.later.PopMin()
		g.index.due.Insert(next.position)
	}
	g.index.promoted = nanoseconds
}

// earlierOfKey is the nearest message before p with its key.
func (g *Group) earlierOfKey(p Position, key string) (earlier Position, ok bool) {
	if p == 0 {
		return 0, false
	}
	g.index.keys.Descend(keyAt{key, p - 1}, func(at keyAt) bool {
		earlier, ok = at.position, at.key == key
		return false
	})
	return earlier, ok
}

// laterOfKey is the nearest message after p with its key.
func (g *Group) laterOfKey(p Position, key string) (later Position, ok bool) {
	g.index.keys.Ascend(keyAt{key, p + 1}, func(at keyAt) bool {
		later, ok = at.position, at.key == key
		return false
	})
	return later, ok
}
