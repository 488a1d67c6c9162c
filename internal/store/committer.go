package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// request is work that runs when a commit is sealed.
type request interface {
	// seal checks the request against the newest state and, if nothing refuses
	// it, changes that state. An error drops this request out of the commit.
	seal(s *sealing) error
	// bytes is about what the request adds to the commit.
	bytes() int
	// alone says that no other request may share the commit.
	alone() bool
	// finished is called once, when the commit is durable or has failed. It
	// must not block: the requests after it wait.
	finished(err error)
}

// The bounds of one commit. By bytes, because a commit of large messages gains
// nothing from being larger: at 1 KiB, 1,000 messages a commit were measured
// to beat 10,000 by a third.
const (
	maxCommitBytes    = 1 << 20
	maxCommitRequests = 16_384
)

// As much as this is worth a commit of its own while another is on its way.
const (
	worthBytes    = 64 << 10
	worthRequests = 64
)

// The bounds of what waits for a commit. A caller past them waits before its
// request is taken, so that a burst costs time and not memory.
const (
	maxWaitingBytes    = 16 << 20
	maxWaitingRequests = 65_536
)

// committer turns the requests that wait into commits: all of them in one, so
// that a sync is shared by however many clients wait for it.
//
// A few goroutines commit, each one commit at a time. While one waits for the
// disk another forms the next commit, from the requests that came meanwhile, once
// they are so many that forming it takes a while. Fewer wait for the disk too, and
// go along with all that come until then: were their commit formed at once, whoever
// comes after it would wait for both.
// Requests are taken inside the engine's form, where only one goroutine is at
// a time, so they are sealed in the order in which they were enqueued.
type committer struct {
	database *Database
	// known is used inside the engine's form alone.
	known sealed
	// distrust says that a commit failed after its form, so that what known
	// says may not be what the engine has.
	distrust atomic.Bool

	mu sync.Mutex
	// The following are protected by mu.
	waiting      []request
	waitingBytes int
	// spare is memory for waiting, of a commit that has finished.
	spare  []request
	closed bool
	// parked are the reads that wait for what is appended to a topic.
	parked map[ObjectID][]*parkedRead
	// committing is how many commits are on their way.
	committing int
	// room is signalled when waiting has room again.
	room *sync.Cond

	// work holds a token while requests may wait that nobody has been told of.
	work    chan struct{}
	stopped sync.WaitGroup
}

func newCommitter(database *Database, goroutines int) *committer {
	c := &committer{database: database, work: make(chan struct{}, 1)}
	c.room = sync.NewCond(&c.mu)
	c.known.sequence = forming
	for range goroutines {
		c.stopped.Go(c.run)
	}
	return c
}

// enqueue adds a request to those that wait, for one of the committer's
// goroutines to take. It blocks while too many wait.
func (c *committer) enqueue(r request) error { return c.add(r, true) }

func (c *committer) add(r request, announce bool) error {
	c.mu.Lock()
	for !c.closed && (len(c.waiting) >= maxWaitingRequests || c.waitingBytes >= maxWaitingBytes) {
		c.room.Wait()
	}
	if c.closed {
		c.mu.Unlock()
		return c.database.unavailable()
	}
	c.waiting = append(c.waiting, r)
	c.waitingBytes += r.bytes()
	if announce && c.worthCommitting() {
		c.announce()
	}
	c.mu.Unlock()
	return nil
}

// worthCommitting reports whether what waits is to be committed now, and not with
// what comes until a commit that is on its way has ended. It is called with mu
// held.
func (c *committer) worthCommitting() bool {
	return c.committing == 0 || len(c.waiting) >= worthRequests || c.waitingBytes >= worthBytes
}

// announce is called with mu held, so that work is not closed meanwhile.
func (c *committer) announce() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

// take removes the requests of the next commit from those that wait.
func (c *committer) take() []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	count, size := 0, 0
	for count < len(c.waiting) && count < maxCommitRequests && size < maxCommitBytes {
		r := c.waiting[count]
		if r.alone() && count > 0 {
			break
		}
		size += r.bytes()
		count++
		if r.alone() {
			break
		}
	}
	taken := c.waiting[:count:count]
	c.waiting = c.waiting[count:]
	c.waitingBytes -= size
	if len(c.waiting) > 0 {
		c.announce()
	} else {
		c.waiting, c.spare = c.spare, nil
	}
	c.room.Broadcast()
	return c.withParked(taken)
}

// recycle keeps the memory of requests that have finished.
func (c *committer) recycle(taken []request) {
	clear(taken)
	c.mu.Lock()
	defer c.mu.Unlock()
	if cap(taken) > cap(c.spare) {
		c.spare = taken[:0]
	}
}

func (c *committer) run() {
	for range c.work {
		if c.begin() {
			c.commit(context.Background())
		}
	}
}

// begin begins a commit, if what waits is worth one. commit ends it.
func (c *committer) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || !c.worthCommitting() {
		return false
	}
	c.committing++
	return true
}

// lead begins a commit where none is on its way.
func (c *committer) lead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.committing > 0 {
		return false
	}
	c.committing++
	return true
}

// end ends a commit. Whatever came meanwhile is the next.
func (c *committer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committing--
	if len(c.waiting) > 0 && !c.closed {
		c.announce()
	}
}

func (c *committer) hasWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) > 0
}

// commit makes one commit, which was begun, of the requests that wait.
func (c *committer) commit(ctx context.Context) {
	var taken []request
	var outcomes []error
	var formed *sealing
	var formedAt time.Time
	sequence, err := c.database.space.Commit(ctx, func(commit engine.Commit) error {
		if taken == nil {
			taken = c.take()
			outcomes = make([]error, len(taken))
		} else {
			// The engine runs the form again, since what it made was not
			// committed. What known says of that may carry the sequence of a
			// commit that another process made meanwhile.
			c.known.sequence = forming
		}
		if c.distrust.Swap(false) {
			c.known.sequence = forming
		}
		s, err := beginSealing(ctx, commit, &c.known)
		if err != nil {
			return err
		}
		formed = s
		for i, r := range taken {
			outcomes[i] = s.request(r)
			if s.failed != nil {
				return s.failed
			}
		}
		if err := s.finish(); err != nil {
			return err
		}
		s.settle()
		formedAt = time.Now()
		return nil
	})
	c.end()
	if err != nil {
		c.distrust.Store(true)
		c.database.store.metrics.failed()
		err = c.explain(err)
		if taken == nil {
			// The engine refused before the form ran. Those who wait are told,
			// since nobody may come after them to make it run.
			taken = c.take()
		}
	} else if formed != nil {
		c.database.committed(formed, sequence)
		c.database.store.metrics.committed(formedAt, formed.appended, outcomes)
	}
	for i, r := range taken {
		if err != nil {
			r.finished(err)
		} else {
			r.finished(outcomes[i])
		}
	}
	c.recycle(taken)
}

// explain gives an engine's error a kind.
func (c *committer) explain(err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}
	c.database.store.log.Error("a commit failed", slog.String("database", c.database.Name), slog.Any("error", err))
	return fault.New(fault.Unavailable, "the commit failed: %w", err)
}

// close refuses further requests, commits those that wait, and returns when
// all are finished.
func (c *committer) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.stopped.Wait()
		return
	}
	c.closed = true
	c.room.Broadcast()
	c.mu.Unlock()
	for c.hasWaiting() {
		c.mu.Lock()
		c.committing++
		c.mu.Unlock()
		c.commit(context.Background())
	}
	c.mu.Lock()
	close(c.work)
	c.mu.Unlock()
	c.stopped.Wait()
}

// A waiter is told the outcome of its request.
type waiter struct{ outcome chan error }

func newWaiter() waiter { return waiter{outcome: make(chan error, 1)} }

func (w waiter) finished(err error) { w.outcome <- err }

// submit enqueues a request and waits for its outcome. A context that ends
// does not take back what was enqueued: the caller is told when it is decided,
// so that it never holds an answer that is not true.
func submit(ctx context.Context, c *committer, r request, w waiter) error {
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	// Where nothing is on its way the caller commits by itself: a lone client
	// is spared the way to another goroutine and back.
	leads := c.lead()
	if err := c.add(r, !leads); err != nil {
		if leads {
			c.end()
		}
		return err
	}
	if leads {
		c.commit(context.WithoutCancel(ctx))
	}
	return <-w.outcome
}

func cancelled(cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "the time for the statement has passed: %w", cause)
	}
	return fault.New(fault.Cancelled, "the caller gave up: %w", cause)
}
