package topic

import (
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// Settle names a message in ACK, NACK, EXTEND, REJECT and RELEASE: AT Position
// [DELIVERY Delivery].
type Settle struct {
	Position Position
	// Delivery, unless it is 0, is what the message's deliveries must be, so
	// that a worker which was too late does not settle what another holds.
	Delivery Deliveries
}

// Acknowledge settles messages that are in flight: they are never handed out
// again. One whose deadline passed counts while nobody was given it again, and
// so does one that was returned.
func (g *Group) Acknowledge(v View, at []Settle) Change {
	c := g.begin()
	g.each(v, at, func(p Position, e Entry) bool {
		c.Entries = append(c.Entries, Transition{Position: p, Before: e})
		c.head.acknowledged++
		return true
	}, &c)
	return c
}

// Return hands messages that are in flight back, as NACK does. They are due
// after the delay, or where it is nil after the group's BACKOFF; a message
// that was returned already waits anew. The delay counts as CheckDelay allows
// it.
func (g *Group) Return(v View, at []Settle, delay *time.Duration) Change {
	c := g.begin()
	g.each(v, at, func(p Position, e Entry) bool {
		wait := g.definition.backoff(e.counted())
		if delay != nil {
			wait = *delay
		}
		after := e
		after.State, after.Due = Returned, after.due(v.Now, wait)
		c.Entries = append(c.Entries, Transition{p, e, after})
		return true
	}, &c)
	return c
}

// Extend gives messages that are out with a worker a new deadline: by from
// now, or the group's own where by is 0. One whose deadline has passed counts
// while nobody was given it again; one that was returned does not count, since
// no worker has it.
func (g *Group) Extend(v View, at []Settle, by time.Duration) Change {
	if by == 0 {
		by = g.definition.AckDeadline
	}
	c := g.begin()
	g.each(v, at, func(p Position, e Entry) bool {
		if e.State != Out {
			return false
		}
		after := e
		after.Due = after.due(v.Now, by)
		c.Entries = append(c.Entries, Transition{p, e, after})
		return true
	}, &c)
	return c
}

// Reject gives messages that are in flight up now, as DELIVERIES would.
func (g *Group) Reject(v View, at []Settle, reason string) Change {
	c := g.begin()
	g.each(v, at, func(p Position, e Entry) bool {
		c.giveUp(p, e, reason)
		return true
	}, &c)
	return c
}

// Release hands messages that are out with a worker back at once. This
// hand-out stays counted in their deliveries, but not against DELIVERIES and
// BACKOFF. One that was returned does not count: its hand-out ended then.
func (g *Group) Release(v View, at []Settle) Change {
	c := g.begin()
	g.each(v, at, func(p Position, e Entry) bool {
		if e.State != Out {
			return false
		}
		after := e
		after.State, after.Due = Returned, after.due(v.Now, 0)
		after.Released = after.Released.add()
		c.Entries = append(c.Entries, Transition{p, e, after})
		return true
	}, &c)
	return c
}

// due is a time after now, within what can be stored.
func (e Entry) due(now time.Time, wait time.Duration) time.Time {
	return instant(now.Add(min(max(wait, 0), MaxDuration)))
}

// each calls settle for the messages that are in flight, each once however
// often it is named, and counts those for which it returns true; settle has
// then added their transition.
func (g *Group) each(v View, at []Settle, settle func(Position, Entry) bool, c *Change) {
	g.observe(v.First)
	c.Entries = make([]Transition, 0, len(at))
	var highest Position
	var done map[Position]struct{}
	for _, s := range at {
		if s.Position < g.first || s.Position > g.head.Position {
			continue
		}
		// Ascending positions, the usual case, cannot name one twice.
		if done == nil && s.Position <= highest {
			done = make(map[Position]struct{}, len(at))
			for _, earlier := range c.Entries {
				done[earlier.Position] = struct{}{}
			}
		}
		highest = max(highest, s.Position)
		if _, twice := done[s.Position]; twice {
			continue
		}
		e := g.entry(s.Position)
		if !e.InFlight() || s.Delivery != 0 && s.Delivery != e.Deliveries {
			continue
		}
		if !settle(s.Position, e) {
			continue
		}
		c.Count++
		if done != nil {
			done[s.Position] = struct{}{}
		}
	}
}

// StartAt makes the group hand out position n + 1 next and forget what it
// holds. It does not depend on what others changed since, but for another
// START AT.
func (g *Group) StartAt(v View, n Position) Change {
	g.observe(v.First)
	c := g.begin()
	c.head.startsAt, c.head.moved, c.head.movedTo, c.head.first = true, true, n, g.first
	c.ForgetTo = MaxPosition
	return c
}

// CheckStartAt returns fault.InvalidClause for a position that the topic has
// not given.
func CheckStartAt(topicName, group string, n, last Position) error {
	if n > last {
		return fault.New(fault.InvalidClause, "START AT %d of group '%s' is past %d, the last position of topic %s", n, group, last, topicName)
	}
	return nil
}
