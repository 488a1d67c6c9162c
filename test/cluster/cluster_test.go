// Package cluster runs several processes on one PostgreSQL, and takes away from
// them what can be taken: a process is killed, stopped for a while, cut off from
// PostgreSQL, and PostgreSQL itself fails over to its standby. What the clients
// in the processes were told is written down, and in the end compared with what
// the store holds.
package cluster

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

var (
	clusterTime = flag.Duration("cluster.time", 20*time.Second, "how long the processes work while things are taken from them")
	clusterSeed = flag.Uint64("cluster.seed", 0, "the seed of what is taken when; 0 takes another each time")
)

// shortTime is how long they work with -short.
const shortTime = 10 * time.Second

func TestMain(m *testing.M) {
	if given := os.Getenv(orderVariable); given != "" {
		if err := obey(given); err != nil {
			fmt.Fprintln(os.Stderr, "the worker ended:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	postgrestest.Main(m)
}

// processes is how many share the store.
const processes = 3

// cluster is the processes that work on one PostgreSQL with a standby.
type cluster struct {
	testing.TB
	random           *rand.Rand
	primary, standby *postgrestest.Cluster
	nodes            [processes]*node
}

// node is a process, which is started again when it was killed, and its own ways
// to the two servers.
type node struct {
	name    string
	proxies [2]*proxy
	process *process
	// histories are the files of its processes, in their order.
	histories []string
}

func TestProcessesOnOnePostgresKeepTheirPromises(t *testing.T) {
	seed, length := *clusterSeed, *clusterTime
	if seed == 0 {
		seed = rand.Uint64()
	}
	if testing.Short() {
		length = min(length, shortTime)
	}
	t.Logf("-cluster.seed=%d -cluster.time=%v", seed, length)
	c := &cluster{TB: t, random: rand.New(rand.NewPCG(seed, 0)), primary: postgrestest.New(t)}
	c.standby = c.primary.Standby(t)
	c.define()
	for i := range c.nodes {
		c.nodes[i] = &node{name: fmt.Sprintf("node%d", i), proxies: [2]*proxy{newProxy(t, c.primary.Port()), newProxy(t, c.standby.Port())}}
		c.start(c.nodes[i])
	}
	c.disturb(length)
	for _, n := range c.nodes {
		n.process.close()
	}
	_, db := openStore(t, postgres.Options{URL: c.standby.TCP()})
	history := append(c.history(), drain(t, db)...)
	certain := map[action]int{}
	for _, o := range history {
		if o.certain() {
			certain[o.What]++
		}
	}
	t.Logf("%d operations, of which were answered: %v", len(history), certain)
	for _, what := range []action{appends, transacts, pays, rings, looks, consumes, takes, works, acknowledge, handsBack, rejects, informs, defines} {
		if certain[what] == 0 {
			t.Errorf("the processes did not %s", what)
		}
	}
	violations := check(history, readState(t, db))
	for _, violation := range violations[:min(len(violations), 20)] {
		t.Error(violation)
	}
	if t.Failed() {
		c.keep()
	}
}

func (c *cluster) define() {
	c.Helper()
	s, err := tidemark.OpenPostgres(c.Context(), c.primary.URL())
	if err != nil {
		c.Fatal(err)
	}
	db, err := s.Database(c.Context(), "shop", "orders")
	if err == nil {
		_, err = db.Exec(c.Context(), definitions, nil)
	}
	if err != nil {
		c.Fatal(err)
	}
	if err := s.Close(); err != nil {
		c.Fatal(err)
	}
}

// start starts a node's process.
func (c *cluster) start(n *node) {
	c.Helper()
	name := fmt.Sprintf("%s_%d", n.name, len(n.histories))
	history := filepath.Join(c.TempDir(), name)
	n.histories = append(n.histories, history)
	n.process = start(c, order{
		Name: name, Work: true, History: history, Seed: c.random.Uint64(),
		URL: fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable", n.proxies[0].Address(), n.proxies[1].Address()),
	})
}

// longPause is longer than a process may hold a database's row without a word.
const longPause = 7 * time.Second

// disturb takes things from the nodes for a while, and in the middle lets the
// primary crash and promotes the standby. One process is stopped from the
// beginning for so long that what it was in the middle of is taken from it.
func (c *cluster) disturb(length time.Duration) {
	c.Helper()
	began := time.Now()
	free := c.nodes[:]
	if length > 2*longPause {
		free = c.nodes[1:]
		time.Sleep(time.Second) // So that it is in the middle of something.
		c.nodes[0].process.Signal(syscall.SIGSTOP)
	}
	for failedOver := false; time.Since(began) < length; {
		if len(free) < processes && time.Since(began) > longPause {
			c.nodes[0].process.Signal(syscall.SIGCONT)
			free = c.nodes[:]
		}
		if !failedOver && time.Since(began) > length/2 {
			failedOver = true
			c.primary.Crash()
			c.standby.Promote(c)
		}
		c.disturbOne(free[c.random.IntN(len(free))])
		// The processes work meanwhile.
		time.Sleep(time.Duration(200+c.random.IntN(600)) * time.Millisecond)
	}
}

// disturbOne takes one thing from a node, mostly for a while.
func (c *cluster) disturbOne(n *node) {
	c.Helper()
	take, giveBack := func() {}, func() {}
	switch c.random.IntN(4) {
	case 0:
		n.process.Kill()
		c.start(n)
		return
	case 1:
		take, giveBack = func() { n.process.Signal(syscall.SIGSTOP) }, func() { n.process.Signal(syscall.SIGCONT) }
	case 2:
		take, giveBack = func() { n.each((*nodetest.Proxy).Cut) }, func() { n.each((*nodetest.Proxy).Heal) }
	case 3:
		take, giveBack = func() { n.each((*nodetest.Proxy).Freeze) }, func() { n.each((*nodetest.Proxy).Heal) }
	}
	take()
	// The others work meanwhile.
	time.Sleep(time.Duration(100+c.random.IntN(1200)) * time.Millisecond)
	giveBack()
}

func (n *node) each(do func(*nodetest.Proxy)) {
	for _, p := range n.proxies {
		do(p.Proxy)
	}
}

// keep keeps the histories of a test that failed.
func (c *cluster) keep() {
	c.Helper()
	kept, err := os.MkdirTemp("", "tidemark-cluster-")
	if err != nil {
		c.Fatal(err)
	}
	for _, n := range c.nodes {
		for _, path := range n.histories {
			if err := os.Rename(path, filepath.Join(kept, filepath.Base(path))); err != nil {
				c.Error(err)
			}
		}
		c.Logf("%s said at last:\n%s", n.name, n.process.Stderr)
	}
	c.Log("the histories are in", kept)
}

// history is what the clients of all processes did and were told.
func (c *cluster) history() (all []operation) {
	c.Helper()
	for _, n := range c.nodes {
		for _, path := range n.histories {
			all = append(all, readHistory(c, path)...)
		}
	}
	slices.SortStableFunc(all, func(a, b operation) int { return cmp.Compare(a.Call, b.Call) })
	return all
}
