// Package deploy is modules in the node: it provisions what a module's schema
// declares, and dispatches the events of its subscriptions to the runners that
// are connected. It knows nothing of Go source (package ftl/extract makes the
// schema) and nothing of how a verb runs (package ftl/runner).
//
// Five ideas:
//
//   - What there is stands in the store: a topic of a module is a topic, a
//     subscription is a group, and what else must outlive a node (deployments,
//     who subscribes, the last error of an event) is rows of collections in the
//     same database. Memory holds only what is being done.
//   - A deployment is provisioned first, in one transaction, and takes over
//     when its first runner says hello, in another. Until then the one before it
//     goes on, so a build that does not start takes nothing away. The old one's
//     runners then finish what they hold.
//   - Which node dispatches a subscription is decided by rendezvous hashing over
//     the live nodes that have a runner of the module, and every node decides it
//     for itself from the same rows. A runner therefore serves through the nodes
//     it is connected to, and no event travels between nodes. Two nodes that
//     disagree for a moment do no harm: the group's record decides who has an
//     event.
//   - An event is handed out by a commit, called, and settled by a commit that
//     names that hand-out. What is lost in between comes again: after its
//     deadline where a node was lost, at once where a runner was.
//   - Every subscription has a goroutine of its own, and of a runner's calls a
//     share of its own (credit), so that what is slow or fails delays itself.
package deploy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// The bounds of dispatch.
const (
	// AckDeadline is how long an event is with a runner before it is handed out
	// again, if nobody says that it is still worked on. The node that has handed
	// it out says so every Options.ExtendEvery.
	AckDeadline = 30 * time.Second
	// extendEvery leaves room for two that fail.
	extendEvery = AckDeadline / 3
	// lookEvery is how often a node of several looks what the others deployed
	// and which runners they have. Alone, it is told, and never looks by itself.
	lookEvery = 500 * time.Millisecond
	// helloTime is how long a runner may take to say hello.
	helloTime = 10 * time.Second
	// MaxCredit bounds how many calls of one subscription a runner may take.
	MaxCredit = 10_000
)

// Options are a host's settings.
type Options struct {
	Store *store.Store
	// Log receives a line for every deployment, runner and event given up on.
	// Default: slog.Default().
	Log *slog.Logger
	// ExtendEvery is how often the deadline of an event is moved on while its
	// verb runs. Default: ten seconds, a third of the deadline; tests have less
	// time.
	ExtendEvery time.Duration
}

// Host is the modules of a node. It is safe for concurrent use.
type Host struct {
	store   *store.Store
	log     *slog.Logger
	metrics *metrics
	self    string
	// extendEvery is Options.ExtendEvery.
	extendEvery time.Duration

	// running ends when the node is told to stop; what was called is finished
	// all the same.
	running context.Context
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu sync.Mutex
	// The following are protected by mu.
	databases map[string]*dispatcher
	stopped   bool
}

// Start makes the modules of a node. It does nothing before the first runner
// connects.
func Start(options Options) *Host {
	h := &Host{
		store: options.Store, log: options.Log, metrics: newMetrics(),
		self:      options.Store.Node().ID.String(),
		databases: map[string]*dispatcher{}, extendEvery: options.ExtendEvery,
	}
	if h.log == nil {
		h.log = slog.Default()
	}
	if h.extendEvery == 0 {
		h.extendEvery = extendEvery
	}
	h.running, h.stop = context.WithCancel(context.Background())
	return h
}

// Stop takes no more events and no more runners, tells every runner that the
// node goes away, and returns when they have answered what they hold, or when
// ctx ends. What was not answered by then is handed out again after its
// deadline. The store is closed after it. Stopping twice does nothing.
func (h *Host) Stop(ctx context.Context) {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.stop()
	for _, d := range h.dispatchers() {
		d.drain(ctx)
	}
	h.done.Wait()
}

func (h *Host) dispatchers() []*dispatcher {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*dispatcher, 0, len(h.databases))
	for _, d := range h.databases {
		all = append(all, d)
	}
	return all
}

// wake makes this node look anew at what is deployed in a database, if it has
// anything to do with it.
func (h *Host) wake(database string) {
	h.mu.Lock()
	d := h.databases[database]
	h.mu.Unlock()
	if d != nil {
		d.wake()
	}
}

// dispatcherOf is the dispatcher of a database, which runs from its first
// runner on.
func (h *Host) dispatcherOf(database string, db *store.Database) (*dispatcher, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, errStopping
	}
	if d := h.databases[database]; d != nil {
		if d.db == db {
			return d, nil
		}
		// The database was dropped and defined again.
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		h.done.Go(func() { d.drain(gone) })
	}
	d := newDispatcher(h, db)
	h.databases[database] = d
	h.done.Go(d.run)
	return d, nil
}

// errStopping refuses runners while the node goes away.
var errStopping = fault.New(fault.Unavailable, "the node is shutting down; connect to another, or again when it is back")
