package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/deploy"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// payments has one subscription in order, with a policy.
func payments(retry string) string {
	return `module payments {
  export topic payins payments.PayinEvent
  topic failedPayins payments.PayinEvent
  subscription paymentProcessing payments.payins

  data PayinEvent { n Int }

  verb recoverPayin(ftl.CatchRequest<payments.PayinEvent>) {}
  sink processPayin(payments.PayinEvent) {
    +subscribe paymentProcessing
    ` + retry + `
  }
}`
}

const processing = "payments.paymentProcessing"

func TestEventsOfASubscriptionAreHandledOneAfterTheOtherInOrder(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments(""))
	n.publish("payments_payins", 1, 2, 3)
	r := n.connect("payments", "d1", 8)
	for position := 1; position <= 3; position++ {
		c := must(t, r.next(), "processPayin", position, 1)
		if v, err := c.Value(); err != nil || numberOf(v) != position || c.Kind != ftlwire.Sink || c.Subscription != "paymentProcessing" {
			t.Fatalf("call %+v of %s, %v", c, v, err)
		}
		r.quiet()
		r.succeed(c)
	}
	eventually(t, "nothing is left", func() bool { return n.status(processing).Lag == 0 })
	n.publish("payments_payins", 4)
	r.succeed(must(t, r.next(), "processPayin", 4, 1))
}

func TestAnEventThatFailsIsTriedAgainAtThePolicysTimesAndThenGivenUpOn(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments("+retry 2 1s 10s\n+deadletter failedPayins"))
	r := n.connect("payments", "d1", 8)
	n.publish("payments_payins", 1, 2)
	for attempt, wait := range []time.Duration{time.Second, 2 * time.Second} {
		r.fail(must(t, r.next(), "processPayin", 1, attempt+1), "no such account")
		eventually(t, "it waits", func() bool { return waits(n, processing) })
		n.advance(wait - time.Millisecond)
		r.quiet()
		n.advance(time.Millisecond)
	}
	s := n.status(processing)
	if s.LastError == nil || s.LastError.Error != "no such account" || s.LastError.Attempt != 2 {
		t.Fatalf("the last error is %+v", s.LastError)
	}
	r.fail(must(t, r.next(), "processPayin", 1, 3), "no such account")
	// It has been given up on, so the next comes.
	r.succeed(must(t, r.next(), "processPayin", 2, 1))
	eventually(t, "nothing is left", func() bool { return n.status(processing).Lag == 0 })
	if s := n.status(processing); s.GivenUp != 1 || s.InFlightCount != 0 || !s.LastError.GivenUp {
		t.Fatalf("status %+v", s)
	}
	mustBe(t, "the dead letters", n.events("payments_failedPayins"), []int{1})
}

// waits reports whether an event of a subscription waits for its next attempt.
func waits(n *node, subscription string) bool {
	s := n.status(subscription)
	return len(s.InFlight) == 1 && s.InFlight[0].Until != nil
}

func TestTheCatchVerbGetsAnEventAfterItsLastAttemptAgainAndAgainUntilItSucceeds(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments("+retry 1 1s 1m catch payments.recoverPayin"))
	r := n.connect("payments", "d1", 8)
	n.publish("payments_payins", 1)
	r.fail(must(t, r.next(), "processPayin", 1, 1), "first")
	eventually(t, "it waits", func() bool { return waits(n, processing) })
	n.advance(time.Second)
	r.fail(must(t, r.next(), "processPayin", 1, 2), "second")
	for attempt := 1; attempt <= 3; attempt++ {
		c := must(t, r.next(), "recoverPayin", 1, attempt)
		if c.Kind != ftlwire.Catch || c.Caught == nil || *c.Caught != (ftlwire.Caught{
			Verb: "payments.processPayin", RequestType: "payments.PayinEvent", Error: "second", Attempts: 2,
		}) {
			t.Fatalf("the catch verb is called with %+v", c.Caught)
		}
		if attempt == 3 {
			r.succeed(c)
			break
		}
		r.fail(c, "not yet")
		eventually(t, "it waits", func() bool { return waits(n, processing) })
		n.advance(time.Minute - time.Millisecond)
		r.quiet()
		n.advance(time.Millisecond)
	}
	eventually(t, "nothing is left", func() bool { return n.status(processing).Lag == 0 })
	if s := n.status(processing); s.GivenUp != 0 {
		t.Fatalf("%d were given up on", s.GivenUp)
	}
}

func TestARunnerThatIsLostInTheMiddleOfACallHasMadeAnAttempt(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments("+retry 1 1s 1s catch payments.recoverPayin"))
	n.publish("payments_payins", 1)
	for attempt := 1; attempt <= 2; attempt++ {
		r := n.connect("payments", "d1", 8)
		must(t, r.next(), "processPayin", 1, attempt)
		r.kill()
		eventually(t, "the attempt is counted", func() bool {
			s := n.status(processing)
			return s.LastError != nil && s.LastError.Attempt == attempt
		})
		n.advance(time.Second)
	}
	r := n.connect("payments", "d1", 8)
	c := must(t, r.next(), "recoverPayin", 1, 1)
	if !strings.Contains(c.Caught.Error, "lost") {
		t.Errorf("the event failed with %q", c.Caught.Error)
	}
	r.succeed(c)
}

func TestACallThatARunnerDidNotBeginIsNoAttempt(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments("+retry 0"))
	n.publish("payments_payins", 1)
	first := n.connect("payments", "d1", 8)
	c := must(t, first.next(), "processPayin", 1, 1)
	first.conn.Send(ftlwire.Frame{Draining: &ftlwire.Draining{}})
	first.conn.Send(ftlwire.Frame{Done: &ftlwire.Done{ID: c.ID, Error: &ftlwire.Error{NotRun: true, Message: "draining"}}})
	second := n.connect("payments", "d1", 8)
	second.succeed(must(t, second.next(), "processPayin", 1, 1))
	eventually(t, "nothing is left", func() bool { return n.status(processing).Lag == 0 })
}

func TestADeadNodesEventsKeepTheirAttemptsAndTheirLastError(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments("+retry 1 1s 1s catch payments.recoverPayin"))
	r := n.connect("payments", "d1", 8)
	n.publish("payments_payins", 1)
	r.fail(must(t, r.next(), "processPayin", 1, 1), "first")
	eventually(t, "it waits", func() bool { return waits(n, processing) })
	r.kill()
	eventually(t, "nobody dispatches it", func() bool { return n.status(processing).Node == "" })
	n.advance(time.Second)
	// What a node does that dies before it is told the outcome: a hand-out.
	if page, err := n.database().Read(t.Context(), "payments_payins", store.ReadOptions{Consumer: processing}, 0); err != nil || len(page.Messages) != 1 {
		t.Fatalf("handed out %v, %v", page, err)
	}
	n.advance(deploy.AckDeadline)
	again := n.connect("payments", "d1", 8)
	c := must(t, again.next(), "recoverPayin", 1, 1)
	if c.Caught.Error != "first" && !strings.Contains(c.Caught.Error, "lost") || c.Caught.Attempts != 2 {
		t.Errorf("the event failed with %+v", c.Caught)
	}
}

const receipts = `module receipts {
  topic receipts receipts.Receipt
  subscription receiptWriting receipts.sales
  topic sales receipts.Sale
  data Receipt { n Int }
  data Sale { n Int }
  mapper toReceipt(receipts.Sale) receipts.Receipt {
    +map receiptWriting receipts.receipts
    +retry 3 1s
  }
}`

func TestWhatAMapperReturnsIsAppendedInOneCommitWithItsAcknowledgement(t *testing.T) {
	n := newNode(t)
	n.provision("d1", receipts)
	n.publish("receipts_sales", 1, 2)
	r := n.connect("receipts", "d1", 8)
	answer := func(c *ftlwire.Call, v value.Value) {
		t.Helper()
		encoded, err := v.AppendCBOR(nil)
		if err != nil {
			t.Fatal(err)
		}
		r.conn.Send(ftlwire.Frame{Done: &ftlwire.Done{ID: c.ID, Result: encoded, Headers: map[string]string{"caller": "receipts.toReceipt"}}})
	}
	first := must(t, r.next(), "toReceipt", 1, 1)
	if first.Kind != ftlwire.Mapper {
		t.Fatalf("the call is a %s", first.Kind)
	}
	answer(first, event(10))
	second := must(t, r.next(), "toReceipt", 2, 1)
	mustBe(t, "the results", n.events("receipts_receipts"), []int{10})
	// Somebody else settles the event while the mapper runs.
	if _, err := n.host.Skip(t.Context(), "main", "receipts.receiptWriting"); err != nil {
		t.Fatal(err)
	}
	answer(second, event(20))
	n.publish("receipts_sales", 3)
	answer(must(t, r.next(), "toReceipt", 3, 1), event(30))
	eventually(t, "nothing is left", func() bool { return n.status("receipts.receiptWriting").Lag == 0 })
	mustBe(t, "the results", n.events("receipts_receipts"), []int{10, 30})
	page, err := n.database().Read(t.Context(), "receipts_receipts", store.ReadOptions{}, 0)
	if err != nil || page.Messages[0].Headers()["caller"] != "receipts.toReceipt" {
		t.Fatalf("the result has %v, %v", page.Messages[0].Headers(), err)
	}
}

func TestAMapperWhoseResultCannotBeAppendedHasFailed(t *testing.T) {
	n := newNode(t)
	n.provision("d1", strings.Replace(receipts, "topic receipts receipts.Receipt", "topic receipts receipts.Receipt { +retainBytes 10 }", 1))
	n.publish("receipts_sales", 1)
	r := n.connect("receipts", "d1", 8)
	c := must(t, r.next(), "toReceipt", 1, 1)
	encoded, err := value.String("longer than ten bytes").AppendCBOR(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.conn.Send(ftlwire.Frame{Done: &ftlwire.Done{ID: c.ID, Result: encoded}})
	eventually(t, "it waits", func() bool { return waits(n, "receipts.receiptWriting") })
	if s := n.status("receipts.receiptWriting"); !strings.Contains(s.LastError.Error, "RETAIN BYTES") {
		t.Errorf("it failed with %q", s.LastError.Error)
	}
	mustBe(t, "the results", n.events("receipts_receipts"), nil)
}

const busy = `module busy {
  topic work busy.Work
  subscription slow busy.work { +parallel 3 }
  subscription quick busy.work
  subscription several busy.work
  subscription unattended busy.work
  data Work { n Int }
  sink doSlow(busy.Work) { +subscribe slow }
  sink doQuick(busy.Work) { +subscribe quick }
  sink one(busy.Work) { +subscribe several }
  sink other(busy.Work) { +subscribe several }
}`

func TestASlowSubscriptionDelaysNoOtherAndAParallelOneTakesSeveralAtOnce(t *testing.T) {
	n := newNode(t)
	n.provision("d1", busy)
	r := n.connect("busy", "d1", 2)
	n.publish("busy_work", 1, 2, 3, 4, 5, 6)
	slow, verbs := []*ftlwire.Call{}, map[string]int{}
	for len(slow) < 2 || verbs["doQuick"] < 6 || verbs["one"]+verbs["other"] < 6 {
		c := r.next()
		verbs[c.Verb]++
		if c.Verb == "doSlow" {
			slow = append(slow, c)
			continue
		}
		r.succeed(c)
	}
	if verbs["one"] != 3 || verbs["other"] != 3 {
		t.Errorf("of six events the sinks of one subscription got %d and %d", verbs["one"], verbs["other"])
	}
	// Its credit is two, although three may be in flight.
	r.quiet()
	second := n.connect("busy", "d1", 5)
	slow = append(slow, second.next())
	second.quiet()
	positions := []int{}
	for _, c := range slow {
		positions = append(positions, int(c.Position))
	}
	slices.Sort(positions)
	mustBe(t, "in flight", positions, []int{1, 2, 3})
	r.succeed(slow[0])
	if s := n.status("busy.unattended"); s.Node != "" && len(s.Sinks) != 0 || s.Position != 0 || s.Lag != 6 {
		t.Errorf("the subscription without a sink is %+v", s)
	}
}

func TestANewDeploymentTakesOverWhenItsRunnerComesAndTheOldOneFinishesWhatItHolds(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments(""))
	n.publish("payments_payins", 1, 2)
	old := n.connect("payments", "d1", 8)
	held := must(t, old.next(), "processPayin", 1, 1)
	n.provision("d2", payments("+retry 3 1s"))
	old.quiet()
	if len(old.drained) > 0 {
		t.Fatal("the old runner is drained before the new one is there")
	}
	next := n.connect("payments", "d2", 8)
	select {
	case drain := <-old.drained:
		if !drain.Superseded {
			t.Fatal("the old runner is not told why")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the old runner is not drained")
	}
	// In order: nothing comes before what the old one holds.
	next.quiet()
	old.succeed(held)
	next.succeed(must(t, next.next(), "processPayin", 2, 1))
	old.quiet()
	_, _, err := ftlwire.Dial(t.Context(), n.url, nil, ftlwire.Hello{Database: "main", Module: "payments", Deployment: "d1"})
	refused(t, err, fault.NotFound, "superseded by d2")
}

func TestARunnerOfADeploymentThatNobodyProvisionedIsRefusedForGood(t *testing.T) {
	n := newNode(t)
	_, _, err := ftlwire.Dial(t.Context(), n.url, nil, ftlwire.Hello{Module: "payments", Deployment: "d1"})
	refused(t, err, fault.NotFound)
	n.provision("d1", payments(""))
	_, _, err = ftlwire.Dial(t.Context(), n.url, nil, ftlwire.Hello{Module: "orders", Deployment: "d1"})
	refused(t, err, fault.NotFound, "tidemark ftl deploy")
}

func TestASinkThatSettledInItsOwnTransactionIsNotSettledAgain(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments(""))
	n.publish("payments_payins", 1)
	r := n.connect("payments", "d1", 8)
	c := must(t, r.next(), "processPayin", 1, 1)
	if settled := acknowledge(t, n, c); settled != 1 {
		t.Fatalf("settled %d", settled)
	}
	r.conn.Send(ftlwire.Frame{Done: &ftlwire.Done{ID: c.ID, Settled: true}})
	n.publish("payments_payins", 2)
	r.succeed(must(t, r.next(), "processPayin", 2, 1))
	eventually(t, "nothing is left", func() bool { return n.status(processing).Lag == 0 })
}

func TestAVerbThatRunsForLongKeepsItsEvent(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments(""))
	n.publish("payments_payins", 1)
	r := n.connect("payments", "d1", 8)
	began := n.clock.read()
	c := must(t, r.next(), "processPayin", 1, 1)
	for range 4 {
		eventually(t, "the deadline is moved on", func() bool {
			return n.group("payments_payins", processing).Held[0].Due.Equal(n.clock.read().Add(deploy.AckDeadline))
		})
		n.advance(deploy.AckDeadline - time.Second)
	}
	r.quiet()
	if s := n.status(processing); !s.InFlight[0].Since.Equal(began) || s.InFlight[0].Verb != "payments.processPayin" {
		t.Errorf("in flight is %+v, since %s", s.InFlight[0], began)
	}
	// Another node moves the subscription on: this one notices.
	tx, err := n.database().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Cancel()
	if err := tx.StartAt(t.Context(), "payments_payins", processing, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id := <-r.cancelled; id != c.ID {
		t.Errorf("call %d is cancelled, not %d", id, c.ID)
	}
}

// acknowledge settles what a call was given, as its sink's transaction does.
func acknowledge(t *testing.T, n *node, c *ftlwire.Call) int {
	t.Helper()
	count, err := n.database().Settle(t.Context(), c.Topic, c.Group, settlementOf(c))
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestAnOperatorRetriesSkipsAndResetsWhatIsStuck(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments("+retry 3 1h 2h"))
	r := n.connect("payments", "d1", 8)
	n.publish("payments_payins", 1, 2, 3)
	r.fail(must(t, r.next(), "processPayin", 1, 1), "no such account")
	eventually(t, "it waits", func() bool { return waits(n, processing) })

	if count, err := n.host.Retry(t.Context(), "main", processing); err != nil || count != 1 {
		t.Fatalf("retried %d, %v", count, err)
	}
	// Again the first attempt; this one hangs.
	hangs := must(t, r.next(), "processPayin", 1, 1)
	if count, err := n.host.Retry(t.Context(), "main", processing); err != nil || count != 1 {
		t.Fatalf("retried %d, %v", count, err)
	}
	if id := <-r.cancelled; id != hangs.ID {
		t.Fatalf("call %d is cancelled, not %d", id, hangs.ID)
	}
	again := must(t, r.next(), "processPayin", 1, 1)
	r.succeed(hangs) // too late
	r.quiet()

	if count, err := n.host.Skip(t.Context(), "main", processing); err != nil || count != 1 {
		t.Fatalf("skipped %d, %v", count, err)
	}
	if id := <-r.cancelled; id != again.ID {
		t.Fatalf("call %d is cancelled, not %d", id, again.ID)
	}
	r.succeed(must(t, r.next(), "processPayin", 2, 1))
	r.succeed(must(t, r.next(), "processPayin", 3, 1))
	eventually(t, "nothing is left", func() bool { return n.status(processing).Lag == 0 })
	_, err := n.host.Skip(t.Context(), "main", processing)
	refused(t, err, fault.NotFound, "no event in flight")

	if _, err := n.host.Reset(t.Context(), "main", processing, "2"); err != nil {
		t.Fatal(err)
	}
	must(t, r.next(), "processPayin", 2, 1)
	if count, err := n.host.Reset(t.Context(), "main", processing, deploy.Latest); err != nil || count != 1 {
		t.Fatalf("reset over %d, %v", count, err)
	}
	<-r.cancelled
	n.publish("payments_payins", 4)
	r.succeed(must(t, r.next(), "processPayin", 4, 1))
	if _, err := n.host.Reset(t.Context(), "main", processing, deploy.Beginning); err != nil {
		t.Fatal(err)
	}
	r.succeed(must(t, r.next(), "processPayin", 1, 1))

	for to, says := range map[string]string{"9": "holds 1 to 4", "0": "no place", "end": "beginning, latest"} {
		_, err := n.host.Reset(t.Context(), "main", processing, to)
		refused(t, err, fault.InvalidClause, says)
	}
	_, err = n.host.Retry(t.Context(), "main", "payments.paymentprocessing")
	refused(t, err, fault.NotFound, "did you mean "+processing)
}

func TestANodeThatStopsLetsItsRunnersAnswerWhatTheyHold(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments(""))
	n.publish("payments_payins", 1, 2)
	r := n.connect("payments", "d1", 8)
	c := must(t, r.next(), "processPayin", 1, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		n.host.Stop(t.Context())
	}()
	if drain := <-r.drained; drain.Superseded {
		t.Fatal("it is told that it was superseded")
	}
	_, _, err := ftlwire.Dial(t.Context(), n.url, nil, ftlwire.Hello{Module: "payments", Deployment: "d1"})
	refused(t, err, fault.Unavailable)
	r.succeed(c)
	<-stopped
	r.quiet()
	s := n.status(processing)
	if s.Position != 1 || s.Lag != 1 || s.InFlightCount != 0 || s.Node != "" {
		t.Fatalf("after the node has stopped the subscription is %+v", s)
	}
}

func TestManyEventsThroughAParallelSubscriptionAreAllHandledOnce(t *testing.T) {
	n := newNode(t)
	n.provision("d1", strings.ReplaceAll(busy, "+parallel 3", "+parallel 100"))
	const count = 1000
	numbers := make([]store.NewMessage, count)
	for i := range numbers {
		numbers[i] = store.NewMessage{Value: event(i)}
	}
	if _, err := n.database().Append(t.Context(), "busy_work", numbers...); err != nil {
		t.Fatal(err)
	}
	r := n.connect("busy", "d1", 500)
	seen := map[string]bool{}
	for len(seen) < 3*count {
		c := r.next()
		key := fmt.Sprint(c.Subscription, c.Position)
		if seen[key] || c.Delivery != 1 {
			t.Fatalf("%s comes again", key)
		}
		seen[key] = true
		r.succeed(c)
	}
}

func settlementOf(c *ftlwire.Call) store.Settlement {
	return store.Settlement{Kind: store.Acknowledge, At: []topic.Settle{{
		Position: topic.Position(c.Position), Delivery: topic.Deliveries(c.Delivery),
	}}}
}
