package engine

import (
	"sync"
	"time"
)

// Clock is the rule by which a store's clock follows a machine's clock. Its
// time never goes back: where the machine's clock steps back, or a restart
// finds it behind the newest time in the store, the store's clock goes on from
// there at half speed until the machine's clock has caught up. So time always
// passes, durations are off by a factor of two at most, and a machine that was
// wrong for a moment is followed again soon.
//
// It is safe for concurrent use.
type Clock struct {
	source func() time.Time

	mu sync.Mutex
	// The following are protected by mu.

	// newest is the newest time given; nothing before it is given again.
	newest time.Time
	// behind says that the machine's clock was behind newest, and that the time
	// given is anchor plus half of what the machine's clock moved since it
	// showed machineAtAnchor.
	behind          bool
	anchor          time.Time
	machineAtAnchor time.Time
	// machine is what the machine's clock showed last, to notice that it steps
	// back once more while behind.
	machine time.Time
}

// NewClock returns a clock that gives no time before floor, the newest time
// found in the store (the zero time for an empty store). source is the
// machine's clock; nil is time.Now.
func NewClock(source func() time.Time, floor time.Time) *Clock {
	if source == nil {
		source = time.Now
	}
	c := &Clock{source: source, newest: wall(floor)}
	c.Now() // From here on the half speed counts, not from the first question.
	return c
}

// Now returns the store's time, in UTC and without a monotonic reading.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	machine := wall(c.source())
	stepped := machine.Before(c.newest)
	if c.behind {
		stepped = machine.Before(c.machine)
	}
	if stepped {
		c.behind = true
		c.anchor = c.newest
		c.machineAtAnchor = machine
	}
	c.machine = machine
	c.newest = machine
	if c.behind {
		slow := c.anchor.Add(machine.Sub(c.machineAtAnchor) / 2)
		c.behind = machine.Before(slow)
		if c.behind {
			c.newest = slow
		}
	}
	return c.newest
}

// wall drops the monotonic reading, which ignores the very steps that the
// clock is about.
func wall(t time.Time) time.Time { return t.Round(0).UTC() }
