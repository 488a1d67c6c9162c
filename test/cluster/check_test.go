package cluster

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// state is what the store holds in the end, when the group has been drained.
type state struct {
	// events, ledger and payments are the messages in the order of their
	// positions, from 1.
	events, ledger []entry
	payments       []string
	// ring is what the topic that keeps little holds: the first and last position.
	ringFirst, ringLast uint64
	// counters are how far each transacting client is.
	counters map[string]int64
	// effects are how manieth each message was to billing, by position.
	effects map[uint64]uint64
	// done are the messages that were acknowledged in a transaction, dead how
	// many dead letters there are of a message.
	done map[uint64]bool
	dead map[uint64]int
	// places and totals are those of billing and ringer.
	places map[string]uint64
	totals map[string]total
	group  groupFigures
}

// groupFigures are what INFO says of the group.
type groupFigures struct {
	Committed    uint64 `json:"committed"`
	InFlight     uint64 `json:"in_flight"`
	Lag          uint64 `json:"lag"`
	DeadLettered uint64 `json:"dead_lettered"`
}

// checker compares what clients were told with what the store holds.
type checker struct {
	history    []operation
	state      state
	violations []string
}

// check returns what must not be, and nothing where all is well.
func check(history []operation, final state) []string {
	c := &checker{history: history, state: final}
	c.checkErrors()
	c.checkAppends()
	c.checkLooks()
	c.checkPayments()
	c.checkReaders()
	c.checkGroup()
	c.checkOrder()
	return c.violations
}

func (c *checker) violation(format string, args ...any) {
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

// checkErrors: clients are told of what is in the way, and of nothing that
// cannot be.
func (c *checker) checkErrors() {
	for _, o := range c.history {
		switch o.Kind {
		case "", "Conflict", "Unavailable", "Timeout", "Cancelled":
			if strings.Contains(o.Err, "lost commits") {
				c.violation("%s: %s", o.What, o.Err)
			}
		case "NotFound":
			if o.What != defines { // Two incarnations of a worker may meet at a name.
				c.violation("%s: %s", o.What, o.Err)
			}
		default:
			c.violation("%s: %s", o.What, o.Err)
		}
	}
}

// at is the message of a position.
func at(messages []entry, position uint64) entry {
	if position == 0 || position > uint64(len(messages)) {
		return entry{}
	}
	return messages[position-1]
}

// positionsOf are the positions of each message.
func positionsOf(messages []entry) map[entry][]uint64 {
	positions := map[entry][]uint64{}
	for i, e := range messages {
		positions[e] = append(positions[e], uint64(i+1))
	}
	return positions
}

// checkAppends: what was acknowledged is where it was said to be, once; what
// was not is there whole or not at all.
func (c *checker) checkAppends() {
	events, ledger := positionsOf(c.state.events), positionsOf(c.state.ledger)
	newest := map[string]int64{}
	known := map[entry]bool{}
	for _, o := range c.history {
		e := entry{o.By, o.N}
		copies := map[action]int{appends: 1, transacts: 2}[o.What]
		if copies == 0 {
			continue
		}
		known[e] = true
		p := events[e]
		switch {
		case len(p) != 0 && len(p) != copies:
			c.violation("%v is in events at %v, and was appended %d times", e, p, copies)
		case len(p) == 2 && p[1] != p[0]+1:
			c.violation("the transaction %v is at %v: not side by side", e, p)
		case o.undone() && len(p) != 0:
			c.violation("%v lost, and is at %v", e, p)
		case o.certain() && (at(c.state.events, o.First) != e || at(c.state.events, o.Last) != e):
			c.violation("%v was acknowledged at %d and %d, and is at %v", e, o.First, o.Last, p)
		}
		if o.What != transacts {
			continue
		}
		if len(ledger[e]) != len(p)/2 {
			c.violation("of the transaction %v there are %d messages in events and %d in ledger", e, len(p), len(ledger[e]))
		}
		if o.certain() && at(c.state.ledger, o.Ledger) != e {
			c.violation("%v was acknowledged at %d of ledger, and is at %v", e, o.Ledger, ledger[e])
		}
		if len(p) > 0 {
			newest[o.By] = max(newest[o.By], o.N)
		}
	}
	for e := range events {
		if !known[e] {
			c.violation("nobody appended %v, which is in events", e)
		}
	}
	for by, n := range newest {
		if c.state.counters[by] != n {
			c.violation("the record of %s says %d, and its newest transaction is %d", by, c.state.counters[by], n)
		}
	}
}

// checkLooks: a read without a name sees the messages that there are, from
// where it began.
func (c *checker) checkLooks() {
	for _, o := range c.history {
		if o.What == looks && o.certain() && o.Count > 0 && at(c.state.events, o.Last) != (entry{o.By, o.N}) {
			c.violation("a read saw %s %d at %d, where %v is", o.By, o.N, o.Last, at(c.state.events, o.Last))
		}
	}
}

// checkPayments: every payment is there once, however many appended it.
func (c *checker) checkPayments() {
	places := map[string]uint64{}
	for i, key := range c.state.payments {
		if places[key] != 0 {
			c.violation("%s is in payments twice", key)
		}
		places[key] = uint64(i + 1)
	}
	for _, o := range c.history {
		if o.What != pays || !o.certain() {
			continue
		}
		if p := places[o.By]; p == 0 || o.Count == 1 && p != o.First {
			c.violation("%s was acknowledged (appended: %d, at %d), and is at %d", o.By, o.Count, o.First, p)
		}
	}
}

// checkReaders: each message had its effect once and in order, and what was
// answered and what lapsed add up.
func (c *checker) checkReaders() {
	place := c.state.places["billing"]
	for p := uint64(1); p <= place; p++ {
		if c.state.effects[p] != p {
			c.violation("message %d had its effect as number %d", p, c.state.effects[p])
		}
	}
	if uint64(len(c.state.effects)) != place || c.state.totals["billing"].Count != place {
		c.violation("billing is at %d, with %d effects and a total of %d", place, len(c.state.effects), c.state.totals["billing"].Count)
	}
	for _, o := range c.history {
		switch {
		case o.What == consumes && o.certain() && o.Last > place:
			c.violation("billing was acknowledged at %d and is at %d", o.Last, place)
		case o.What == rings && o.certain() && o.Last > c.state.ringLast:
			c.violation("ring was acknowledged at %d and ends at %d", o.Last, c.state.ringLast)
		}
	}
	if sum := c.state.totals["ringer"]; sum.Count+sum.Lapsed != c.state.places["ringer"] {
		c.violation("ringer is at %d, with %d answered and %d lapsed", c.state.places["ringer"], sum.Count, sum.Lapsed)
	}
}

// checkGroup: nothing that was settled is handed out again or settled again,
// nothing is lost, and never more is out than may be.
func (c *checker) checkGroup() {
	settled := map[uint64]int64{} // When the client was told.
	perhaps := map[uint64]bool{}  // Settled, if what was not answered was done.
	handed := map[taken]bool{}
	settle := func(p uint64, o operation) {
		if settled[p] != 0 {
			c.violation("message %d was settled twice", p)
		}
		settled[p] = o.Return
	}
	for _, o := range c.history {
		switch o.What {
		case takes, works:
			if !o.certain() {
				continue
			}
			for _, m := range o.Taken {
				if handed[m] {
					c.violation("delivery %d of message %d was handed out twice", m.Deliveries, m.Position)
				}
				handed[m] = true
				if o.What == works {
					settle(m.Position, o)
					if !c.state.done[m.Position] {
						c.violation("message %d was acknowledged with its effect, which is lost", m.Position)
					}
				}
			}
		case acknowledge, rejects:
			p := o.Taken[0].Position
			switch {
			case o.certain() && o.Count == 1:
				settle(p, o)
				if dead := c.state.dead[p] > 0; dead != (o.What == rejects) {
					c.violation("message %d: %s was answered, and that it is a dead letter is %v", p, o.What, dead)
				}
			case !o.certain():
				perhaps[p] = true
			}
		case informs:
			if o.Count > inFlight {
				c.violation("%d messages were in flight, of %d that may be", o.Count, inFlight)
			}
		}
	}
	for _, o := range c.history {
		for _, m := range o.Taken {
			if at := settled[m.Position]; (o.What == takes || o.What == works) && o.certain() && at != 0 && o.Call > at {
				c.violation("message %d was settled and handed out again later", m.Position)
			}
		}
	}
	letters := uint64(0)
	for p, n := range c.state.dead {
		letters += uint64(n)
		if n > 1 || c.state.done[p] {
			c.violation("message %d has %d dead letters, and that it was acknowledged in a transaction is %v", p, n, c.state.done[p])
		}
	}
	last := uint64(len(c.state.events))
	for p := uint64(1); p <= last; p++ {
		if settled[p] == 0 && !perhaps[p] && !c.state.done[p] && c.state.dead[p] == 0 {
			c.violation("message %d is lost: it was neither settled nor handed out in the end", p)
		}
	}
	if want := (groupFigures{Committed: last, DeadLettered: letters}); c.state.group != want {
		c.violation("the group's figures are %+v, want %+v", c.state.group, want)
	}
}

// orderInput is an append of so many messages to events, or a read to the end
// after a position; part says that a read ended before the end, at its limit.
type orderInput struct {
	appended, after uint64
	part            bool
}

// order is a topic as a register: its last position. The output of an append is
// the position after which it came, that of a read the one to which it read.
var orderModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		last, in, out := state.(uint64), input.(orderInput), output.(uint64)
		switch {
		case in.appended > 0:
			return out == last, last + in.appended
		case in.part:
			return out <= last, last
		}
		return out == max(last, in.after), last
	},
}

// checkFor bounds the search for an order, which takes seconds.
const checkFor = time.Minute

// checkOrder: there is one order of all appends to events and all reads of it
// that explains what every client was told, in which none comes before another
// that had been answered before it began. What was not answered took place at
// any time after it began, if its messages are there.
func (c *checker) checkOrder() {
	events := positionsOf(c.state.events)
	var operations []porcupine.Operation
	for i, o := range c.history {
		operation := porcupine.Operation{ClientId: i, Call: o.Call, Return: o.Return}
		switch o.What {
		case appends, transacts:
			p := events[entry{o.By, o.N}]
			if len(p) == 0 {
				continue
			}
			if !o.certain() {
				operation.Return = math.MaxInt64
			}
			operation.Input, operation.Output = orderInput{appended: uint64(len(p))}, p[0]-1
		case looks:
			if !o.certain() {
				continue
			}
			operation.Input, operation.Output = orderInput{after: o.First, part: o.Count == lookLimit}, o.Last
		default:
			continue
		}
		operations = append(operations, operation)
	}
	if result := porcupine.CheckOperationsTimeout(orderModel, operations, checkFor); result != porcupine.Ok {
		c.violation("no order of %d appends and reads explains what the clients were told: %s", len(operations), result)
	}
}
