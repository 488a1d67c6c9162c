package topic

import (
	"github.com/tidwall/btree"

	"github.com/tidemarkdb/tidemark/fault"
)

// Change is what a command did to a group and what it answers. Computing it
// does not change the group; Apply does. The zero Change does nothing.
type Change struct {
	// Out are the messages that were handed out, in the order of the answer.
	Out []Delivery
	// GivenUp are the messages that were given up on; each is to be appended to
	// the group's dead letter topic in the same commit, or Refuse called.
	GivenUp []GiveUp
	// Lapsed is how many messages retention removed before they were handed
	// out, to be told in this answer.
	Lapsed uint64
	// Count is how many messages the command found and dealt with.
	Count int

	// Entries are the rows that change, one a position.
	Entries []Transition
	// ForgetTo is the position up to and with which all rows are removed, with
	// one range delete, before Entries are written. 0 for none, MaxPosition
	// for all.
	ForgetTo Position

	head headChange
}

// Delivery is one message handed out, for the nth time; Released of the times
// before do not count.
type Delivery struct {
	Position   Position
	Deliveries Deliveries
	Released   Deliveries
}

// GiveUp is a message that is given up on after it was handed out a number of
// times.
type GiveUp struct {
	Position   Position
	Deliveries Deliveries
	// Reason is what REJECT said, "" where DELIVERIES decided.
	Reason string
}

// Transition is how the entry of one position changes. An entry whose State is
// Settled is not there.
type Transition struct {
	Position      Position
	Before, After Entry
}

// headChange is what a command does to the head. Counters are what is added,
// so that commands which touch different messages add up.
type headChange struct {
	// epoch and position are those of the group that the command saw.
	epoch    uint64
	position Position
	// passed is how many messages up to ForgetTo the command saw that were
	// passed over and have lapsed.
	passed uint64

	// moved says that the position becomes movedTo.
	moved   bool
	movedTo Position
	// startsAt says that all entries are forgotten first, but for those before
	// first, which retention has removed.
	startsAt bool
	first    Position

	handedOut, redelivered, acknowledged, deadLettered, refused uint64
	reason                                                      string
}

// begin is a change of nothing, for a command on the group as it is.
func (g *Group) begin() Change {
	return Change{head: headChange{epoch: g.head.Epoch, position: g.head.Position}}
}

// Empty reports whether there is nothing to write. A READ that answers
// nothing, passes over nothing and gives nothing up writes nothing.
func (c Change) Empty() bool {
	return len(c.Entries) == 0 && !c.ChangesHead()
}

// ChangesHead reports whether the group's head is to be written.
func (c Change) ChangesHead() bool {
	h := c.head
	return h.moved || h.startsAt || c.Lapsed > 0 || c.ForgetTo > 0 ||
		h.handedOut|h.redelivered|h.acknowledged|h.deadLettered|h.refused != 0
}

// Refuse counts one message of GivenUp that the dead letter topic did not
// take, and says why. It is called before the change is applied.
func (c *Change) Refuse(reason string) {
	c.head.refused++
	c.head.reason = cutReason(reason)
}

// Check returns the error that Apply would return.
func (g *Group) Check(changes ...Change) error {
	switch len(changes) {
	case 0:
		return nil
	case 1:
		return g.check(&changes[0])
	}
	return g.Clone().applyAll(changes)
}

// Apply makes changes that follow on one another, all or none. It returns
// fault.Conflict when, since they were computed,
//
//   - START AT made the group forget what it held,
//   - a message that they touch was touched by another command,
//   - they hand out new messages, or tell of lapsed ones, and so did another,
//   - or what others handed out leaves no room for them within IN FLIGHT.
//
// Commands on different messages do not conflict. A message that retention
// removed meanwhile is still acknowledged or handed out by a change of before;
// it is settled all the same.
func (g *Group) Apply(changes ...Change) error {
	switch len(changes) {
	case 0:
		return nil
	case 1:
		if err := g.check(&changes[0]); err != nil {
			return err
		}
		g.apply(&changes[0])
		return nil
	}
	trial := g.Clone()
	if err := trial.applyAll(changes); err != nil {
		return err
	}
	*g = *trial
	return nil
}

func (g *Group) applyAll(changes []Change) error {
	for i := range changes {
		if err := g.check(&changes[i]); err != nil {
			return err
		}
		g.apply(&changes[i])
	}
	return nil
}

func (g *Group) check(c *Change) error {
	if c.Empty() {
		return nil
	}
	if c.head.epoch != g.head.Epoch {
		return conflict("START AT made the group forget what it held")
	}
	if c.head.startsAt {
		return nil
	}
	if c.head.moved && c.head.position != g.head.Position {
		return conflict("new messages were handed out from position %d, and the group is at %d now", c.head.position, g.head.Position)
	}
	if c.head.passed > 0 && c.head.passed != g.passedTo(c.ForgetTo) {
		return conflict("another read was told of messages that lapsed")
	}
	more := 0
	for i := range c.Entries {
		t := &c.Entries[i]
		if g.Entry(t.Position) != t.Before {
			return conflict("position %d was handed out or settled meanwhile", t.Position)
		}
		if t.Position < g.first {
			continue
		}
		if t.After.InFlight() {
			more++
		}
		if t.Before.InFlight() {
			more--
		}
	}
	if more > 0 {
		g.observe(c.ForgetTo + 1)
		if g.index.inFlight+more > g.definition.InFlight {
			return conflict("other members hold %d messages, which leaves no room for %d more within IN FLIGHT %d", g.index.inFlight, more, g.definition.InFlight)
		}
	}
	return nil
}

// passedTo counts the messages up to a position that were passed over.
func (g *Group) passedTo(to Position) (n uint64) {
	for p, e := range g.Entries() {
		if p > to {
			break
		}
		if e.State == Passed {
			n++
		}
	}
	return n
}

func conflict(format string, args ...any) error {
	return fault.New(fault.Conflict, "another member of the group was faster: "+format, args...)
}

// apply makes a change that check allowed.
func (g *Group) apply(c *Change) {
	if c.Empty() {
		return
	}
	h, by := &g.head, &c.head
	if by.startsAt {
		g.observe(by.first)
		g.startAt(by.movedTo)
		return
	}
	if c.ForgetTo > 0 {
		g.forget(c.ForgetTo)
	}
	if by.moved {
		g.unlook(by.movedTo)
		h.Position = by.movedTo
		g.lookedAt = max(g.lookedAt, h.Position)
	}
	for i := range c.Entries {
		g.put(c.Entries[i].Position, c.Entries[i].After)
	}
	h.Lapsed += c.Lapsed
	h.HandedOut += by.handedOut
	h.Redelivered += by.redelivered
	h.Acknowledged += by.acknowledged
	h.DeadLettered += by.deadLettered
	h.DeadLetterRefused += by.refused
	if by.refused > 0 {
		h.DeadLetterReason = by.reason
	}
}

// forget removes the stored entries of what retention removed.
func (g *Group) forget(to Position) {
	g.observe(to + 1)
	for {
		p, e, ok := g.entries.Min()
		if !ok || p > to || p > g.head.Position {
			return
		}
		if e.InFlight() {
			g.head.Removed++
		}
		g.countRemoved(e, -1)
		g.entries.Delete(p)
	}
}

// unlook drops what a keyed group knows, but has not stored, of the messages
// up to a position: the change that moves the group there brings their
// entries.
func (g *Group) unlook(to Position) {
	if g.definition.KeyedBy == "" {
		return
	}
	var looked []Position
	g.entries.Ascend(g.head.Position+1, func(p Position, _ Entry) bool {
		if p <= to {
			looked = append(looked, p)
		}
		return p <= to
	})
	for _, p := range looked {
		g.put(p, Entry{})
	}
}

// startAt forgets all entries.
func (g *Group) startAt(n Position) {
	g.head.Epoch++
	g.head.Removed += uint64(g.removedInFlight)
	g.head.Forgotten += uint64(g.index.inFlight)
	g.head.Position = n
	promoted := g.index.promoted
	g.entries, g.index = new(btree.Map[Position, Entry]), newIndex()
	g.index.promoted = promoted
	g.removedInFlight, g.removedPassed, g.lookedAt = 0, 0, n
}
