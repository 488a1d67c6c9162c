package ingest_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

// failing is an engine whose commits fail while a test says so, as those of a
// full disk or a lost PostgreSQL do.
type failing struct {
	engine.Engine
	broken  *atomic.Bool
	refused *atomic.Int64
}

func (f failing) Space(ctx context.Context, id engine.SpaceID) (engine.Space, error) {
	space, err := f.Engine.Space(ctx, id)
	return failingSpace{space, f}, err
}

type failingSpace struct {
	engine.Space
	failing failing
}

func (f failingSpace) Commit(ctx context.Context, form func(engine.Commit) error) (engine.Sequence, error) {
	broken := false
	sequence, err := f.Space.Commit(ctx, func(c engine.Commit) error {
		if err := form(c); err != nil {
			return err
		}
		if broken = f.failing.broken.Load(); broken {
			f.failing.refused.Add(1)
			return fault.New(fault.Unavailable, "no space left on device")
		}
		return nil
	})
	return sequence, err
}

func failingNode(t *testing.T) (*node, failing) {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := failing{e, new(atomic.Bool), new(atomic.Int64)}
	return newNodeOn(t, f), f
}

// waitRefused waits until the engine has refused a number of commits.
func (f failing) waitRefused(t *testing.T, n int64) {
	t.Helper()
	nodetest.Eventually(t, promised, func() bool { return f.refused.Load() >= n }, "%d commits are refused", n)
}

func TestACommitThatFailsMovesNothingQuarantinesNothingAndIsTriedAgain(t *testing.T) {
	n, engine := failingNode(t)
	n.run(orders)
	n.supervisor.Stop()
	n.run("INSERT INTO order_events [{ order_id: 1, amount: 1 }, { order_id: 2, amount: 2 }]; DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine")
	engine.broken.Store(true)
	n.startSupervisor()
	engine.waitRefused(t, 3)
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", "no space left", `"quarantined":0`, `"applied":0`, `"halted":false`)
	n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":0`, `"in_flight":0`, `"dead_lettered":0`)
	engine.broken.Store(false)
	n.eventually("SELECT count() FROM order_rows", `[{"value":{"count":2}}]`)
	n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":2`, `"redelivered":0`)
	// The error that cleared itself is told still.
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", "no space left", `"applied":2`)
}

func TestAStoreThatCannotCommitMovesNoOffsetOfKafka(t *testing.T) {
	b := newBroker(t)
	n, engine := failingNode(t)
	n.run("DEFINE TABLE orders (total int, placed_at datetime)")
	n.run(b.declare(kafkaOrders + "quarantine"))
	b.produceText("orders", `{"order_id": 1, "amount": 1}`)
	b.offset("shop-orders", "orders", 0, 1)
	engine.broken.Store(true)
	b.produceText("orders", `{"order_id": 2, "amount": 2}`, `bad`)
	engine.waitRefused(t, 3)
	b.offset("shop-orders", "orders", 0, 1)
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", "no space left", `"quarantined":0`, `"applied":1`, `"quarantine":[]`)
	engine.broken.Store(false)
	n.eventually("SELECT count() FROM orders", `[{"value":{"count":2}}]`)
	b.offset("shop-orders", "orders", 0, 3)
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"quarantined":1`, `"applied":2`, `"payload":"bad"`)
}
