package ftltest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
	"github.com/tidemarkdb/tidemark/ftl/internal/event"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/deploy/policy"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/value"
)

// handler is a sink, a mapper or a catch verb.
type handler struct {
	function call.Function
	run      func(ctx context.Context, v value.Value) (value.Value, error)
	// to takes what a mapper returns, nil for a sink.
	to *call.Topic

	retry schema.Retry
	// deadLetter is the store's topic that takes what was given up on, "" for
	// none.
	deadLetter string
}

// subscription is one that something runs for: a group of the store, as in
// production.
type subscription struct {
	module   *module
	declared call.Subscription
	handlers []handler
	// topic and group are the names in the store.
	topic, group string
	parallel     int

	mu sync.Mutex
	// The following are protected by mu. outcomes are the attempts so far, by
	// the order in which they ended; waiting is until when an event waits, by
	// its position, and failed what it last failed with.
	outcomes []outcome
	waiting  map[uint64]time.Time
	failed   map[uint64]string
}

// outcome is one attempt.
type outcome struct {
	event   value.Value
	verb    string
	attempt int
	err     error
	at      time.Time
}

// provision makes the topic and the group.
func (s *subscription) provision(ctx context.Context) (err error) {
	m := s.module
	s.waiting, s.failed = map[uint64]time.Time{}, map[uint64]string{}
	s.parallel = max(s.declared.Parallel, 1)
	s.group = ftlwire.StoreGroup(m.ModuleOf(s.declared.Place), s.declared.Name)
	if s.topic, err = m.StoreTopic(ctx, s.declared.Topic); err != nil {
		return err
	}
	for n := range s.handlers {
		if err := s.handlers[n].readDirectives(ctx, m); err != nil {
			return err
		}
	}
	define := fmt.Sprintf("DEFINE GROUP $group ON TOPIC %s ACK DEADLINE 30s IN FLIGHT %d", value.QuoteIdentifier(s.topic), s.parallel)
	_, err = m.database.Exec(ctx, define, client.Params{"group": s.group})
	return err
}

// step handles what the subscription has due, as much as it takes at once, and
// reports how many events that were.
func (s *subscription) step(ctx context.Context) (count int, err error) {
	page, err := s.module.database.Topic(s.topic).Group(s.group).Read(ctx, s.parallel, 0)
	if err != nil {
		return 0, err
	}
	errs := make([]error, len(page.Messages))
	var handling sync.WaitGroup
	for n, message := range page.Messages {
		handling.Go(func() { errs[n] = s.handle(ctx, message) })
	}
	handling.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return len(page.Messages), nil
}

// handle makes one attempt at an event. Its error is the test's: the store did
// not do as it was told.
func (s *subscription) handle(ctx context.Context, message client.Message) error {
	v, err := message.Value()
	if err != nil {
		return err
	}
	h := s.handlers[message.Position()%uint64(len(s.handlers))]
	attempt := int(message.Deliveries())
	retry, start := h.retry, policy.Start(h.retry, attempt)
	request, attemptOf := v, attempt
	if start == policy.Catch {
		request, err = event.Encode(ftl.CatchRequest[value.Value]{
			Verb: s.module.ModuleOf(h.function.Place) + "." + h.function.Verb(), RequestType: s.requestType(),
			Request: v, Error: s.failedWith(message), Attempts: retry.Attempts(),
		})
		if err != nil {
			return err
		}
		h, attemptOf = s.module.catches[retry.Catch.String()], attempt-retry.Attempts()
	}
	failed := s.call(ctx, h, message, request, attemptOf)
	s.note(message, outcome{event: v, verb: h.function.Verb(), attempt: attemptOf, err: failed, at: s.module.clock.now()})
	if failed == nil {
		return nil
	}
	if start != policy.Catch {
		s.remember(message, failed)
	}
	action, delay := policy.Failed(retry, attempt)
	if action == policy.GiveUp {
		return s.giveUp(ctx, h, message, v)
	}
	s.wait(message, delay)
	return s.settle(ctx, message, "NACK", " DELAY "+value.Duration(delay).String())
}

// call runs a verb as the runner does, and acknowledges the event: in the verb's
// transaction where it has one, and together with what a mapper returned.
func (s *subscription) call(ctx context.Context, h handler, message client.Message, request value.Value, attempt int) (err error) {
	m := s.module
	headers := message.Headers()
	c := &call.Call{
		Module: m.ModuleOf(h.function.Place), Verb: h.function.Verb(), Attempt: attempt, Surroundings: m,
		Caller: headers[call.HeaderCaller], Request: headers[call.HeaderRequest],
	}
	ctx, end := c.StartSpan(ctx, headers, trace.SpanKindConsumer)
	defer func() { end(err) }()
	finish := func(ctx context.Context, tx *client.Tx, result value.Value) error {
		if h.to != nil {
			to, err := m.StoreTopic(ctx, *h.to)
			if err != nil {
				return err
			}
			if err := tx.Append(ctx, to, result); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, s.settlement(message, "ACK", ""), client.Params{"group": s.group})
		return err
	}
	result, settled, err := call.Run(ctx, c, func(ctx context.Context) (value.Value, error) { return h.run(ctx, request) }, finish)
	if err != nil || settled {
		return err
	}
	ctx = client.WithHeaders(ctx, c.Headers(ctx))
	return m.database.Transact(ctx, func(tx *client.Tx) error { return finish(ctx, tx, result) })
}

// giveUp settles an event without success.
func (s *subscription) giveUp(ctx context.Context, h handler, message client.Message, v value.Value) error {
	if h.deadLetter == "" {
		return s.settle(ctx, message, "REJECT", "")
	}
	return s.module.database.Transact(ctx, func(tx *client.Tx) error {
		if err := tx.Append(client.WithHeaders(ctx, message.Headers()), h.deadLetter, v); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.settlement(message, "REJECT", ""), client.Params{"group": s.group})
		return err
	})
}

func (s *subscription) settle(ctx context.Context, message client.Message, verb, clause string) error {
	answers, err := s.module.database.Exec(ctx, s.settlement(message, verb, clause), client.Params{"group": s.group})
	if err != nil {
		return err
	}
	if count, _ := answers[0].Value.AsInt(); count != 1 {
		return fault.New(fault.Internal, "the event at %d of %s was not held when it was settled", message.Position(), s.topic)
	}
	return nil
}

// settlement is a statement that settles one hand-out of an event.
func (s *subscription) settlement(message client.Message, verb, clause string) string {
	return fmt.Sprintf("%s %s FOR CONSUMER $group AT %d DELIVERY %d%s", verb, value.QuoteIdentifier(s.topic), message.Position(), message.Deliveries(), clause)
}

// requestType is how the schema calls the events' type.
func (s *subscription) requestType() string {
	topic := s.declared.Topic
	return schema.Ref{Module: s.module.ModuleOf(topic.Place), Name: topic.Event.Name()}.String()
}

func (s *subscription) note(message client.Message, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes = append(s.outcomes, o)
	delete(s.waiting, message.Position())
}

func (s *subscription) wait(message client.Message, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[message.Position()] = s.module.clock.now().Add(delay)
}

func (s *subscription) remember(message client.Message, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[message.Position()] = err.Error()
}

func (s *subscription) failedWith(message client.Message) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[message.Position()]
}

// next is when the first of the events that wait for another attempt is due.
func (s *subscription) next() (at time.Time, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, due := range s.waiting {
		if !waits || due.Before(at) {
			at, waits = due, true
		}
	}
	return at, waits
}

// lastError is what the newest failed attempt failed with, nil for none.
func (s *subscription) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := len(s.outcomes) - 1; n >= 0; n-- {
		if s.outcomes[n].err != nil {
			return s.outcomes[n].err
		}
	}
	return nil
}
