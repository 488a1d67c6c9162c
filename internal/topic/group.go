package topic

import (
	"iter"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"github.com/tidemarkdb/tidemark/fault"
)

// Group is one group in memory: what it is to do, and where each message is
// that it has not settled. Every operation takes time in proportion to what it
// hands out or settles, and to the logarithm of what is in flight.
//
// A Group is not safe for concurrent use, not even by methods that change
// nothing a caller sees: they keep what they found out about the topic.
type Group struct {
	definition GroupDefinition
	head       Head

	// entries are the stored entries, at or below head.Position, and above it
	// the messages that a keyed group has looked at and not handed out.
	entries *btree.Map[Position, Entry]
	index   index

	// first is the topic's first position as far as the group has seen.
	// Entries below it are settled; they are stored still, and counted here
	// instead of in the index.
	first           Position
	removedInFlight int
	removedPassed   uint64
	// lookedAt is the highest position whose key is known.
	lookedAt Position
}

// NewGroup returns a group without entries: a new one, or one that Load fills.
// A group that takes over a reader's place has it as its head's Position.
func NewGroup(definition GroupDefinition, head Head) *Group {
	return &Group{
		definition: definition,
		head:       head,
		entries:    new(btree.Map[Position, Entry]),
		index:      newIndex(),
		first:      1,
	}
}

// Load adds a stored entry. It is called for all of them, in any order, before
// any other method. An entry that the group cannot have is fault.Internal.
func (g *Group) Load(p Position, e Entry) error {
	if err := e.check(); err != nil {
		return err
	}
	if p == 0 || p > g.head.Position {
		return fault.New(fault.Internal, "a group at position %d has an entry of position %d", g.head.Position, p)
	}
	g.put(p, e)
	return nil
}

// Clone returns a copy that shares nothing a caller could notice. It costs the
// same however much is in flight.
func (g *Group) Clone() *Group {
	copied := *g
	copied.entries = g.entries.Copy()
	copied.index = g.index.clone()
	return &copied
}

// Definition is what the group is to do.
func (g *Group) Definition() GroupDefinition { return g.definition }

// SetDefinition changes what the group is to do. What is in flight stays as it
// is; a new BACKOFF counts from the next time a message's deadline passes or
// it is returned.
func (g *Group) SetDefinition(definition GroupDefinition) {
	if slices.Equal(g.definition.Backoff, definition.Backoff) {
		g.definition = definition
		return
	}
	live := g.live(MaxPosition)
	for _, l := range live {
		g.unlink(l.position, l.entry)
	}
	g.definition = definition
	for _, l := range live {
		g.link(l.position, l.entry)
	}
}

// Head is the group's row.
func (g *Group) Head() Head { return g.head }

// Entry returns the stored entry of a position, the zero Entry for none.
func (g *Group) Entry(p Position) Entry {
	if p > g.head.Position {
		return Entry{}
	}
	return g.entry(p)
}

// Entries iterates over the stored entries in order of position.
func (g *Group) Entries() iter.Seq2[Position, Entry] {
	return func(yield func(Position, Entry) bool) {
		g.entries.Scan(func(p Position, e Entry) bool {
			return p <= g.head.Position && yield(p, e)
		})
	}
}

// Figures are what INFO tells of a group.
type Figures struct {
	// Position is the highest that was handed out: see Head.
	Position Position
	// Committed is the highest position such that it and everything below is
	// settled, Lag how many messages lie after it.
	Committed Position
	Lag       uint64
	// Oldest is the lowest position that is not settled, 0 for none.
	Oldest Position

	InFlight uint64
	// The counters are those of Head, with what retention has removed since.
	HandedOut, Redelivered                         uint64
	Acknowledged, DeadLettered, Removed, Forgotten uint64
	DeadLetterRefused                              uint64
	DeadLetterReason                               string
}

// Settled is how many of the messages that were handed out are not in flight
// any more.
func (f Figures) Settled() uint64 {
	return f.Acknowledged + f.DeadLettered + f.Removed + f.Forgotten
}

// Figures derives what INFO tells. They hold for the view's first position
// also when no command has run since retention moved it.
func (g *Group) Figures(v View) Figures {
	g.observe(v.First)
	h := g.head
	oldest, ok := g.lowestUnsettled()
	if !ok || oldest > h.Position {
		oldest = max(h.Position+1, g.first)
	}
	f := Figures{
		Position:  h.Position,
		Committed: oldest - 1,
		Lag:       Lag(oldest-1, v.Last),
		Oldest:    oldest,
		InFlight:  uint64(g.index.inFlight),
		HandedOut: h.HandedOut, Redelivered: h.Redelivered,
		Acknowledged: h.Acknowledged, DeadLettered: h.DeadLettered, Forgotten: h.Forgotten,
		Removed:           h.Removed + uint64(g.removedInFlight),
		DeadLetterRefused: h.DeadLetterRefused, DeadLetterReason: h.DeadLetterReason,
	}
	if oldest > v.Last {
		f.Oldest = 0
	}
	return f
}

// Ready reports whether a READ has anything to do: a message that is due, also
// one that it will give up on, a new one, or lapsed ones to tell of. If not,
// next is when the first message becomes due, zero when time alone changes
// nothing. It is cheap enough to be asked by every waiting READ at every
// wake-up.
func (g *Group) Ready(v View) (now bool, next time.Time) {
	if g.definition.Paused {
		return false, time.Time{}
	}
	g.observe(v.First)
	g.promote(v.Now)
	if g.lapsed() > 0 {
		return true, time.Time{}
	}
	if g.index.inFlight < g.definition.InFlight && g.hasNew(v) {
		return true, time.Time{}
	}
	nearest, any := int64(0), false
	consider := func(at int64) bool {
		if !any || at < nearest {
			nearest, any = at, true
		}
		return at > v.Now.UnixNano()
	}
	g.index.due.Scan(func(p Position) bool { return consider(g.dueTime(g.entry(p))) })
	if first, ok := g.index.later.Min(); ok {
		consider(first.nanoseconds)
	}
	switch {
	case !any:
		return false, time.Time{}
	case nearest <= v.Now.UnixNano():
		return true, time.Time{}
	}
	return false, time.Unix(0, nearest).UTC()
}

// hasNew reports whether there is a message that was never handed out and may
// be, as far as only order decides.
func (g *Group) hasNew(v View) bool {
	if g.definition.KeyedBy == "" {
		return g.nextNew() <= v.Last
	}
	for g.index.open.Len() == 0 {
		lowest, ok := g.lowestUnsettled()
		if !ok {
			lowest = g.nextNew()
		}
		if _, _, ok := g.lookAt(v, lowest); !ok {
			return false
		}
	}
	return true
}

// nextNew is the lowest position that the group knows nothing of.
func (g *Group) nextNew() Position { return max(g.head.Position, g.lookedAt, g.first-1) + 1 }

// entry is what is known of a message, stored or looked at.
func (g *Group) entry(p Position) Entry {
	e, _ := g.entries.Get(p)
	return e
}

// put sets what is known of a message; a settled one is forgotten.
func (g *Group) put(p Position, after Entry) {
	before := g.entry(p)
	if p < g.first {
		g.countRemoved(before, -1)
		g.countRemoved(after, 1)
		g.store(p, after)
		return
	}
	// The index reads the entries of other messages only, so the order of the
	// two does not matter.
	g.store(p, after)
	switch {
	case before.State == Settled && after.State != Settled:
		g.link(p, after)
	case before.State != Settled && after.State == Settled:
		g.unlink(p, before)
	case before.State != Settled && before.Key == after.Key:
		g.relink(p, before, after)
	case before.State != Settled:
		g.unlink(p, before)
		g.link(p, after)
	}
}

func (g *Group) store(p Position, e Entry) {
	if e.State == Settled {
		g.entries.Delete(p)
	} else {
		g.entries.Set(p, e)
	}
}

// observe takes note of what retention removed.
func (g *Group) observe(first Position) {
	if first <= g.first {
		return
	}
	for _, l := range g.live(first) {
		g.unlink(l.position, l.entry)
		if l.position > g.head.Position {
			g.entries.Delete(l.position)
		} else {
			g.countRemoved(l.entry, 1)
		}
	}
	g.first = first
}

// countRemoved adds to or subtracts from what retention removed and is stored.
func (g *Group) countRemoved(e Entry, n int) {
	switch {
	case e.InFlight():
		g.removedInFlight += n
	case e.State == Passed:
		g.removedPassed += uint64(n)
	}
}

// placed is an entry and where it is.
type placed struct {
	position Position
	entry    Entry
}

// live are the entries that retention has not removed, before a position.
func (g *Group) live(before Position) []placed {
	var live []placed
	g.entries.Ascend(g.first, func(p Position, e Entry) bool {
		if p >= before {
			return false
		}
		live = append(live, placed{p, e})
		return true
	})
	return live
}

// lowestUnsettled is the lowest message that is known not to be settled.
func (g *Group) lowestUnsettled() (lowest Position, ok bool) {
	g.entries.Ascend(g.first, func(p Position, _ Entry) bool {
		lowest, ok = p, true
		return false
	})
	return lowest, ok
}

// lapsed is how many messages retention removed that were never handed out and
// of which no read was told.
func (g *Group) lapsed() uint64 {
	_, never := Start(g.head.Position+1, g.first)
	return never + g.removedPassed
}

// Lapsed is how many messages retention removed before they were handed out,
// whether or not a read was told of them.
func (g *Group) Lapsed(v View) uint64 {
	g.observe(v.First)
	return g.head.Lapsed + g.lapsed()
}
