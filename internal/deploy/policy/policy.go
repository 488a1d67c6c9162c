// Package policy decides what becomes of an event of a subscription: whether its
// sink is called, when it is tried again, and when it goes to the catch verb or
// is given up on. It is pure: no clock, no store, no runner.
//
// An event's attempts are its hand-outs that were not released. That is what
// the group's record counts, so an attempt that nobody lived to tell of, because
// the node that made it died, is counted by the next.
//
//	attempt   1 … n+1    the sink or mapper is called (n retries)
//	          n+2 …      the catch verb is, where there is one
//
// Where there is none, the event is given up on when attempt n+1 has failed; if
// nobody lived to say that it did, attempt n+2 finds it and gives it up.
package policy

import (
	"time"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// Action is what is done with an event.
type Action int

// What is done with an event.
const (
	// Call calls the sink or mapper.
	Call Action = iota
	// Catch calls the catch verb.
	Catch
	// Again hands the event back, to be handed out again after a delay.
	Again
	// GiveUp settles the event without success.
	GiveUp
)

// Start says what an event is handed out for at an attempt, counted from 1:
// Call, Catch or GiveUp.
func Start(retry schema.Retry, attempt int) Action {
	switch {
	case attempt <= retry.Attempts():
		return Call
	case retry.Catch != (schema.Ref{}):
		return Catch
	}
	return GiveUp
}

// Failed says what becomes of an event whose attempt failed: Again, after the
// delay, or GiveUp. What failed is the catch verb where Start said Catch; it is
// tried again for as long as it fails.
func Failed(retry schema.Retry, attempt int) (action Action, delay time.Duration) {
	caught := retry.Catch != (schema.Ref{})
	switch {
	case attempt < retry.Attempts():
		return Again, retry.Backoff(attempt)
	case attempt == retry.Attempts() && caught:
		// The catch verb's turn, at once.
		return Again, 0
	case caught:
		return Again, retry.MaxBackoff
	}
	return GiveUp, 0
}
