package ftltest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl"
	"github.com/tidemarkdb/tidemark/ftl/ftltest"
)

type order struct {
	N int `json:"n"`
}

type letter struct {
	Text string `json:"text"`
}

var (
	orders   = ftl.RegisterTopic[order]("orders")
	letters  = ftl.RegisterTopic[letter]("letters")
	givenUp  = ftl.RegisterTopic[order]("givenUp")
	handling = ftl.RegisterSubscription(orders, "handling")
	wide     = ftl.RegisterSubscription(orders, "wide", ftl.Parallel(8))
	writing  = ftl.RegisterSubscription(orders, "writing")
	sending  = ftl.RegisterSubscription(letters, "sending")
)

// failing is how often the functions below fail before they succeed.
type failing struct{ times int }

type failingKey struct{}

func fails(ctx context.Context) error {
	if f := ctx.Value(failingKey{}).(*failing); f.times > 0 {
		f.times--
		return errors.New("not yet")
	}
	return nil
}

//ftl:subscribe handling
//ftl:retry 3 1s 3s
func Retried(ctx context.Context, _ order) error { return fails(ctx) }

//ftl:subscribe handling
//ftl:retry 2 1s 1m catch recoverOrder
func Caught(context.Context, order) error { return errors.New("never") }

//ftl:verb
func RecoverOrder(ctx context.Context, request ftl.CatchRequest[order]) error {
	if err := fails(ctx); err != nil {
		return err
	}
	return letters.Publish(ctx, letter{fmt.Sprintf("%s gave up %s %d after %d: %s", request.Verb, request.RequestType, request.Request.N, request.Attempts, request.Error)})
}

//ftl:subscribe handling
//ftl:retry 0 1d 1d catch recoverOrder
func Daily(context.Context, order) error { return errors.New("never") }

//ftl:subscribe handling
//ftl:retry 0
//ftl:deadletter givenUp
func Hopeless(context.Context, order) error { return errors.New("never") }

//ftl:map writing letters
func ToLetter(_ context.Context, o order) (letter, error) {
	return letter{fmt.Sprintf("order %d", o.N)}, nil
}

func publish(ctx context.Context, t *testing.T, count int) {
	t.Helper()
	for n := range count {
		if err := orders.Publish(ctx, order{n + 1}); err != nil {
			t.Fatal(err)
		}
	}
}

// attempts are the attempts of a subscription as a line: when each was, and how
// it ended.
func attempts[E any](ctx context.Context, start time.Time, s *ftl.Subscription[E]) string {
	var lines []string
	for _, r := range ftltest.ResultsForSubscription(ctx, s) {
		outcome := "ok"
		if r.Err != nil {
			outcome = "failed"
		}
		lines = append(lines, fmt.Sprintf("%s#%d+%s %s", r.Verb, r.Attempt, r.At.Sub(start), outcome))
	}
	return strings.Join(lines, ", ")
}

func withFailures(ctx context.Context, times int) context.Context {
	return context.WithValue(ctx, failingKey{}, &failing{times})
}

func TestASinkIsRetriedAtItsPolicysTimesWithoutWaiting(t *testing.T) {
	ctx := withFailures(ftltest.Context(t, ftltest.WithSubscriber(handling, Retried)), 3)
	start := ftltest.Now(ctx)
	publish(ctx, t, 1)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	want := "retried#1+0s failed, retried#2+1s failed, retried#3+3s failed, retried#4+6s ok"
	if got := attempts(ctx, start, handling); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestAnEventThatIsGivenUpOnLetsTheNextOnePass(t *testing.T) {
	ctx := withFailures(ftltest.Context(t, ftltest.WithSubscriber(handling, Retried)), 4)
	publish(ctx, t, 2)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	results := ftltest.ResultsForSubscription(ctx, handling)
	if last := results[len(results)-1]; len(results) != 5 || last.Event.N != 2 || last.Err != nil {
		t.Errorf("got %+v", results)
	}
}

func TestACatchVerbHasWhatFailedAndRunsUntilItSucceeds(t *testing.T) {
	ctx := withFailures(ftltest.Context(t, ftltest.WithSubscriber(handling, Caught), ftltest.WithCatch(RecoverOrder)), 2)
	start := ftltest.Now(ctx)
	publish(ctx, t, 1)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	want := "caught#1+0s failed, caught#2+1s failed, caught#3+3s failed, recoverOrder#1+3s failed, recoverOrder#2+1m3s failed, recoverOrder#3+2m3s ok"
	if got := attempts(ctx, start, handling); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	got := ftltest.EventsForTopic(ctx, letters)
	if len(got) != 1 || got[0].Text != "ftltest.caught gave up ftltest.order 1 after 3: never" {
		t.Errorf("the catch verb was told %+v", got)
	}
}

func TestWhatWasGivenUpOnGoesToTheDeadLetterTopicAsItIs(t *testing.T) {
	ctx := ftltest.Context(t, ftltest.WithSubscriber(handling, Hopeless))
	publish(ctx, t, 2)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	if got := ftltest.EventsForTopic(ctx, givenUp); len(got) != 2 || got[1].N != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestWaitingIsRightForTopicsThatFeedTopics(t *testing.T) {
	var sent []string
	ctx := ftltest.Context(t,
		ftltest.WithSubscriber(sending, func(_ context.Context, l letter) error {
			sent = append(sent, l.Text)
			return nil
		}),
		ftltest.WithMapper(writing, ToLetter, letters))
	publish(ctx, t, 3)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	if got := strings.Join(sent, ", "); got != "order 1, order 2, order 3" {
		t.Errorf("sent %s", got)
	}
}

func TestSinksAreOffUnlessTheyAreNamed(t *testing.T) {
	ctx := ftltest.Context(t)
	publish(ctx, t, 1)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	if got := ftltest.EventsForTopic(ctx, orders); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestAParallelSubscriptionHandlesEventsAtOnce(t *testing.T) {
	var mu sync.Mutex
	together, most := 0, 0
	var all sync.WaitGroup
	all.Add(8)
	ctx := ftltest.Context(t, ftltest.WithSubscriber(wide, func(context.Context, order) error {
		mu.Lock()
		together++
		most = max(most, together)
		mu.Unlock()
		all.Done()
		all.Wait() // Only eight at once get past here.
		mu.Lock()
		together--
		mu.Unlock()
		return nil
	}))
	publish(ctx, t, 8)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	if most != 8 {
		t.Errorf("%d ran at once", most)
	}
}

func TestATransactionCommitsWithTheAcknowledgementOrNotAtAll(t *testing.T) {
	ctx := withFailures(ftltest.Context(t, ftltest.WithSubscriber(handling, func(ctx context.Context, o order) error {
		tx := ftl.Tx(ctx)
		if err := tx.Exec(ctx, "CREATE done = { n: $n }", ftl.Params{"n": o.N}); err != nil {
			return err
		}
		if err := letters.Publish(ctx, letter{"published in the transaction"}); err != nil {
			return err
		}
		return fails(ctx)
	})), 2)
	if _, err := ftltest.Database(ctx).Exec(ctx, "DEFINE COLLECTION done", nil); err != nil {
		t.Fatal(err)
	}
	publish(ctx, t, 1)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	rows, err := ftltest.Database(ctx).Query(ctx, "SELECT * FROM done", nil)
	if err != nil || rows.Len() != 1 {
		t.Errorf("%d records, %v", rows.Len(), err)
	}
	if got := ftltest.EventsForTopic(ctx, letters); len(got) != 1 {
		t.Errorf("published %+v", got)
	}
}

func TestAPanicIsAFailureOfThatAttemptAlone(t *testing.T) {
	panicked := false
	ctx := ftltest.Context(t, ftltest.WithSubscriber(handling, func(context.Context, order) error {
		if !panicked {
			panicked = true
			panic("once")
		}
		return nil
	}))
	publish(ctx, t, 1)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	errs := ftltest.ErrorsForSubscription(ctx, handling)
	if len(errs) != 1 || errs[0].Error() != "panic: once" {
		t.Errorf("failed with %v", errs)
	}
}

func TestAnEventKeepsItsCallerItsRequestAndItsTrace(t *testing.T) {
	var caller, request, verb string
	ctx := ftltest.Context(t,
		ftltest.WithMapper(writing, ToLetter, letters),
		ftltest.WithSubscriber(sending, func(ctx context.Context, _ letter) error {
			caller, request, verb = ftl.Caller(ctx), ftl.RequestID(ctx), ftl.Verb(ctx)
			return nil
		}))
	publish(ctx, t, 1)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	if caller != "ftltest.toLetter" || request != t.Name() || !strings.HasPrefix(verb, "ftltest.") {
		t.Errorf("caller %q, request %q, verb %q", caller, request, verb)
	}
	var traces []string
	for _, topic := range []string{"ftltest_orders", "ftltest_letters"} {
		page, err := ftltest.Database(ctx).Topic(topic).Read(ctx, client.ReadOptions{})
		if err != nil || len(page.Messages) != 1 {
			t.Fatalf("%s has %+v, %v", topic, page, err)
		}
		version, rest, _ := strings.Cut(page.Messages[0].Headers()["traceparent"], "-")
		trace, _, _ := strings.Cut(rest, "-")
		traces = append(traces, version+"-"+trace)
	}
	if traces[0] != traces[1] || len(traces[0]) != 35 {
		t.Errorf("the traces are %v", traces)
	}
}

func TestAVerbIsFakedWhereItIsCalled(t *testing.T) {
	price := func(context.Context, order) (letter, error) { return letter{"real"}, nil }
	ctx := ftltest.Context(t, ftltest.WhenVerb(price, func(context.Context, order) (letter, error) { return letter{"fake"}, nil }))
	if got, err := ftl.Call(ctx, price, order{}); err != nil || got.Text != "fake" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestATransactionThatLostRunsTheVerbAgainAndThatIsNoAttempt(t *testing.T) {
	runs := 0
	ctx := ftltest.Context(t, ftltest.WithSubscriber(handling, func(ctx context.Context, _ order) error {
		runs++
		tx := ftl.Tx(ctx)
		if err := tx.Put(ctx, "done", "one", order{runs}); err != nil {
			return err
		}
		if runs == 1 {
			_, err := ftltest.Database(ctx).Exec(ctx, "UPSERT done:'one' = { n: 0 }", nil)
			return err
		}
		return nil
	}))
	if _, err := ftltest.Database(ctx).Exec(ctx, "DEFINE COLLECTION done", nil); err != nil {
		t.Fatal(err)
	}
	publish(ctx, t, 1)
	ftltest.WaitForSubscriptionsToComplete(ctx)
	if got := ftltest.ResultsForSubscription(ctx, handling); runs != 2 || len(got) != 1 || got[0].Err != nil {
		t.Errorf("%d runs, attempts %+v", runs, got)
	}
}

func TestOnlyAVerbPublishes(t *testing.T) {
	if err := orders.Publish(t.Context(), order{1}); !errors.Is(err, fault.NotAllowed) {
		t.Errorf("published with %v", err)
	}
	if err := ftl.Tx(t.Context()).Put(t.Context(), "x", 1, order{}); !errors.Is(err, fault.NotAllowed) {
		t.Errorf("wrote with %v", err)
	}
}

// failure is a testing.TB that notes how a test failed instead of failing.
type failure struct {
	testing.TB
	told string
}

func (f *failure) Helper() {}
func (f *failure) Fatalf(format string, args ...any) {
	f.told = fmt.Sprintf(format, args...)
	panic(f)
}

// told is what a test that fails is told.
func told(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	f := &failure{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(f) {
				panic(p)
			}
		}()
		test(f)
	}()
	return f.told
}

func TestATestIsToldWhatItLacks(t *testing.T) {
	for _, c := range []struct {
		want string
		test func(t testing.TB)
	}{
		{"names the catch verb ftltest.recoverOrder", func(t testing.TB) { ftltest.Context(t, ftltest.WithSubscriber(handling, Caught)) }},
		{"nothing runs for the subscription handling", func(t testing.TB) { ftltest.ResultsForSubscription(ftltest.Context(t), handling) }},
	} {
		if got := told(t, c.test); !strings.Contains(got, c.want) {
			t.Errorf("told %q, want %q", got, c.want)
		}
	}
}

func TestVerbsThatNeverEndFailTheTest(t *testing.T) {
	got := told(t, func(t testing.TB) {
		ctx := withFailures(ftltest.Context(t, ftltest.WithSubscriber(handling, Daily), ftltest.WithCatch(RecoverOrder)), 1<<30)
		if err := orders.Publish(ctx, order{1}); err != nil {
			t.Fatalf("%v", err)
		}
		ftltest.Advance(ctx, time.Hour)
		ftltest.WaitForSubscriptionsToComplete(ctx)
	})
	if !strings.Contains(got, "do not complete") || !strings.Contains(got, "not yet") {
		t.Errorf("told %q", got)
	}
}
