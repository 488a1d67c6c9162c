package deploy

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/internal/ftlwire"
)

// runner is one that is connected to this node.
type runner struct {
	conn  *ftlwire.Conn
	hello *ftlwire.Hello
	pool  *pool
	log   *slog.Logger

	// outstanding are its calls by group, and draining says that it takes no
	// more. Both are protected by pool.mu.
	outstanding map[string]int
	total       int
	draining    bool

	mu sync.Mutex
	// The following are protected by mu.
	lastID uint64
	calls  map[uint64]chan *ftlwire.Done
}

func newRunner(conn *ftlwire.Conn, hello *ftlwire.Hello, p *pool, log *slog.Logger) *runner {
	return &runner{
		conn: conn, hello: hello, pool: p, log: log,
		outstanding: map[string]int{}, calls: map[uint64]chan *ftlwire.Done{},
	}
}

// call sends a call and returns its id, and the channel that gets its outcome. A
// connection that ends gives none: see lost.
func (r *runner) call(c *ftlwire.Call) (id uint64, outcome <-chan *ftlwire.Done) {
	answered := make(chan *ftlwire.Done, 1)
	r.mu.Lock()
	r.lastID++
	c.ID = r.lastID
	r.calls[c.ID] = answered
	r.mu.Unlock()
	r.conn.Send(ftlwire.Frame{Call: c})
	return c.ID, answered
}

// forget takes no outcome of a call any more, and tells the runner where it may
// still be at it.
func (r *runner) forget(id uint64) {
	r.mu.Lock()
	_, open := r.calls[id]
	delete(r.calls, id)
	r.mu.Unlock()
	if open {
		r.conn.Send(ftlwire.Frame{Cancel: &ftlwire.Cancel{ID: id}})
	}
}

// lost is closed when the connection has ended.
func (r *runner) lost() <-chan struct{} { return r.conn.Ended() }

// ended reports whether the connection has ended.
func (r *runner) ended() bool {
	select {
	case <-r.lost():
		return true
	default:
		return false
	}
}

// receive takes what the runner says until its connection ends.
func (r *runner) receive(ctx context.Context) {
	for {
		frame, err := r.conn.Receive(ctx)
		if err != nil {
			r.log.Debug("a runner's connection has ended", slog.Any("reason", err))
			return
		}
		switch {
		case frame.Done != nil:
			r.mu.Lock()
			answered := r.calls[frame.Done.ID]
			delete(r.calls, frame.Done.ID)
			r.mu.Unlock()
			if answered != nil {
				answered <- frame.Done
			}
		case frame.Draining != nil:
			r.log.Info("a runner goes away when it has answered what it holds")
			r.pool.drain(r)
		}
	}
}

// pool is the runners of one deployment that are connected to this node.
type pool struct {
	module, deployment string

	mu sync.Mutex
	// The following are protected by mu.
	runners []*runner
	// reserved is how many calls of a group are about to be taken.
	reserved map[string]int
	// changed is closed when there may be more room; nil while nobody waits for
	// that.
	changed chan struct{}
}

func newPool(module, deployment string) *pool {
	return &pool{module: module, deployment: deployment, reserved: map[string]int{}}
}

func (p *pool) add(r *runner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runners = append(p.runners, r)
	p.notify()
}

func (p *pool) remove(r *runner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runners = slices.DeleteFunc(p.runners, func(other *runner) bool { return other == r })
	p.notify()
}

// drain gives a runner no more calls.
func (p *pool) drain(r *runner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.draining = true
	p.notify()
}

// notify is called with mu held.
func (p *pool) notify() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// all are the runners, those that drain among them.
func (p *pool) all() []*runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.runners)
}

// serving are the runners that take calls.
func (p *pool) serving() []*runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.runners), func(r *runner) bool { return r.draining })
}

// awaitRoom waits until the runners take a call of a group, and reserves as many
// as they take, at most most. It returns 0 when ctx ends. What is reserved is
// given back with unreserve, when the events it was for have been delivered.
func (p *pool) awaitRoom(ctx context.Context, group string, most int) int {
	for {
		count, changed := p.reserve(group, most)
		if count > 0 {
			return count
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0
		}
	}
}

// reserve reserves as many calls of a group as the runners take now, at most
// most. Where they take none, changed is closed when they may.
func (p *pool) reserve(group string, most int) (count int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := -p.reserved[group]
	for _, r := range p.runners {
		if !r.draining && !r.ended() {
			free += max(r.hello.Credit-r.outstanding[group], 0)
		}
	}
	count = max(min(free, most), 0)
	if count > 0 {
		p.reserved[group] += count
		return count, nil
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return 0, p.changed
}

func (p *pool) unreserve(group string, count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reserved[group] -= count; p.reserved[group] == 0 {
		delete(p.reserved, group)
	}
	p.notify()
}

// take begins a call of a group with the runner that has fewest, nil where none
// takes one.
func (p *pool) take(group string) *runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *runner
	for _, r := range p.runners {
		switch {
		case r.draining || r.ended() || r.outstanding[group] >= r.hello.Credit:
		case best == nil, r.outstanding[group] < best.outstanding[group],
			r.outstanding[group] == best.outstanding[group] && r.total < best.total:
			best = r
		}
	}
	if best != nil {
		best.outstanding[group]++
		best.total++
	}
	return best
}

// give ends a call.
func (p *pool) give(r *runner, group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.outstanding[group]--; r.outstanding[group] == 0 {
		delete(r.outstanding, group)
	}
	r.total--
	p.notify()
}
