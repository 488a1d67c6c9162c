package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// The times of looking for a node.
const (
	defaultPatience = 30 * time.Second
	// dialTime is how long one node may take to open a session: one that takes
	// longer is as good as dead while others are there.
	dialTime = 5 * time.Second
	// firstPause and maxPause bound the pause between two rounds over all nodes,
	// which doubles, and of which a random half is taken off.
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// nodes are the nodes of a store, of which one is preferred: the first, until it
// fails. All sessions go to that one, so that what one has written another of
// the same program sees.
type nodes struct {
	urls     []string // as they were given, with their passwords
	shown    []string // without
	options  Options
	patience time.Duration
	log      *slog.Logger
	// closed ends with the store.
	closed context.Context

	mu sync.Mutex
	// The following are protected by mu.
	preferred int
	failing   []failure
}

// failure is why a node is not used, and since when; the zero one is none.
type failure struct {
	since time.Time
	err   error
}

// newNodes reads the URLs of nodes, separated by commas. One without a scheme
// has that of the one before it, and its user.
func newNodes(closed context.Context, addresses string, options Options) (*nodes, error) {
	n := &nodes{options: options, patience: options.Patience, log: options.Log, closed: closed}
	if n.patience == 0 {
		n.patience = defaultPatience
	}
	if n.log == nil {
		n.log = slog.Default()
	}
	begin := ""
	for address := range strings.SplitSeq(addresses, ",") {
		address = strings.TrimSpace(address)
		if !strings.Contains(address, "://") {
			address = begin + address
		}
		socket, _, err := handshake(address, options)
		if err != nil {
			return nil, err
		}
		if u, err := url.Parse(address); err == nil {
			begin = (&url.URL{Scheme: u.Scheme, User: u.User}).String()
			if u.User == nil {
				begin = u.Scheme + "://"
			} else {
				begin += "@"
			}
		}
		n.urls = append(n.urls, address)
		n.shown = append(n.shown, strings.TrimSuffix(socket, "/ws"))
	}
	n.failing = make([]failure, len(n.urls))
	return n, nil
}

// dial opens a session on the first node that answers, beginning with the one
// preferred, and goes on looking until the patience or ctx ends. A node's
// refusal, but that it is unavailable, ends it at once: the others would refuse
// the same.
func (n *nodes) dial(ctx context.Context, namespace, database string) (*Session, error) {
	began := time.Now()
	pause := pauses{}
	for {
		for range n.urls {
			i := n.now()
			s, err := n.dialNode(ctx, i, namespace, database)
			switch {
			case err == nil:
				n.found(i)
				return s, nil
			case n.closed.Err() != nil:
				return nil, errClosed
			case ctx.Err() != nil:
				return nil, fault.New(fault.Cancelled, "the caller gave up before a node answered: %w", ctx.Err())
			case !errors.Is(err, fault.Unavailable):
				return nil, err
			}
			n.failed(i, err)
		}
		if time.Since(began) > n.patience {
			return nil, n.noNode(time.Since(began))
		}
		if err := pause.take(ctx, n.closed); err != nil {
			return nil, err
		}
	}
}

var errClosed = fault.New(fault.Cancelled, "the store was closed")

func (n *nodes) dialNode(ctx context.Context, i int, namespace, database string) (*Session, error) {
	dialing, done := context.WithTimeout(ctx, dialTime)
	defer done()
	defer context.AfterFunc(n.closed, done)()
	options := n.options
	options.Namespace, options.Database = namespace, database
	s, err := Dial(dialing, n.urls[i], options)
	if err != nil {
		return nil, err
	}
	s.node = i
	return s, nil
}

func (n *nodes) now() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.preferred
}

// failed notes that a node failed; the next one is preferred.
func (n *nodes) failed(i int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing[i].err == nil {
		n.failing[i].since = time.Now()
		n.log.Warn("a node of the store does not answer", "node", n.shown[i], "error", err)
	}
	n.failing[i].err = err
	if n.preferred == i {
		n.preferred = (i + 1) % len(n.urls)
	}
}

// found notes that a node answers.
func (n *nodes) found(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if since := n.failing[i].since; !since.IsZero() {
		n.log.Info("a node of the store answers again", "node", n.shown[i], "after", time.Since(since).Round(time.Millisecond))
	}
	n.failing[i] = failure{}
}

// noNode is the error when the patience is over: every node, since when it does
// not answer, and why.
func (n *nodes) noNode(looked time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var each []string
	for i, failing := range n.failing {
		if failing.err != nil {
			each = append(each, fmt.Sprintf("%s, for %s: %s", n.shown[i], time.Since(failing.since).Round(time.Second), fault.Of(failing.err).Message))
		}
	}
	return neverSent(fault.New(fault.Unavailable, "no node of the store has answered for %s, which is the patience; the next request looks again (%s)",
		looked.Round(time.Second), strings.Join(each, "; ")))
}

// pauses are the pauses between tries, each about twice the one before. The zero
// value begins with the first.
type pauses struct{ next time.Duration }

// take pauses, unless ctx or the store ends.
func (p *pauses) take(ctx, closed context.Context) error {
	p.next = min(max(2*p.next, firstPause), maxPause)
	timer := time.NewTimer(p.next/2 + rand.N(p.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-closed.Done():
		return errClosed
	case <-ctx.Done():
		return fault.New(fault.Cancelled, "the caller gave up before a node answered: %w", ctx.Err())
	}
}
