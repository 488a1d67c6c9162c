package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The module of the tests.

type order struct {
	ID    string   `json:"id"`
	Count int      `json:"count"`
	Notes []string `json:"notes,omitempty"`
	Due   *string  `json:"due,omitempty"`
}

var orders = ftl.RegisterTopic[order]("orders")

const shop = `module shop {
  topic orders shop.Order
  topic copies shop.Order
  subscription handling shop.orders

  data Order {
    count Int
    due String?
    id String
    notes [String]?
  }

  verb buy(shop.Order) shop.Order {
    +ingress http POST /orders
  }
  verb find(shop.Order) shop.Order {
    +ingress http GET /orders/{id}
  }
  verb nothing() {
    +ingress http DELETE /orders
  }
  verb recover(ftl.CatchRequest<shop.Order>)

  sink handle(shop.Order) {
    +subscribe handling
  }

  mapper copy(shop.Order) shop.Order {
    +map handling shop.copies
  }
}
`

// behaviour is what the functions of a test's module do.
type behaviour struct {
	buy    func(context.Context, order) (order, error)
	handle func(context.Context, order) error
	copy   func(context.Context, order) (order, error)
}

func (b behaviour) module() Module {
	echo := func(_ context.Context, o order) (order, error) { return o, nil }
	if b.buy == nil {
		b.buy = echo
	}
	if b.copy == nil {
		b.copy = echo
	}
	if b.handle == nil {
		b.handle = func(context.Context, order) error { return nil }
	}
	return Module{Name: "shop", Schema: shop, Package: "github.com/tidemarkdb/tidemark/ftl/runner", Functions: []Function{
		Verb("buy", b.buy), Verb("find", echo), Verb("copy", b.copy), Sink("handle", b.handle),
		Empty("nothing", func(context.Context) error { return nil }),
		Sink("recover", func(_ context.Context, r ftl.CatchRequest[order]) error {
			return fmt.Errorf("%s %s %s %d %d", r.Verb, r.RequestType, r.Error, r.Attempts, r.Request.Count)
		}),
	}}
}

// running is a module that runs.
type running struct {
	*testing.T
	ingress string
	stop    func()
	ended   chan error
	log     *lines
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func start(t *testing.T, n *fakeNode, b behaviour, change ...func(*settings)) *running {
	t.Helper()
	s := settings{nodes: n.url, database: ftlwire.DefaultDatabase, deployment: "d1", credit: 8, drain: 10 * time.Second, ingress: freeAddress(t)}
	for _, c := range change {
		c(&s)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{T: t, ingress: "http://" + s.ingress, stop: stop, ended: make(chan error, 1), log: &lines{}}
	go func() { r.ended <- serve(ctx, b.module(), s, slog.New(slog.NewTextHandler(r.log, nil)), io.Discard) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-r.ended:
			r.ended <- err
		case <-time.After(10 * time.Second):
			t.Error("the module did not end")
		}
	})
	return r
}

// oneShot keeps no connections that an ingress would wait for when it ends.
var oneShot = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// end waits until the module has ended.
func (r *running) end() error {
	r.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(10 * time.Second):
		r.Fatal("the module did not end")
		return nil
	}
}

// request sends one to the ingress and returns its status and body.
func (r *running) request(method, path, body string, headers ...string) (status int, answer string) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), method, r.ingress+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for n := 0; n < len(headers); n += 2 {
		request.Header.Set(headers[n], headers[n+1])
	}
	response, err := oneShot.Do(request)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}

const oneOrder = "DEFINE TOPIC shop_orders; DEFINE TOPIC shop_copies; DEFINE COLLECTION done;" +
	"DEFINE GROUP 'shop.handling' ON TOPIC shop_orders ACK DEADLINE 30s;" +
	"INSERT INTO shop_orders [{ count: 1 }, { count: 2 }]; READ FROM shop_orders FOR CONSUMER 'shop.handling' LIMIT 1"

func TestASinkIsCalledWithItsEventAndItsErrorIsToldToTheNode(t *testing.T) {
	n := newNode(t)
	start(t, n, behaviour{handle: func(ctx context.Context, o order) error {
		if o.Count == 2 {
			return errors.New("out of stock")
		}
		if o.Count == 3 {
			panic("no such shelf")
		}
		if ftl.Caller(ctx) != "shop.buy" || ftl.RequestID(ctx) != "r-1" || ftl.Verb(ctx) != "shop.handle" {
			return fmt.Errorf("called by %s for %s as %s", ftl.Caller(ctx), ftl.RequestID(ctx), ftl.Verb(ctx))
		}
		return nil
	}})
	p := n.accept()
	for id, want := range map[uint64]ftlwire.Error{1: {}, 2: {Message: "out of stock"}, 3: {Message: "panic: no such shelf", Panic: true}} {
		p.send(p.call(id, ftlwire.Sink, "handle", fmt.Sprintf(`{"id":"a","count":%d}`, id)))
		done := p.done(id)
		var got ftlwire.Error
		if done.Error != nil {
			got = *done.Error
		}
		if got != want || done.Settled {
			t.Errorf("call %d ended with %+v, settled %t", id, got, done.Settled)
		}
	}
}

func TestACatchVerbIsToldHowTheEventFailed(t *testing.T) {
	n := newNode(t)
	start(t, n, behaviour{})
	p := n.accept()
	c := p.call(1, ftlwire.Catch, "recover", `{"id":"a","count":7}`)
	c.Caught = &ftlwire.Caught{Verb: "shop.handle", RequestType: "shop.Order", Error: "no", Attempts: 3}
	p.send(c)
	if done := p.done(1); done.Error == nil || done.Error.Message != "shop.handle shop.Order no 3 7" {
		t.Errorf("it ended with %+v", done.Error)
	}
}

func TestATransactionCommitsWithTheAcknowledgementOfItsDelivery(t *testing.T) {
	n := newNode(t)
	n.define(oneOrder)
	start(t, n, behaviour{handle: func(ctx context.Context, o order) error {
		return ftl.Tx(ctx).Put(ctx, "done", o.ID, map[string]any{"count": o.Count})
	}})
	p := n.accept()
	late := p.call(1, ftlwire.Sink, "handle", `{"id":"late","count":1}`)
	late.Delivery = 9
	p.send(late)
	if done := p.done(1); done.Settled || done.Error == nil || n.count("SELECT * FROM done") != 0 {
		t.Fatalf("a delivery that another holds ended with %+v", done)
	}
	p.send(p.call(2, ftlwire.Sink, "handle", `{"id":"held","count":1}`))
	if done := p.done(2); !done.Settled || done.Error != nil || n.count("SELECT * FROM done") != 1 {
		t.Fatalf("the delivery that is held ended with %+v", done)
	}
	p.send(p.call(3, ftlwire.Sink, "handle", `{"id":"again","count":1}`))
	if done := p.done(3); done.Settled || n.count("SELECT * FROM done") != 1 {
		t.Fatalf("a delivery that was settled ended with %+v", done)
	}
}

func TestAMappersResultGoesToTheNodeOrCommitsInItsTransaction(t *testing.T) {
	n := newNode(t)
	n.define(oneOrder)
	start(t, n, behaviour{copy: func(ctx context.Context, o order) (order, error) {
		if o.Count == 1 {
			return o, nil
		}
		return o, ftl.Tx(ctx).Put(ctx, "done", o.ID, map[string]any{"count": o.Count})
	}})
	p := n.accept()
	p.send(p.call(1, ftlwire.Mapper, "copy", `{"id":"a","count":1}`))
	done := p.done(1)
	result, err := value.DecodeCBOR(done.Result)
	if err != nil || done.Settled || result.String() != "{ count: 1, id: 'a' }" {
		t.Errorf("it ended with %s, %+v, %v", result, done, err)
	}
	p.send(p.call(2, ftlwire.Mapper, "copy", `{"id":"b","count":2}`))
	if done := p.done(2); !done.Settled || done.Error != nil || n.count("SELECT * FROM shop_copies") != 1 || n.count("SELECT * FROM done") != 1 {
		t.Errorf("one with a transaction ended with %+v", done)
	}
}

func TestACallThatIsCancelledAndOneOfALostConnectionEnd(t *testing.T) {
	n := newNode(t)
	began := make(chan struct{}, 2)
	ended := make(chan error, 2)
	start(t, n, behaviour{handle: func(ctx context.Context, _ order) error {
		began <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}})
	p := n.accept()
	p.send(p.call(1, ftlwire.Sink, "handle", `{"id":"a","count":1}`))
	<-began
	p.conn.Send(ftlwire.Frame{Cancel: &ftlwire.Cancel{ID: 1}})
	if done := p.done(1); done.Error == nil || !errors.Is(<-ended, errNotAwaited) {
		t.Errorf("the cancelled call ended with %+v", done)
	}
	p.send(p.call(2, ftlwire.Sink, "handle", `{"id":"b","count":1}`))
	<-began
	p.conn.CloseNow()
	if err := <-ended; !errors.Is(err, fault.Unavailable) {
		t.Errorf("the call of a lost connection ended with %v", err)
	}
	n.accept() // It connects again.
}

func TestAVerbThatDoesNotLookAtItsContextKeepsNobodyFromConnectingAgain(t *testing.T) {
	n := newNode(t)
	began, finish := make(chan struct{}), make(chan struct{})
	start(t, n, behaviour{handle: func(context.Context, order) error {
		close(began)
		<-finish
		return nil
	}})
	p := n.accept()
	p.send(p.call(1, ftlwire.Sink, "handle", `{"id":"a","count":1}`))
	<-began
	p.conn.CloseNow()
	n.accept()
	close(finish)
}

func TestARunnerThatIsToldToStopFinishesWhatItHoldsAndTakesNothingNew(t *testing.T) {
	n := newNode(t)
	began, finish := make(chan struct{}), make(chan struct{})
	r := start(t, n, behaviour{handle: func(context.Context, order) error {
		close(began)
		<-finish
		return nil
	}})
	p := n.accept()
	p.send(p.call(1, ftlwire.Sink, "handle", `{"id":"a","count":1}`))
	<-began
	r.stop()
	if frame := p.receive(); frame.Draining == nil {
		t.Fatalf("received %+v", frame)
	}
	p.send(p.call(2, ftlwire.Sink, "handle", `{"id":"b","count":1}`))
	if done := p.done(2); done.Error == nil || !done.Error.NotRun {
		t.Errorf("a call after Draining ended with %+v", done)
	}
	close(finish)
	if done := p.done(1); done.Error != nil {
		t.Errorf("the call that was held ended with %+v", done.Error)
	}
	p.leave()
	if err := r.end(); err != nil {
		t.Errorf("the module ended with %v", err)
	}
}

func TestARunnerThatWasSupersededEndsInOrder(t *testing.T) {
	n := newNode(t)
	r := start(t, n, behaviour{})
	p := n.accept()
	p.conn.Send(ftlwire.Frame{Drain: &ftlwire.Drain{Superseded: true}})
	p.leave()
	if err := r.end(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestARunnerOfANodeThatGoesAwayConnectsAgain(t *testing.T) {
	n := newNode(t)
	start(t, n, behaviour{})
	p := n.accept()
	p.conn.Send(ftlwire.Frame{Drain: &ftlwire.Drain{}})
	p.leave()
	n.accept()
}

func TestWhatDoesNotEndInTimeIsGivenUp(t *testing.T) {
	n := newNode(t)
	began := make(chan struct{})
	r := start(t, n, behaviour{handle: func(ctx context.Context, _ order) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}}, func(s *settings) { s.drain = 10 * time.Millisecond })
	p := n.accept()
	p.send(p.call(1, ftlwire.Sink, "handle", `{"id":"a","count":1}`))
	<-began
	r.stop()
	if err := r.end(); !errors.Is(err, fault.Timeout) {
		t.Errorf("it ended with %v", err)
	}
}
