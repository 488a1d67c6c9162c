package modules

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/deploy"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
)

const (
	// manySubscriptions is how many subscriptions the nodes share.
	manySubscriptions = 1000
	// manyDatabase keeps them apart from the other tests' of the same PostgreSQL.
	manyDatabase = "many"
)

// manySchema is a module with one topic and manySubscriptions to it.
func manySchema() string {
	var text strings.Builder
	text.WriteString("module many {\n  topic work many.Work\n  data Work { n Int }\n")
	for i := range manySubscriptions {
		fmt.Fprintf(&text, "  subscription number%d many.work\n  sink take%d(many.Work) { +subscribe number%d }\n", i, i, i)
	}
	return text.String() + "}"
}

// A node that is killed takes a third of the subscriptions with it. Each node
// has its own connection of the runner, so that the test sees which node every
// call comes from.
func TestAThousandSubscriptionsAreSpreadOverThreeNodesAndMoveWithinFiveSecondsOfADeath(t *testing.T) {
	if testing.Short() {
		t.Skip("three nodes and a PostgreSQL: not in -short")
	}
	w := &world{t: t, store: []string{"--postgres", postgrestest.Shared(t).URL()}, nodes: make([]*process, 3)}
	for i := range w.nodes {
		w.addresses = append(w.addresses, freeAddress(t))
		w.startNode(i)
	}
	began := time.Now()
	w.askNode(0, http.MethodPost, deploy.PathDeploy, deploy.DeployRequest{
		Database: manyDatabase, Deployments: map[string]string{"many": "d1"}, Schema: manySchema(),
	}, &deploy.Changes{})
	t.Logf("they are provisioned in %s", time.Since(began))
	taken := &taking{t: t, by: map[string]int{}, last: map[string]uint64{}}
	for i, address := range w.addresses {
		taken.connect(i, "ws://"+address)
	}

	w.await("every node has a fifth of even", func() bool { return evenlySpread(w.owners(1), 3) })
	t.Logf("the nodes have %v", w.owners(1))
	began = time.Now()
	w.publish(1, 1)
	w.await("every subscription has had the first event", func() bool { return taken.had(1) == manySubscriptions })
	t.Logf("the first event is taken by all in %s; the calls come from %v", time.Since(began), taken.nodes())
	if !evenlySpread(taken.nodes(), 3) {
		t.Errorf("the calls of %d subscriptions come from %v, want each node within a fifth of even", manySubscriptions, taken.nodes())
	}
	w.await("the first event is settled", func() bool { return w.manyLag(1) == 0 })
	w.dispatchedByOwners(taken)

	began = time.Now()
	w.nodes[0].Kill()
	w.publish(1, 2)
	w.await("every subscription has had the second event", func() bool { return taken.had(2) == manySubscriptions })
	took := time.Since(began)
	t.Logf("%s after the death of a node the second event is taken by all; the calls come from %v", took, taken.nodes())
	if took > 5*time.Second {
		t.Errorf("the subscriptions of a dead node were dispatched again after %s, want five seconds", took)
	}
	if owners := w.owners(1); !evenlySpread(owners, 2) {
		t.Errorf("without the dead node the owners are %v, want each within a fifth of even", owners)
	}
	w.await("the second event is settled", func() bool { return w.manyLag(1) == 0 })
	w.dispatchedByOwners(taken)
}

// dispatchedByOwners checks that every subscription's newest call came from the
// node that owns it.
func (w *world) dispatchedByOwners(taken *taking) {
	w.t.Helper()
	taken.mu.Lock()
	defer taken.mu.Unlock()
	for _, one := range w.manyStatus(1) {
		by := taken.by[one.Subscription]
		if !strings.HasSuffix(one.Node, fmt.Sprintf("/%d", w.nodes[by].PID())) {
			w.t.Errorf("%s is owned by node %s, but was called by node %d", one.Subscription, one.Node, by)
		}
	}
}

// evenlySpread reports whether nodes have all subscriptions, each within a fifth
// of even.
func evenlySpread[Node comparable](owned map[Node]int, nodes int) bool {
	const least, most = 8, 12 // tenths of even
	total := 0
	for _, count := range owned {
		if 10*nodes*count < least*manySubscriptions || 10*nodes*count > most*manySubscriptions {
			return false
		}
		total += count
	}
	return len(owned) == nodes && total == manySubscriptions
}

// owners counts the subscriptions by the node that owns them, as a node sees it.
func (w *world) owners(i int) map[string]int {
	owned := map[string]int{}
	for _, one := range w.manyStatus(i) {
		owned[one.Node]++
	}
	return owned
}

func (w *world) manyLag(i int) (lag uint64) {
	for _, one := range w.manyStatus(i) {
		lag += one.Lag
	}
	return lag
}

func (w *world) manyStatus(i int) []deploy.SubscriptionStatus {
	var status deploy.Status
	w.askNode(i, http.MethodGet, deploy.PathStatus+"?database="+manyDatabase, nil, &status)
	return status.Modules[0].Subscriptions
}

// askNode sends a request to a node, which must answer it.
func (w *world) askNode(i int, method, path string, request, answer any) {
	w.t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		w.t.Fatal(err)
	}
	asked, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.addresses[i]+path, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	asked.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(asked)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		var refused deploy.ErrorAnswer
		_ = json.NewDecoder(response.Body).Decode(&refused)
		w.t.Fatalf("%s answers %s: %+v", path, response.Status, refused)
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		w.t.Fatal(err)
	}
}

// publish appends an event through a node.
func (w *world) publish(i, number int) {
	w.t.Helper()
	session, err := client.Dial(w.t.Context(), "ws://"+w.addresses[i], client.Options{Namespace: "ftl", Database: manyDatabase})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	answers, err := session.Run(w.t.Context(), fmt.Sprintf("CREATE many_work = { n: %d };", number), nil)
	if err != nil || answers[0].Err != nil {
		w.t.Fatal(err, answers)
	}
}

// taking is a runner of the module that is connected to all nodes, and sees that
// no subscription is dispatched by two at once.
type taking struct {
	t *testing.T

	mu sync.Mutex
	// The following are protected by mu. by is the node that a subscription's
	// newest call came from, last the position of that.
	by   map[string]int
	last map[string]uint64
}

func (k *taking) connect(node int, url string) {
	k.t.Helper()
	conn, _, err := ftlwire.Dial(k.t.Context(), url, nil, ftlwire.Hello{
		Database: manyDatabase, Module: "many", Deployment: "d1", Credit: 8,
	})
	if err != nil {
		k.t.Fatal(err)
	}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		for {
			frame, err := conn.Receive(context.Background())
			if err != nil {
				return
			}
			if frame.Call != nil {
				k.take(node, frame.Call)
				conn.Send(ftlwire.Frame{Done: &ftlwire.Done{ID: frame.Call.ID}})
			}
		}
	})
	k.t.Cleanup(func() {
		conn.CloseNow()
		receiving.Wait()
	})
}

// take notes a call. A second one of the same event, or one out of order, is
// what two nodes would make that both dispatch a subscription.
func (k *taking) take(node int, c *ftlwire.Call) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Position != k.last[c.Group]+1 || c.Delivery != 1 {
		k.t.Errorf("node %d calls %s with event %d, delivery %d, after node %d had called it with event %d",
			node, c.Verb, c.Position, c.Delivery, k.by[c.Group], k.last[c.Group])
	}
	k.by[c.Group], k.last[c.Group] = node, c.Position
}

// had counts the subscriptions that have had an event.
func (k *taking) had(position uint64) (count int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, last := range k.last {
		if last >= position {
			count++
		}
	}
	return count
}

// nodes counts the subscriptions by the node that their newest call came from.
func (k *taking) nodes() map[int]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := map[int]int{}
	for _, node := range k.by {
		counts[node]++
	}
	return counts
}
