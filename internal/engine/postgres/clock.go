package postgres

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// clock applies the rule of engine.Clock to readings of PostgreSQL's clock and
// to floors, the times of commits of any process. Readings of several
// connections may come in another order than they were made; the rule makes of
// such a step back of microseconds as much of slowness.
type clock struct {
	mu sync.Mutex
	// The following are protected by mu.
	reading time.Time
	rule    *engine.Clock
}

// at returns the store's time for a reading of the machine's clock: not before
// the floor, nor before any time that this process was given. It is a whole
// number of microseconds, which is what PostgreSQL keeps of a time.
func (c *clock) at(machine, floor time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = machine
	if c.rule == nil {
		c.rule = engine.NewClock(c.read, floor)
	}
	now := c.rule.Now()
	if now.Before(floor) {
		// Another process went on from a later time: so does this one.
		c.rule = engine.NewClock(c.read, floor)
		now = c.rule.Now()
	}
	return ceilMicrosecond(now)
}

// read is the machine's clock to the rule, and called with mu held.
func (c *clock) read() time.Time { return c.reading }

func ceilMicrosecond(t time.Time) time.Time {
	if floor := t.Truncate(time.Microsecond); floor.Before(t) {
		return floor.Add(time.Microsecond)
	}
	return t
}
