package deploy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
)

// many has a number of subscriptions to one topic.
func many(subscriptions int) string {
	var text strings.Builder
	text.WriteString("module many {\n  topic work many.Work\n  data Work { n Int }\n")
	for i := range subscriptions {
		fmt.Fprintf(&text, "  subscription number%d many.work\n  sink take%d(many.Work) { +subscribe number%d }\n", i, i, i)
	}
	text.WriteString("}")
	return text.String()
}

// owners counts the subscriptions of the module by the node that dispatches them.
func (n *node) owners() map[string]int {
	n.t.Helper()
	status, err := n.host.Status(n.t.Context(), ftlwire.DefaultDatabase)
	if err != nil {
		n.t.Fatal(err)
	}
	owners := map[string]int{}
	for _, one := range status.Modules[0].Subscriptions {
		owners[one.Node]++
	}
	return owners
}

func TestThreeNodesShareTheSubscriptionsAndEachEventIsDispatchedByOne(t *testing.T) {
	const subscriptions, events = 30, 5
	schema := postgrestest.Schema()
	nodes := []*node{newNodeOn(t, schema), newNodeOn(t, schema), newNodeOn(t, schema)}
	nodes[0].provision("d1", many(subscriptions))
	var mu sync.Mutex
	handled, order := map[string]int{}, map[string]uint64{}
	for _, n := range nodes {
		r := n.connect("many", "d1", 8)
		go func() {
			for {
				select {
				case c := <-r.calls:
					mu.Lock()
					handled[c.Verb]++
					if order[c.Verb] >= c.Position || c.Delivery != 1 {
						t.Errorf("%s gets %d, delivery %d, after %d", c.Verb, c.Position, c.Delivery, order[c.Verb])
					}
					order[c.Verb] = c.Position
					mu.Unlock()
					r.succeed(c)
				case <-t.Context().Done():
					return
				}
			}
		}()
	}
	eventually(t, "three nodes share them", func() bool {
		owners := nodes[1].owners()
		return len(owners) == 3 && owners[""] == 0
	})
	all := func(count int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			for i := range subscriptions {
				if handled[fmt.Sprintf("take%d", i)] != count {
					return false
				}
			}
			return true
		}
	}
	for i := range events {
		nodes[i%3].publish("many_work", i)
	}
	eventually(t, "every subscription has had every event", all(events))

	// One that leaves hands its subscriptions over without a gap or a repeat.
	began := time.Now()
	nodes[2].stop()
	for i := range events {
		nodes[i%2].publish("many_work", i)
	}
	eventually(t, "every subscription has had every event", all(2*events))
	t.Logf("after a node had left, all was handled in %s", time.Since(began))
	if owners := nodes[0].owners(); len(owners) != 2 {
		t.Errorf("after a node left, the owners are %v", owners)
	}
}

func TestSubscribersAndMappersAreReadableInPostgreSQL(t *testing.T) {
	schema := postgrestest.Schema()
	n := newNodeOn(t, schema)
	n.provision("d1", payments(""))
	n.provision("r1", receipts)
	n.connect("payments", "d1", 8)
	n.connect("receipts", "r1", 8)
	cluster := postgrestest.Shared(t)
	for query, want := range map[string]string{
		"SELECT database, subscription, sink_ref FROM " + schema + ".topic_subscribers":                            "main | payments.paymentProcessing | payments.processPayin",
		"SELECT input_subscription, verb_ref, output_topic FROM " + schema + ".topic_mappers":                      "receipts.receiptWriting | receipts.toReceipt | receipts.receipts",
		"SELECT name FROM " + schema + ".topics WHERE name = 'receipts_sales'":                                     "receipts_sales",
		"SELECT name, committed FROM " + schema + ".topic_subscriptions WHERE name = 'payments.paymentProcessing'": "payments.paymentProcessing | 0",
	} {
		shown := strings.Join(strings.Fields(cluster.Query(t, query)), " ")
		if !strings.Contains(shown, want) {
			t.Errorf("%s shows %s, not %s", query, shown, want)
		}
	}
}
