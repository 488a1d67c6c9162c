package client

import (
	"context"
	"sync"

	"github.com/tidemarkdb/tidemark/fault"
)

const (
	// defaultSessions bounds the sessions of a database that are lent at once. A
	// node takes 1,024 of one address.
	defaultSessions = 64
	// maxIdle is how many of them are kept for the next request.
	maxIdle = 16
)

// pool holds the sessions of one database, each lent to one request or
// transaction at a time.
type pool struct {
	nodes               *nodes
	namespace, database string
	// slots holds a token for every session that is lent.
	slots chan struct{}

	mu sync.Mutex
	// The following are protected by mu.
	idle []*Session
	// lent are all that are open and not idle.
	lent   map[*Session]struct{}
	closed bool
}

func newPool(n *nodes, namespace, database string) *pool {
	sessions := n.options.Sessions
	if sessions <= 0 {
		sessions = defaultSessions
	}
	return &pool{nodes: n, namespace: namespace, database: database, slots: make(chan struct{}, sessions), lent: map[*Session]struct{}{}}
}

// take lends a session, which is given back or dropped.
func (p *pool) take(ctx context.Context) (*Session, error) {
	select {
	case p.slots <- struct{}{}:
	case <-p.nodes.closed.Done():
		return nil, errClosed
	case <-ctx.Done():
		return nil, fault.New(fault.Cancelled, "the caller gave up before one of %d sessions was free: %w", cap(p.slots), ctx.Err())
	}
	for s := p.takeIdle(); s != nil; s = p.takeIdle() {
		if s.Ended() == nil {
			return s, nil
		}
		p.forget(s)
	}
	s, err := p.open(ctx)
	if err != nil {
		<-p.slots
	}
	return s, err
}

// open opens a session beside those that are bounded. It is forgotten by who
// opened it.
func (p *pool) open(ctx context.Context) (*Session, error) {
	s, err := p.nodes.dial(ctx, p.namespace, p.database)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.lent[s] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		s.abort()
		return nil, errClosed
	}
	return s, nil
}

func (p *pool) takeIdle() *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	s := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	p.lent[s] = struct{}{}
	return s
}

// give takes back a session that is as it was lent.
func (p *pool) give(s *Session) {
	p.mu.Lock()
	keep := !p.closed && len(p.idle) < maxIdle
	if keep {
		delete(p.lent, s)
		p.idle = append(p.idle, s)
	}
	p.mu.Unlock()
	if !keep {
		p.forget(s)
	}
	<-p.slots
}

// drop ends a session that is not as it was lent: its connection is lost, or it
// still runs something.
func (p *pool) drop(s *Session) {
	p.forget(s)
	<-p.slots
}

// forget ends a session that is neither lent nor idle any more.
func (p *pool) forget(s *Session) {
	p.mu.Lock()
	delete(p.lent, s)
	p.mu.Unlock()
	s.abort()
}

// close ends all sessions; what they run fails.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	all := p.idle
	for s := range p.lent {
		all = append(all, s)
	}
	p.idle = nil
	p.mu.Unlock()
	for _, s := range all {
		s.abort()
	}
}
