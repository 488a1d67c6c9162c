package topic

import (
	"container/heap"
	"slices"
	"time"
)

// MaxGivenUp is how many messages one hand-out gives up on at most, since each
// may be appended to a dead letter topic in the same commit. The next hand-out
// goes on from there.
const MaxGivenUp = 1000

// MaxLookahead is how many messages past its lowest unsettled one a keyed
// group looks at, to find those whose keys are free.
const MaxLookahead = 10_000

// HandOut hands out up to limit messages: those that are due, lowest position
// first, and then new ones as far as IN FLIGHT leaves room. In a keyed group
// both are taken in order of position among those whose key has no earlier
// message that is not settled.
//
// A message that is due and was handed out as often as DELIVERIES allows is
// given up on instead, which does not use up the limit, and leaves its room to
// others of the same hand-out.
func (g *Group) HandOut(v View, limit int) Change {
	if g.definition.Paused || limit < 1 {
		return Change{}
	}
	g.observe(v.First)
	g.promote(v.Now)
	h := &handOut{
		group: g, view: v, limit: limit, change: g.begin(),
		now:      v.Now.UnixNano(),
		deadline: instant(v.Now.Add(g.definition.AckDeadline)),
		room:     g.definition.InFlight - g.index.inFlight,
		position: g.head.Position,
	}
	h.known()
	if g.definition.KeyedBy == "" {
		h.new()
	} else {
		h.newKeyed()
		h.keepPassed()
	}
	return h.finish()
}

// instant is a time as entries keep it.
func instant(t time.Time) time.Time { return time.Unix(0, t.UnixNano()).UTC() }

// handOut is one hand-out being computed.
type handOut struct {
	group    *Group
	view     View
	limit    int
	change   Change
	now      int64
	deadline time.Time

	// room is how many messages IN FLIGHT still admits; negative when the
	// group was narrowed and has to empty first.
	room int
	// position is the highest that was handed out.
	position Position
	// ended says that the answer is full, or what is given up on is.
	ended bool

	// Of a keyed group: the positions given up on here, and those that this
	// let go first of their keys.
	givenUp map[Position]struct{}
	freed   positions
}

// known takes the messages that the group knows: due ones, and those of a
// keyed group that were passed over before. The group does not change
// meanwhile, so both are walked in order; what is freed on the way lies after
// the message that freed it.
func (h *handOut) known() {
	due, open := h.group.index.due.Iter(), h.group.index.open.Iter()
	moreDue, moreOpen := due.First(), open.First()
	for !h.full() {
		const none = MaxPosition + 1
		nextDue, nextOpen, nextFreed := none, none, none
		if moreDue {
			nextDue = due.Key()
		}
		if h.room > 0 && moreOpen {
			nextOpen = open.Key()
		}
		if h.room > 0 && len(h.freed) > 0 {
			nextFreed = h.freed[0]
		}
		p := min(nextDue, nextOpen, nextFreed)
		switch p {
		case none:
			return
		case nextDue:
			moreDue = due.Next()
		case nextOpen:
			moreOpen = open.Next()
		case nextFreed:
			heap.Pop(&h.freed)
		}
		h.take(p, h.group.entry(p))
	}
}

func (h *handOut) full() bool { return h.ended || len(h.change.Out) >= h.limit }

// new takes new messages of a group without keys.
func (h *handOut) new() {
	for p := h.group.nextNew(); p <= h.view.Last && h.room > 0 && !h.full(); p++ {
		h.take(p, Entry{})
	}
}

// newKeyed looks for messages further on whose keys are free.
func (h *handOut) newKeyed() {
	g := h.group
	lowest, found := h.lowestUnsettled()
	for h.room > 0 && !h.full() {
		if !found {
			lowest, found = g.nextNew(), true
		}
		p, e, ok := g.lookAt(h.view, lowest)
		if !ok {
			return
		}
		if e.Key != "" {
			if earlier, waits := g.earlierOfKey(p, e.Key); waits && !h.gaveUp(earlier) {
				continue
			}
		}
		h.take(p, e)
	}
}

func (h *handOut) gaveUp(p Position) bool {
	_, ok := h.givenUp[p]
	return ok
}

// lowestUnsettled is the group's, after what was given up on here.
func (h *handOut) lowestUnsettled() (lowest Position, found bool) {
	h.group.entries.Ascend(h.group.first, func(p Position, _ Entry) bool {
		lowest, found = p, !h.gaveUp(p)
		return !found
	})
	return lowest, found
}

// lookAt learns the key of the next message that the group does not know, and
// keeps it until the message is handed out. ok is false where there is none,
// or none near enough to the lowest one that is not settled.
func (g *Group) lookAt(v View, lowest Position) (p Position, e Entry, ok bool) {
	p = g.nextNew()
	if p > v.Last || p > lowest+MaxLookahead {
		return 0, Entry{}, false
	}
	e = Entry{State: Passed}
	if v.Key != nil {
		if key, has := v.Key(p); has {
			e.Key = string(shortKey(0, key))
		}
	}
	g.lookedAt = p
	g.put(p, e)
	return p, e, true
}

// take hands a message out, or gives it up.
func (h *handOut) take(p Position, e Entry) {
	if !e.InFlight() {
		if h.answer(p, e) {
			h.change.head.handedOut++
			h.room--
			h.position = max(h.position, p)
		}
		return
	}
	switch {
	case h.group.dueTime(e) > h.now:
	case h.group.definition.exhausted(e):
		h.giveUp(p, e)
	case h.answer(p, e):
		h.change.head.redelivered++
	}
}

// answer adds a message to the answer, if it has room.
func (h *handOut) answer(p Position, before Entry) bool {
	if len(h.change.Out) > 0 && h.view.Fits != nil && !h.view.Fits(p) {
		h.ended = true
		return false
	}
	after := Entry{
		State:      Out,
		Deliveries: before.Deliveries.add(),
		Released:   before.Released,
		Due:        h.deadline,
		Key:        before.Key,
	}
	if p > h.group.head.Position {
		// What the group only looked at is not stored.
		before = Entry{}
	}
	h.change.Entries = append(h.change.Entries, Transition{p, before, after})
	h.change.Out = append(h.change.Out, Delivery{p, after.Deliveries, after.Released})
	return true
}

func (h *handOut) giveUp(p Position, e Entry) {
	c := &h.change
	if len(c.GivenUp) >= MaxGivenUp || len(c.GivenUp) > 0 && h.view.FitsDeadLetter != nil && !h.view.FitsDeadLetter(p) {
		h.ended = true
		return
	}
	c.giveUp(p, e, "")
	h.room++
	if h.group.definition.KeyedBy == "" {
		return
	}
	if h.givenUp == nil {
		h.givenUp = map[Position]struct{}{}
	}
	h.givenUp[p] = struct{}{}
	if e.Key != "" {
		if next, ok := h.group.laterOfKey(p, e.Key); ok {
			heap.Push(&h.freed, next)
		}
	}
}

// giveUp settles a message without an acknowledgement.
func (c *Change) giveUp(p Position, e Entry, reason string) {
	c.Entries = append(c.Entries, Transition{Position: p, Before: e})
	c.GivenUp = append(c.GivenUp, GiveUp{p, e.Deliveries, reason})
	c.head.deadLettered++
}

// keepPassed stores the messages that were passed over: they lie below the
// group's position now, and would else be taken for settled.
func (h *handOut) keepPassed() {
	g := h.group
	if h.position <= g.head.Position {
		return
	}
	taken := make(map[Position]struct{}, len(h.change.Out))
	for _, out := range h.change.Out {
		taken[out.Position] = struct{}{}
	}
	g.entries.Ascend(max(g.head.Position+1, g.first), func(p Position, e Entry) bool {
		if p >= h.position {
			return false
		}
		if _, ok := taken[p]; !ok {
			h.change.Entries = append(h.change.Entries, Transition{Position: p, After: e})
		}
		return true
	})
	slices.SortFunc(h.change.Entries, func(a, b Transition) int {
		if a.Position < b.Position {
			return -1
		}
		return 1
	})
}

// finish tells of what lapsed and moves the group.
func (h *handOut) finish() Change {
	g, c := h.group, h.change
	c.Lapsed = g.lapsed()
	h.position = max(h.position, g.first-1)
	if len(c.Entries) == 0 && c.Lapsed == 0 {
		return Change{}
	}
	if h.position > g.head.Position {
		c.head.moved, c.head.movedTo = true, h.position
	}
	if g.removedInFlight > 0 || g.removedPassed > 0 {
		c.ForgetTo, c.head.passed = g.first-1, g.removedPassed
	}
	return c
}

// positions is a heap of positions, the lowest first.
type positions []Position

func (p positions) Len() int           { return len(p) }
func (p positions) Less(i, j int) bool { return p[i] < p[j] }
func (p positions) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *positions) Push(x any)        { *p = append(*p, x.(Position)) }
func (p *positions) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	*p = (*p)[:last]
	return x
}
