package deploy_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/deploy"
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
