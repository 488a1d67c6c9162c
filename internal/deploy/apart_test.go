package deploy_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/deploy"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/store"
)

func TestASubscriptionThatFailsAndOneWithoutASinkDelayNoOther(t *testing.T) {
	n := newNode(t)
	n.provision("d1", `module shop {
		topic orders shop.Order
		data Order { n Int }
		subscription failing orders
		subscription sinkless orders
		subscription working orders
		sink fail(shop.Order) { +subscribe failing +retry 3 1h 1h }
		sink work(shop.Order) { +subscribe working }
	}`)
	r := n.connect("shop", "d1", 8)
	n.publish("shop_orders", 1, 2, 3)
	var worked []int
	for range 4 { // The failing one has but its first event, which waits an hour.
		c := r.next()
		if c.Verb == "fail" {
			r.fail(c, "no")
			continue
		}
		worked = append(worked, int(c.Position))
		r.succeed(c)
	}
	mustBe(t, "the other subscription has had", worked, []int{1, 2, 3})
	eventually(t, "it is settled", func() bool { return n.status("shop.working").Lag == 0 })
	for _, stuck := range []string{"shop.failing", "shop.sinkless"} {
		if s := n.status(stuck); s.Lag != 3 {
			t.Errorf("%s has %d events before it, not 3", stuck, s.Lag)
		}
	}
}

// looks counts the snapshots that are taken of an engine's spaces.
type looks struct {
	engine.Engine
	engine.Roll
	count atomic.Int64
}

func (l *looks) Space(ctx context.Context, id engine.SpaceID) (engine.Space, error) {
	space, err := l.Engine.Space(ctx, id)
	return lookedAt{space, &l.count}, err
}

type lookedAt struct {
	engine.Space
	count *atomic.Int64
}

func (s lookedAt) Snapshot(ctx context.Context) (engine.Snapshot, error) {
	s.count.Add(1)
	return s.Space.Snapshot(ctx)
}

func TestWithNobodySubscribedNothingPolls(t *testing.T) {
	e, err := postgres.Open(t.Context(), postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: postgrestest.Schema()})
	if err != nil {
		t.Fatal(err)
	}
	counted := &looks{Engine: e, Roll: e}
	n := startNodeWith(t, counted, store.Options{HousekeepingEvery: -1}, 0)
	n.provision("d1", payments(""))
	r := n.connect("payments", "d1", 8)
	n.publish("payments_payins", 1)
	r.succeed(must(t, r.next(), "processPayin", 1, 1))
	eventually(t, "it is settled", func() bool { return n.status(processing).Lag == 0 })
	r.conn.Close("")
	eventually(t, "nobody dispatches it", func() bool { return n.status(processing).Node == "" })
	// That nothing comes shows only when it is waited for: two of its periods, from
	// when what was under way has ended.
	eventually(t, "nobody looks at the store", func() bool {
		before := counted.count.Load()
		time.Sleep(time.Second)
		return counted.count.Load() == before
	})
}

// buffer is a log that is written and read at once.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder // protected by mu
}

func (b *buffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestEventsThatRetentionRemovedBeforeTheyWereHandledAreInStatusAndLog(t *testing.T) {
	n := newNode(t)
	// A host of its own, whose log the test reads.
	log := &buffer{}
	n.host = deploy.Start(deploy.Options{Store: n.store, Log: slog.New(slog.NewTextHandler(log, nil))})
	server := httptest.NewServer(n.host.Handler())
	n.url = "ws" + strings.TrimPrefix(server.URL, "http")
	t.Cleanup(func() {
		n.host.Stop(context.Background())
		server.Close()
	})
	n.provision("d1", `module shop {
		topic orders shop.Order { +retainBytes 4 }
		data Order { n Int }
		subscription working orders
		sink work(shop.Order) { +subscribe working }
	}`)
	n.publish("shop_orders", 1, 2, 3) // each removes the one before
	r := n.connect("shop", "d1", 8)
	r.succeed(must(t, r.next(), "work", 3, 1))
	eventually(t, "it is settled", func() bool { return n.status("shop.working").Lag == 0 })
	if lapsed := n.status("shop.working").Lapsed; lapsed != 2 {
		t.Errorf("%d events lapsed, want 2", lapsed)
	}
	if !strings.Contains(log.String(), "subscription=shop.working") || !strings.Contains(log.String(), "lapsed=2") {
		t.Errorf("the log does not say that 2 events lapsed:\n%s", log)
	}
}
