package ftltest

import (
	"context"
	"fmt"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/ftl"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
	"github.com/tidemarkdb/tidemark/ftl/internal/event"
	"github.com/tidemarkdb/tidemark/value"
)

// The bounds of one WaitForSubscriptionsToComplete: a test that goes past them
// has verbs that never come to an end.
const (
	// MaxAttempts is how many attempts it makes, of all subscriptions together.
	MaxAttempts = 10_000
	// MaxTime is how far it moves the test's clock.
	MaxTime = 366 * 24 * time.Hour
)

// WaitForSubscriptionsToComplete handles the events of all subscriptions that
// something runs for, until each has handled all of its topic: what is to be
// retried is retried when the test's clock has come to it, and what sinks and
// mappers publish is handled, too. The test fails where that does not come to an
// end.
func WaitForSubscriptionsToComplete(ctx context.Context) {
	m := of(ctx)
	m.t.Helper()
	if err := m.complete(ctx); err != nil {
		m.t.Fatalf("ftltest: %v", err)
	}
}

func (m *module) complete(ctx context.Context) error {
	end := m.clock.now().Add(MaxTime)
	for attempts := 0; ; {
		handled := 0
		for _, s := range m.subscriptions {
			count, err := s.step(ctx)
			if err != nil {
				return err
			}
			handled += count
		}
		if attempts += handled; attempts > MaxAttempts {
			return m.endless("after %d attempts", MaxAttempts)
		}
		if handled > 0 {
			continue
		}
		due, waits := m.next()
		if !waits {
			return nil
		}
		if due.After(end) {
			return m.endless("after a year of the test's clock")
		}
		m.clock.advanceTo(due)
	}
}

// endless is the error of verbs that never come to an end, with what they fail
// with.
func (m *module) endless(format string, args ...any) error {
	told := fmt.Errorf("the subscriptions do not complete "+format+": a catch verb that always fails, or topics that feed one another?", args...)
	for _, s := range m.subscriptions {
		if err := s.lastError(); err != nil {
			told = fmt.Errorf("%w\n%s last failed with: %w", told, s.group, err)
		}
	}
	return told
}

// next is when the first event that waits for another attempt is due.
func (m *module) next() (at time.Time, waits bool) {
	for _, s := range m.subscriptions {
		if due, ok := s.next(); ok && (!waits || due.Before(at)) {
			at, waits = due, true
		}
	}
	return at, waits
}

// Result is one attempt at an event.
type Result[E any] struct {
	// Event is the event.
	Event E
	// Verb is the sink, mapper or catch verb that was called.
	Verb string
	// Attempt counts the verb's attempts at the event, from 1.
	Attempt int
	// Err is what it returned. A panic is an error, too.
	Err error
	// At is when it ended, by the test's clock.
	At time.Time
}

// ResultsForSubscription returns the attempts that were made for a subscription,
// in the order in which they ended.
func ResultsForSubscription[E any](ctx context.Context, s *ftl.Subscription[E]) []Result[E] {
	m := of(ctx)
	m.t.Helper()
	running := m.subscription(s.Declaration())
	if running == nil {
		m.t.Fatalf("ftltest: nothing runs for the subscription %s: add ftltest.WithSubscriber to the test's context", s.Name())
	}
	running.mu.Lock()
	defer running.mu.Unlock()
	var results []Result[E]
	for _, o := range running.outcomes {
		results = append(results, Result[E]{Event: decode[E](m, o.event), Verb: o.verb, Attempt: o.attempt, Err: o.err, At: o.at})
	}
	return results
}

// ErrorsForSubscription returns what attempts failed with, in the order in which
// they ended; nil where none failed.
func ErrorsForSubscription[E any](ctx context.Context, s *ftl.Subscription[E]) []error {
	of(ctx).t.Helper()
	var errs []error
	for _, result := range ResultsForSubscription(ctx, s) {
		if result.Err != nil {
			errs = append(errs, result.Err)
		}
	}
	return errs
}

// EventsForTopic returns all events that were published to a topic, in order.
func EventsForTopic[E any](ctx context.Context, t *ftl.Topic[E]) []E {
	m := of(ctx)
	m.t.Helper()
	values, err := m.events(ctx, t.Declaration())
	if err != nil {
		m.t.Fatalf("ftltest: %v", err)
	}
	var events []E
	for _, v := range values {
		events = append(events, decode[E](m, v))
	}
	return events
}

// events are all that a topic holds.
func (m *module) events(ctx context.Context, t call.Topic) (events []value.Value, err error) {
	topic, err := m.StoreTopic(ctx, t)
	if err != nil {
		return nil, err
	}
	var after uint64
	for {
		page, err := m.database.Topic(topic).Read(ctx, client.ReadOptions{After: after, Limit: 1000})
		if err != nil || len(page.Messages) == 0 {
			return events, err
		}
		for _, message := range page.Messages {
			v, err := message.Value()
			if err != nil {
				return nil, err
			}
			events, after = append(events, v), message.Position()
		}
	}
}

func decode[E any](m *module, v value.Value) (e E) {
	m.t.Helper()
	if err := event.Decode(v, &e); err != nil {
		m.t.Fatalf("ftltest: %v", err)
	}
	return e
}
