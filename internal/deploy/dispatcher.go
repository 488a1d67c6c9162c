package deploy

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/internal/workers"
)

// dispatcher dispatches the subscriptions of one database that are this node's.
//
//	runners connect ─► pools ─► rows of topic_runners ─► who owns what ─► feeds
//
// It makes its feeds equal to what the rows say whenever it is woken: by a
// runner or a deployment of this node, by a node that came or went, and where
// several nodes share the store every half second.
type dispatcher struct {
	host *Host
	db   *store.Database
	log  *slog.Logger

	// taking ends when no more events are taken; finishing ends when what was
	// taken is given up.
	taking, finishing context.Context
	stop, giveUp      context.CancelFunc
	// wakes holds a token when something changed here.
	wakes chan struct{}
	// looked is closed when the dispatcher will not look again.
	looked chan struct{}
	// connections are the runners', feeding the feeds, and deliveries the events
	// that are with a runner.
	connections, feeding sync.WaitGroup
	deliveries           workers.Group

	mu sync.Mutex
	// The following are protected by mu.
	pools map[poolKey]*pool
	feeds map[string]*feed
	held  map[heldKey]*delivery
	// leaving says that no connection is begun any more.
	leaving bool
}

type poolKey struct{ module, deployment string }

// heldKey names a message of a group.
type heldKey struct {
	group    string
	position topic.Position
}

func newDispatcher(h *Host, db *store.Database) *dispatcher {
	d := &dispatcher{
		host: h, db: db, log: h.log.With(slog.String("database", db.Name)),
		wakes: make(chan struct{}, 1), looked: make(chan struct{}),
		pools: map[poolKey]*pool{}, feeds: map[string]*feed{}, held: map[heldKey]*delivery{},
	}
	d.taking, d.stop = context.WithCancel(h.running)
	d.finishing, d.giveUp = context.WithCancel(context.Background())
	return d
}

func (d *dispatcher) wake() {
	select {
	case d.wakes <- struct{}{}:
	default:
	}
}

// join adds a runner, unless the dispatcher is leaving.
func (d *dispatcher) join(conn *ftlwire.Conn, hello *ftlwire.Hello, log *slog.Logger) (*runner, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leaving {
		return nil, false
	}
	key := poolKey{hello.Module, hello.Deployment}
	p := d.pools[key]
	if p == nil {
		p = newPool(hello.Module, hello.Deployment)
		d.pools[key] = p
	}
	r := newRunner(conn, hello, p, log)
	p.add(r)
	d.connections.Add(1)
	d.wake()
	return r, true
}

func (d *dispatcher) leave(r *runner) {
	r.pool.remove(r)
	d.wake()
	d.connections.Done()
}

// run keeps the feeds as they should be until the node stops.
func (d *dispatcher) run() {
	defer close(d.looked)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for failing := false; ; {
		changed := d.host.store.NodesChanged()
		err := d.reconcile(d.taking)
		if d.taking.Err() != nil {
			d.stopFeeds(nil)
			return
		}
		var again <-chan time.Time
		if err != nil {
			again = time.After(lookEvery)
			if !failing {
				d.log.Warn("what is deployed cannot be looked up; what runs goes on, and it is tried again", slog.Any("error", err))
			}
		}
		failing = err != nil
		// What others deploy or take over matters to runners that are here.
		var tick <-chan time.Time
		if d.host.store.Engine().Shared() && len(d.connected()) > 0 {
			tick = ticker.C
		}
		select {
		case <-d.taking.Done():
		case <-d.wakes:
		case <-changed:
		case <-tick:
		case <-again:
		}
	}
}

// situation is what the rows say.
type situation struct {
	modules map[string]moduleRow
	runners map[string]runnersRow
	// live are the live nodes by ID.
	live map[string]store.Node
}

func (d *dispatcher) look(ctx context.Context) (s situation, err error) {
	tx, err := d.db.Begin(ctx)
	if err != nil {
		return s, err
	}
	defer tx.Cancel()
	c := catalog{ctx, tx}
	if s.modules, err = rows[moduleRow](c, tableModules); err != nil {
		return s, err
	}
	if s.runners, err = rows[runnersRow](c, tableRunners); err != nil {
		return s, err
	}
	s.live, err = liveNodes(ctx, d.host.store)
	return s, err
}

func liveNodes(ctx context.Context, s *store.Store) (map[string]store.Node, error) {
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	live := map[string]store.Node{}
	for _, node := range nodes {
		live[node.ID.String()] = node
	}
	return live, nil
}

// reconcile tells the others which runners this node has, and makes its feeds
// those of the subscriptions that it owns.
func (d *dispatcher) reconcile(ctx context.Context) error {
	// Who came before the look had taken over by then.
	known := d.connected()
	s, err := d.look(ctx)
	if err != nil {
		return err
	}
	mine := d.runnersHere()
	if err := d.publish(ctx, s, mine); err != nil {
		return err
	}
	d.supersede(known, s)
	wanted := map[string]assignment{}
	for name, module := range s.modules {
		p := d.poolOf(name, module.Deployment)
		if p == nil || len(p.serving()) == 0 {
			continue
		}
		declared, err := parseModule(module.Schema)
		if err != nil {
			return err
		}
		owners := newRing(s.serving(name, module.Deployment, d.host.self))
		for _, subscription := range declared.Subscriptions {
			if owners.owner(d.db.Name, groupOf(name, subscription.Name)) != d.host.self {
				continue
			}
			if a, ok := assign(declared, subscription, p); ok {
				wanted[a.group] = a
			}
		}
	}
	d.stopFeeds(wanted)
	d.startFeeds(wanted)
	return nil
}

// serving are the live nodes that have a runner of a deployment, self among
// them.
func (s *situation) serving(module, deployment, self string) []string {
	nodes := []string{self}
	for _, row := range s.runners {
		if row.Module != module || row.Node == self {
			continue
		}
		if _, alive := s.live[row.Node]; !alive {
			continue
		}
		for _, one := range row.Deployments {
			if one.Deployment == deployment && one.Runners > 0 {
				nodes = append(nodes, row.Node)
			}
		}
	}
	return nodes
}

// runnersHere are the rows of this node, by module.
func (d *dispatcher) runnersHere() map[string]runnersRow {
	d.mu.Lock()
	defer d.mu.Unlock()
	mine := map[string]runnersRow{}
	for _, key := range sortedKeys(d.pools) {
		p := d.pools[key]
		if len(p.all()) == 0 {
			delete(d.pools, key)
			continue
		}
		serving := p.serving()
		if len(serving) == 0 {
			continue
		}
		row := mine[key.module]
		row.Node, row.Module = d.host.self, key.module
		one := connected{Deployment: key.deployment, Runners: len(serving), Ingress: []string{}}
		for _, r := range serving {
			if r.hello.Ingress != "" {
				one.Ingress = append(one.Ingress, r.hello.Ingress)
			}
		}
		slices.Sort(one.Ingress)
		row.Deployments = append(row.Deployments, one)
		mine[key.module] = row
	}
	return mine
}

func sortedKeys(pools map[poolKey]*pool) []poolKey {
	return slices.SortedFunc(maps.Keys(pools), func(a, b poolKey) int {
		if a.module+"/"+a.deployment < b.module+"/"+b.deployment {
			return -1
		}
		return 1
	})
}

// publish writes the rows of this node's runners where they differ from what is
// there, and removes those of nodes that are gone.
func (d *dispatcher) publish(ctx context.Context, s situation, mine map[string]runnersRow) error {
	wanted, stale := map[string]runnersRow{}, []string{}
	for module, row := range mine {
		key := d.host.self + "/" + module
		if !reflect.DeepEqual(s.runners[key], row) {
			wanted[key] = row
		}
	}
	for key, row := range s.runners {
		_, alive := s.live[row.Node]
		_, present := mine[row.Module]
		if !alive || row.Node == d.host.self && !present {
			stale = append(stale, key)
		}
	}
	if len(wanted) == 0 && len(stale) == 0 {
		return nil
	}
	return transact(ctx, d.db, func(c catalog) error {
		for key, row := range wanted {
			if err := c.put(tableRunners, key, row); err != nil {
				return err
			}
		}
		for _, key := range stale {
			if err := c.remove(tableRunners, key); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *dispatcher) poolOf(module, deployment string) *pool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pools[poolKey{module, deployment}]
}

// connected are the runners of all deployments.
func (d *dispatcher) connected() []*runner {
	d.mu.Lock()
	defer d.mu.Unlock()
	var runners []*runner
	for _, p := range d.pools {
		runners = append(runners, p.serving()...)
	}
	return runners
}

// supersede lets the runners of deployments that are not called any more finish
// what they hold.
func (d *dispatcher) supersede(runners []*runner, s situation) {
	for _, r := range runners {
		if by := s.modules[r.hello.Module].Deployment; by != r.hello.Deployment {
			r.pool.drain(r)
			r.log.Info("a runner is superseded by another deployment", slog.String("by", by))
			r.conn.Send(ftlwire.Frame{Drain: &ftlwire.Drain{Superseded: true}})
		}
	}
}

// stopFeeds stops the feeds that are not wanted as they are. What they have
// taken is finished.
func (d *dispatcher) stopFeeds(wanted map[string]assignment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for group, f := range d.feeds {
		if a, ok := wanted[group]; !ok || a.pool != f.pool {
			f.stop()
			delete(d.feeds, group)
		}
	}
}

func (d *dispatcher) startFeeds(wanted map[string]assignment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leaving {
		return
	}
	for group, a := range wanted {
		if d.feeds[group] == nil {
			d.feeds[group] = startFeed(d, a)
		}
	}
}

// drain tells the other nodes and the runners that this node goes away, and
// waits until the runners have answered what they hold, or ctx ends.
func (d *dispatcher) drain(ctx context.Context) {
	d.stop()
	<-d.looked
	d.mu.Lock()
	d.leaving = true
	var runners []*runner
	for _, p := range d.pools {
		runners = append(runners, p.all()...)
	}
	d.mu.Unlock()
	for _, r := range runners {
		r.pool.drain(r)
		r.conn.Send(ftlwire.Frame{Drain: &ftlwire.Drain{}})
	}
	if s, err := d.look(ctx); err == nil {
		if err := d.publish(ctx, s, nil); err != nil {
			d.log.Debug("the other nodes will see later that this one dispatches no more", slog.Any("error", err))
		}
	}
	stopped := context.AfterFunc(ctx, d.giveUp)
	defer stopped()
	d.feeding.Wait()
	d.deliveries.Wait()
	for _, r := range runners {
		r.conn.Close("the node is shutting down")
	}
	d.connections.Wait()
	d.giveUp()
}

// assignment is a subscription that this node dispatches, and to whom.
type assignment struct {
	module       *schema.Module
	subscription *schema.Subscription
	group, topic string
	pool         *pool
	receivers    []receiver
	deadLetter   schema.Ref
}

// receiver is a sink or a mapper.
type receiver struct {
	kind  ftlwire.Kind
	verb  string
	event string
	retry schema.Retry
	// result is the store's topic that takes what a mapper returns.
	result string
}

// assign makes an assignment of a subscription that has a sink or a mapper.
func assign(module *schema.Module, subscription *schema.Subscription, p *pool) (assignment, bool) {
	a := assignment{
		module: module, subscription: subscription, pool: p,
		group: groupOf(module.Name, subscription.Name), topic: storeTopicOf(subscription.Topic),
		deadLetter: module.DeadLetterOf(subscription.Name),
	}
	for _, sink := range module.SinksOf(subscription.Name) {
		a.receivers = append(a.receivers, receiver{kind: ftlwire.Sink, verb: sink.Name, event: sink.Event.String(), retry: sink.Policy()})
	}
	if mapper := module.MapperOf(subscription.Name); mapper != nil {
		a.receivers = []receiver{{
			kind: ftlwire.Mapper, verb: mapper.Name, event: mapper.Event.String(), retry: mapper.Policy(),
			result: storeTopicOf(mapper.Topic),
		}}
	}
	return a, len(a.receivers) > 0
}

// receiver is who takes an event: of several sinks always the same, so that an
// event's attempts are all of one verb's policy.
func (a *assignment) receiver(p topic.Position) *receiver {
	return &a.receivers[int(uint64(p)%uint64(len(a.receivers)))]
}
