// Package ftltest runs a module's sinks and mappers in a test: in process, on a
// store in memory, with the clock of the test's own.
//
//	func TestAPaymentIsReceipted(t *testing.T) {
//		ctx := ftltest.Context(t, ftltest.WithSubscriber(receiptWriting, WriteReceipt))
//		if _, err := Pay(ctx, Payment{Amount: 40}); err != nil {
//			t.Fatal(err)
//		}
//		ftltest.WaitForSubscriptionsToComplete(ctx)
//		if errs := ftltest.ErrorsForSubscription(ctx, receiptWriting); errs != nil { … }
//	}
//
// Three ideas:
//
//   - Only what a test names runs. Events of all other topics are kept and can
//     be looked at; nobody handles them.
//   - Sinks run inside WaitForSubscriptionsToComplete and nowhere else, one after
//     the other (as many at once as ftl.Parallel says), so a test is the same at
//     every run. It returns when nothing is left to handle, also of what sinks
//     and mappers published meanwhile.
//   - Topics, groups, transactions and retries are the store's and the
//     dispatcher's own. A sink is retried as its directives say; instead of
//     waiting for a backoff, the test's clock moves on.
package ftltest

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/ftl"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
	"github.com/tidemarkdb/tidemark/ftl/internal/event"
	"github.com/tidemarkdb/tidemark/value"
)

// Option says what runs in a test.
type Option func(*module)

// Context returns a context to call a module's verbs and to publish with, as a
// verb of the module that the test stands in would; a test may publish to topics
// of other modules, too. What it opens is closed when the test ends.
func Context(t testing.TB, options ...Option) context.Context {
	t.Helper()
	m := open(t)
	for _, option := range options {
		option(m)
	}
	if err := m.provision(t.Context()); err != nil {
		t.Fatalf("ftltest: %v", err)
	}
	at := call.Caller(1)
	c := &call.Call{Module: m.ModuleOf(at), Verb: "test", Request: t.Name(), Test: true, Surroundings: m}
	ctx, _ := c.StartSpan(t.Context(), nil, trace.SpanKindInternal)
	return call.With(ctx, c)
}

// WithSubscriber lets a sink handle the events of a subscription. Its function's
// directives in the source (//ftl:retry, //ftl:deadletter) hold; a function
// literal has the default policy. Several sinks of one subscription take turns.
func WithSubscriber[E any](s *ftl.Subscription[E], sink func(context.Context, E) error) Option {
	return func(m *module) {
		m.subscribe(s.Declaration(), handler{
			function: call.FunctionOf(sink),
			run: func(ctx context.Context, v value.Value) (value.Value, error) {
				var e E
				if err := event.Decode(v, &e); err != nil {
					return value.Value{}, err
				}
				return value.None(), sink(ctx, e)
			},
		})
	}
}

// WithMapper lets a mapper handle the events of a subscription; what it returns
// is appended to a topic.
func WithMapper[E, Result any](s *ftl.Subscription[E], mapper func(context.Context, E) (Result, error), to *ftl.Topic[Result]) Option {
	return func(m *module) {
		topic := to.Declaration()
		m.subscribe(s.Declaration(), handler{
			function: call.FunctionOf(mapper),
			to:       &topic,
			run: func(ctx context.Context, v value.Value) (value.Value, error) {
				var e E
				if err := event.Decode(v, &e); err != nil {
					return value.Value{}, err
				}
				result, err := mapper(ctx, e)
				if err != nil {
					return value.Value{}, err
				}
				return event.Encode(result)
			},
		})
	}
}

// WithCatch provides a catch verb, which sinks and mappers name in their
// //ftl:retry directive by its function's name in lowerCamel.
func WithCatch[E any](verb func(context.Context, ftl.CatchRequest[E]) error) Option {
	return func(m *module) {
		f := call.FunctionOf(verb)
		m.catches[m.ModuleOf(f.Place)+"."+f.Verb()] = handler{
			function: f,
			run: func(ctx context.Context, v value.Value) (value.Value, error) {
				var request ftl.CatchRequest[E]
				if err := event.Decode(v, &request); err != nil {
					return value.Value{}, err
				}
				return value.None(), verb(ctx, request)
			},
		}
	}
}

// WhenVerb puts a fake in the place of a verb, for every ftl.Call of it.
func WhenVerb[Request, Response any](verb, fake func(context.Context, Request) (Response, error)) Option {
	return func(m *module) { m.fakes[call.FunctionOf(verb).String()] = fake }
}

// Database returns the store that the test's topics are in, to define what sinks
// write to with ftl.Tx, and to look at what they wrote.
func Database(ctx context.Context) *client.Database { return of(ctx).database }

// Now returns the time of the test's clock. It moves only while
// WaitForSubscriptionsToComplete waits for a retry, and by Advance.
func Now(ctx context.Context) time.Time { return of(ctx).clock.now() }

// Advance moves the test's clock on.
func Advance(ctx context.Context, d time.Duration) { of(ctx).clock.advance(d) }

// of is the module that a context of Context belongs to.
func of(ctx context.Context) *module {
	if c := call.From(ctx); c != nil {
		if m, ok := c.Surroundings.(*module); ok {
			return m
		}
	}
	panic("ftltest: the context is not one of ftltest.Context")
}
