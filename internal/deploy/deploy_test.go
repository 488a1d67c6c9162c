package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/deploy"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// clock is a machine's clock that stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// node is a host on a store, and where its runners connect.
type node struct {
	t     testing.TB
	store *store.Store
	host  *deploy.Host
	clock *clock
	url   string
	once  sync.Once
}

// newNode starts a node in memory, whose clock stands still.
func newNode(t *testing.T) *node {
	c := &clock{now: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)}
	e, err := pebble.OpenMemory(pebble.Options{Clock: c.read})
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t, e)
	n.clock = c
	return n
}

// newNodeOn starts a node on a PostgreSQL that others may share.
func newNodeOn(t *testing.T, schema string) *node {
	e, err := postgres.Open(t.Context(), postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	return startNode(t, e)
}

// nodes counts the nodes, which else had one name: that of the process.
var nodes atomic.Int64

func startNode(t testing.TB, e engine.Engine) *node {
	t.Helper()
	return startNodeWith(t, e, store.Options{}, 10*time.Millisecond)
}

// startNodeWith starts a node that moves deadlines on every so often, 0 for the
// default.
func startNodeWith(t testing.TB, e engine.Engine, options store.Options, every time.Duration) *node {
	t.Helper()
	log := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	options.Log, options.NodeName = log, fmt.Sprintf("node %d", nodes.Add(1))
	s, err := store.Open(t.Context(), e, options)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, store: s, host: deploy.Start(deploy.Options{Store: s, Log: log, ExtendEvery: every})}
	server := httptest.NewServer(n.host.Handler())
	n.url = "ws" + strings.TrimPrefix(server.URL, "http")
	t.Cleanup(func() {
		n.stop()
		server.Close()
	})
	return n
}

// stop ends the node in order.
func (n *node) stop() {
	n.once.Do(func() {
		ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		n.host.Stop(ctx)
		if err := n.store.Close(); err != nil {
			n.t.Error(err)
		}
	})
}

// testLog shows the log of a test that fails.
type testLog struct{ t testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

func (n *node) database() *store.Database {
	n.t.Helper()
	db, err := n.store.Database(context.Background(), ftlwire.Namespace, ftlwire.DefaultDatabase)
	if err != nil {
		n.t.Fatal(err)
	}
	return db
}

// provision deploys a schema, which must be taken, with one id for its modules.
func (n *node) provision(deployment, text string) deploy.Changes {
	n.t.Helper()
	changes, err := n.tryProvision(deployment, text)
	if err != nil {
		n.t.Fatal(err)
	}
	return changes
}

func (n *node) tryProvision(deployment, text string) (deploy.Changes, error) {
	deployments := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			name, _, _ := strings.Cut(rest, " ")
			deployments[name] = deployment
		}
	}
	return n.host.Provision(n.t.Context(), ftlwire.DefaultDatabase, deployments, text)
}

// publish appends events { n: … } to a topic of the store.
func (n *node) publish(topic string, numbers ...int) {
	n.t.Helper()
	for _, number := range numbers {
		_, err := n.database().Append(n.t.Context(), topic, store.NewMessage{Value: event(number)})
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

func event(n int) value.Value { return value.Fields(value.Object{"n": value.Int(int64(n))}) }

func numberOf(v value.Value) int {
	fields, _ := v.AsObject()
	n, _ := fields["n"].AsInt()
	return int(n)
}

// events are the numbers that a topic of the store holds.
func (n *node) events(topic string) []int {
	n.t.Helper()
	page, err := n.database().Read(context.Background(), topic, store.ReadOptions{Limit: store.MaxReadLimit}, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	var numbers []int
	for _, message := range page.Messages {
		v, err := message.Value()
		if err != nil {
			n.t.Fatal(err)
		}
		numbers = append(numbers, numberOf(v))
	}
	return numbers
}

// advance moves the clock, and wakes those who wait for a time.
func (n *node) advance(d time.Duration) {
	n.t.Helper()
	n.clock.mu.Lock()
	n.clock.now = n.clock.now.Add(d)
	n.clock.mu.Unlock()
	tx, err := n.database().Begin(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	defer tx.Cancel()
	name := fmt.Sprintf("moved%d", n.clock.now.UnixNano())
	if err := tx.DefineTable(n.t.Context(), store.Table{Name: name, Kind: store.Collection}, store.Refuse); err != nil {
		n.t.Fatal(err)
	}
	if _, err := tx.Commit(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// group is a group's state in the store.
func (n *node) group(topic, name string) store.GroupState {
	n.t.Helper()
	tx, err := n.database().Begin(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	defer tx.Cancel()
	state, err := tx.GroupState(context.Background(), topic, name)
	if err != nil {
		n.t.Fatal(err)
	}
	return state
}

// status is a subscription's.
func (n *node) status(subscription string) deploy.SubscriptionStatus {
	n.t.Helper()
	status, err := n.host.Status(context.Background(), ftlwire.DefaultDatabase)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, module := range status.Modules {
		for _, one := range module.Subscriptions {
			if one.Subscription == subscription {
				return one
			}
		}
	}
	n.t.Fatalf("there is no subscription %s in %+v", subscription, status)
	return deploy.SubscriptionStatus{}
}

// runner is a fake of a module's process.
type runner struct {
	t    testing.TB
	conn *ftlwire.Conn
	// calls are those that were received.
	calls chan *ftlwire.Call
	// cancelled are the ids of calls that were cancelled, drained tells of Drain.
	cancelled chan uint64
	drained   chan *ftlwire.Drain
	done      sync.WaitGroup
}

// connect connects a runner whose calls the test answers.
func (n *node) connect(module, deployment string, credit int) *runner {
	n.t.Helper()
	conn, _, err := ftlwire.Dial(n.t.Context(), n.url, nil, ftlwire.Hello{
		Database: ftlwire.DefaultDatabase, Module: module, Deployment: deployment, Credit: credit,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	r := &runner{
		t: n.t, conn: conn,
		calls: make(chan *ftlwire.Call, 10_000), cancelled: make(chan uint64, 10_000), drained: make(chan *ftlwire.Drain, 10),
	}
	r.done.Go(r.receive)
	n.t.Cleanup(r.kill)
	return r
}

func (r *runner) receive() {
	for {
		frame, err := r.conn.Receive(context.Background())
		switch {
		case err != nil:
			return
		case frame.Call != nil:
			r.calls <- frame.Call
		case frame.Cancel != nil:
			r.cancelled <- frame.Cancel.ID
		case frame.Drain != nil:
			r.drained <- frame.Drain
		}
	}
}

// next is the next call, which must come.
func (r *runner) next() *ftlwire.Call {
	r.t.Helper()
	select {
	case c := <-r.calls:
		return c
	case <-time.After(10 * time.Second):
		r.t.Fatal("no call comes")
		return nil
	}
}

// quiet checks that no call comes.
func (r *runner) quiet() {
	r.t.Helper()
	select {
	case c := <-r.calls:
		r.t.Fatalf("a call comes: %s of position %d, attempt %d", c.Verb, c.Position, c.Attempt)
	case <-time.After(100 * time.Millisecond):
	}
}

func (r *runner) succeed(c *ftlwire.Call) {
	r.conn.Send(ftlwire.Frame{Done: &ftlwire.Done{ID: c.ID}})
}

func (r *runner) fail(c *ftlwire.Call, message string) {
	r.conn.Send(ftlwire.Frame{Done: &ftlwire.Done{ID: c.ID, Error: &ftlwire.Error{Message: message}}})
}

// kill ends the connection as a process that dies does.
func (r *runner) kill() {
	r.conn.CloseNow()
	r.done.Wait()
}

// must checks that a call is of a verb, position and attempt.
func must(t *testing.T, c *ftlwire.Call, verb string, position, attempt int) *ftlwire.Call {
	t.Helper()
	if c.Verb != verb || c.Position != uint64(position) || c.Attempt != attempt {
		t.Fatalf("the call is %s of position %d, attempt %d; want %s, %d, %d", c.Verb, c.Position, c.Attempt, verb, position, attempt)
	}
	return c
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	nodetest.Eventually(t, 10*time.Second, holds, "%s", what)
}

func mustBe(t *testing.T, what string, got, want []int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// refused checks that an error is of a kind and says something.
func refused(t *testing.T, err error, kind error, says ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("refused with %v, want %v", err, kind)
	}
	for _, word := range says {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("the refusal %q does not say %q", err, word)
		}
	}
}
