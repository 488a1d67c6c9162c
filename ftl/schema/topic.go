package schema

import "time"

// MaxParallel is how many events of a subscription may be with its sinks at
// once: what a group of the store takes in flight.
const MaxParallel = 10_000

// Topic is a topic of a module. Only its own module publishes to it.
type Topic struct {
	Name string
	// Event is the type of what is published.
	Event Type
	// Exported lets other modules subscribe.
	Exported bool
	// Retain is for how long events are kept, 0 for ever.
	Retain time.Duration
	// RetainBytes is how many bytes of events are kept, 0 for all.
	RetainBytes int64
}

// Subscription is a place in a topic, whose events go to its sinks or to its
// mapper.
type Subscription struct {
	Name string
	// Topic is a topic of the module, or an exported one of another.
	Topic Ref
	// FromLatest starts it at the topic's end when it is created; otherwise it
	// starts at the beginning.
	FromLatest bool
	// Parallel is how many events may be with its sinks at once, 0 and 1 for
	// one after the other in the topic's order; MaxParallel at most.
	Parallel int
}

// InFlight is how many events may be with the sinks at once, at least 1.
func (s *Subscription) InFlight() int { return max(s.Parallel, 1) }

func (t *Topic) declared() string        { return t.Name }
func (s *Subscription) declared() string { return s.Name }
