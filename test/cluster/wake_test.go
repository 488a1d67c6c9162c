package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// openStore opens the store in a schema and its database.
func openStore(t testing.TB, options postgres.Options) (*store.Store, *store.Database) {
	t.Helper()
	ctx := t.Context()
	e, err := postgres.Open(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(ctx, e, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.DefineNamespace(ctx, "shop", true); err != nil {
		t.Fatal(err)
	}
	if err := s.DefineDatabase(ctx, "shop", "orders", true); err != nil {
		t.Fatal(err)
	}
	db, err := s.Database(ctx, "shop", "orders")
	if err != nil {
		t.Fatal(err)
	}
	return s, db
}

// define changes definitions in a transaction.
func define(t testing.TB, db *store.Database, change func(ctx context.Context, tx *store.Tx) error) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Cancel()
	if err := change(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func defineTopics(t testing.TB, db *store.Database, names ...string) {
	t.Helper()
	define(t, db, func(ctx context.Context, tx *store.Tx) error {
		for _, name := range names {
			if err := tx.DefineTable(ctx, store.Table{Name: name, Kind: store.Topic}, store.Refuse); err != nil {
				return err
			}
		}
		return nil
	})
}

func appendOne(t testing.TB, db *store.Database, name string) topic.Position {
	t.Helper()
	messages, err := db.Append(t.Context(), name, store.NewMessage{Value: value.Int(1)})
	if err != nil {
		t.Fatal(err)
	}
	return messages[0].Position
}

// wakeWithin is in what time a wait on one node ends for an append on another.
const wakeWithin = 100 * time.Millisecond

func TestAWaitOnOneNodeIsEndedByAnAppendOnAnotherWithin100Milliseconds(t *testing.T) {
	for name, quiet := range map[string]bool{"with NOTIFY": false, "without NOTIFY": true} {
		t.Run(name, func(t *testing.T) {
			options := postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: postgrestest.Schema(), DisableNotify: quiet}
			_, writing := openStore(t, options)
			_, waiting := openStore(t, options)
			defineTopics(t, writing, "events")
			var took []time.Duration
			var after topic.Position
			for range 15 {
				woken := make(chan time.Time, 1)
				from := after
				go func() {
					page, err := waiting.Read(t.Context(), "events", store.ReadOptions{After: &from, Limit: 1}, time.Minute)
					if err != nil || len(page.Messages) != 1 {
						t.Errorf("waited for one message and got %d, %v", len(page.Messages), err)
					}
					woken <- time.Now()
				}()
				time.Sleep(20 * time.Millisecond) // So that most of the rounds find it asleep.
				after = appendOne(t, writing, "events")
				appended := time.Now()
				took = append(took, (<-woken).Sub(appended))
			}
			slices.Sort(took)
			if median := took[len(took)/2]; median > wakeWithin {
				t.Fatalf("waking took %v", took)
			}
		})
	}
}

// What a group's member on one node hands back, one on another gets.
func TestAMemberIsWokenByWhatAnotherNodeHandsBack(t *testing.T) {
	options := postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: postgrestest.Schema()}
	_, one := openStore(t, options)
	_, other := openStore(t, options)
	defineTopics(t, one, "events")
	define(t, one, func(ctx context.Context, tx *store.Tx) error {
		return tx.DefineGroup(ctx, "events", "mailer", topic.GroupDefinition{AckDeadline: time.Hour, InFlight: 1}, nil, store.Refuse)
	})
	appendOne(t, one, "events")
	for i, back := range []store.Settlement{
		{Kind: store.Return, Delay: new(time.Duration)}, {Kind: store.Release}, {Kind: store.Acknowledge},
	} {
		page, err := one.Read(t.Context(), "events", store.ReadOptions{Consumer: "mailer", Limit: 1}, time.Minute)
		if err != nil || len(page.Messages) != 1 {
			t.Fatalf("step %d: took %d messages, %v", i, len(page.Messages), err)
		}
		m := page.Messages[0]
		appendOne(t, one, "events") // What comes when the one in flight is settled.
		got := make(chan store.Page, 1)
		go func() {
			page, err := other.Read(t.Context(), "events", store.ReadOptions{Consumer: "mailer", Limit: 1}, time.Minute)
			if err != nil {
				t.Error(err)
			}
			got <- page
		}()
		time.Sleep(50 * time.Millisecond) // So that the other's member waits; where it does not yet, it is not woken but served.
		back.At = []topic.Settle{{Position: m.Position, Delivery: m.Deliveries}}
		if n, err := one.Settle(t.Context(), "events", "mailer", back); err != nil || n != 1 {
			t.Fatalf("step %d: settled %d, %v", i, n, err)
		}
		settled := time.Now()
		select {
		case page := <-got:
			if took := time.Since(settled); took > 5*wakeWithin {
				t.Errorf("step %d: waking took %v", i, took)
			}
			next := page.Messages[0]
			at := []topic.Settle{{Position: next.Position, Delivery: next.Deliveries}}
			if _, err := other.Settle(t.Context(), "events", "mailer", store.Settlement{Kind: store.Release, At: at}); err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("step %d: the other node's member is not woken", i)
		}
	}
}

// A thousand readers on one node wait for quiet topics, while another node
// appends to a busy one.
func TestAThousandWaitingReadersCostAppendsNothing(t *testing.T) {
	const readers, topics, appends = 1000, 20, 100
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	toWriter, toWaiter := newProxy(t, cluster.Port()), newProxy(t, cluster.Port())
	_, writing := openStore(t, postgres.Options{URL: toWriter.url(), Schema: schema})
	_, waiting := openStore(t, postgres.Options{URL: toWaiter.url(), Schema: schema})
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprintf("quiet_%d", i)
	}
	defineTopics(t, writing, append(names, "busy")...)
	measure := func() (writer, waiter int64) {
		writer, waiter = toWriter.statements.Load(), toWaiter.statements.Load()
		for range appends {
			appendOne(t, writing, "busy")
		}
		return toWriter.statements.Load() - writer, toWaiter.statements.Load() - waiter
	}
	appendOne(t, writing, "busy")
	alone, _ := measure()

	var woken atomic.Int64
	var reading sync.WaitGroup
	for i := range readers {
		reading.Go(func() {
			after := topic.Position(0)
			page, err := waiting.Read(t.Context(), names[i%topics], store.ReadOptions{After: &after, Limit: 1}, time.Minute)
			if err != nil || len(page.Messages) != 1 {
				t.Errorf("reader %d got %d messages, %v", i, len(page.Messages), err)
			}
			woken.Add(1)
		})
	}
	// At rest a node asks for commits, keeps house and says that it is alive: some
	// 50 statements in half a second. A thousand readers that begin ask more.
	const window, atRest = 500 * time.Millisecond, 100
	began, before := time.Now(), int64(0)
	nodetest.Eventually(t, 30*time.Second, func() bool {
		if time.Since(began) < window {
			return false
		}
		now := toWaiter.statements.Load()
		asked := now - before
		began, before = time.Now(), now
		return asked <= atRest && now > readers
	}, "a thousand readers rest")
	writer, waiter := measure()
	if writer > alone+alone/4 {
		t.Errorf("%d appends cost their node %d statements, and %d while a thousand wait elsewhere", appends, alone, writer)
	}
	// A look is a few statements, and a commit causes one at most.
	if most := int64(10 * appends); waiter > most {
		t.Errorf("%d appends to another topic cost the node of the readers %d statements, want %d at most", appends, waiter, most)
	}
	if n := woken.Load(); n != 0 {
		t.Errorf("%d readers of other topics were woken", n)
	}
	for _, name := range names {
		appendOne(t, writing, name)
	}
	reading.Wait()
}

func TestADefinitionMadeOnOneNodeIsInForceOnAnothersNextCommit(t *testing.T) {
	options := postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: postgrestest.Schema()}
	_, one := openStore(t, options)
	_, other := openStore(t, options)
	defineTopics(t, one, "events")
	appendOne(t, other, "events") // So that the other node knows the definitions as they are.
	for round, most := range []int64{1, 0, 1, 0} {
		define(t, one, func(ctx context.Context, tx *store.Tx) error {
			return tx.AlterTopic(ctx, "events", func(d *topic.TopicDefinition) error {
				d.MaxBytes = most
				return nil
			})
		})
		_, err := other.Append(t.Context(), "events", store.NewMessage{Value: value.String("longer than a byte")})
		if refused := err != nil; refused != (most == 1) {
			t.Fatalf("round %d: with MAX BYTES %d on one node, the other answers %v", round, most, err)
		}
	}
}
