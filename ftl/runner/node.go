package runner

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
)

// The pauses before a node is tried again.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// errSuperseded ends a process whose deployment was taken over by a newer one.
var errSuperseded = errors.New("a newer deployment has taken over")

// nodes are the connections to the nodes of the store: one each, kept up for as
// long as the process takes calls.
type nodes struct {
	process *process
	ingress string
	// end ends the process, in order.
	end func(cause error)

	mu sync.Mutex
	// superseded counts the nodes that said that another deployment has taken
	// over. It is protected by mu.
	superseded int
}

func newNodes(p *process, end func(cause error), ingress string) *nodes {
	return &nodes{process: p, end: end, ingress: ingress}
}

// keep keeps up the connection to one node until ctx ends, or the node has no
// more use for the process.
func (n *nodes) keep(ctx context.Context, url string) {
	log := n.process.log.With("node", url)
	pause := firstPause
	for ctx.Err() == nil {
		conn, welcome, err := ftlwire.Dial(ctx, url, n.process.settings.header(), n.hello())
		if err == nil {
			log.Info("the node takes the module", "name", welcome.Node)
			pause = firstPause
			if superseded := n.take(ctx, conn); superseded {
				n.leave(errSuperseded)
				return
			}
			continue
		}
		var refused *ftlwire.RefusedError
		if errors.As(err, &refused) && refused.Final {
			n.end(err)
			return
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("the node does not take the module; it is tried again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, longestPause)
	}
}

func (n *nodes) hello() ftlwire.Hello {
	s := n.process.settings
	return ftlwire.Hello{
		Database: s.database, Module: n.process.module.Name, Deployment: s.deployment,
		Credit: s.credit, Ingress: n.ingress,
	}
}

// leave counts a node that has no more use for the process, and ends it after
// the last one.
func (n *nodes) leave(cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.superseded++
	if n.superseded == len(n.process.settings.urls()) {
		n.end(cause)
	}
}

// take takes calls from a node until the connection ends: because it is lost,
// because the node drains it, or because ctx has ended. What it holds then is
// finished, and answered where that is still possible.
func (n *nodes) take(ctx context.Context, conn *ftlwire.Conn) (superseded bool) {
	held := newHeld(n.process, conn)
	stop := context.AfterFunc(ctx, func() {
		conn.Send(ftlwire.Frame{Draining: &ftlwire.Draining{}})
		held.drain()
	})
	defer stop()
	for {
		frame, err := conn.Receive(n.process.running)
		switch {
		case err != nil:
			held.lost(fault.New(fault.Unavailable, "the connection to the node was lost: %w", err))
			conn.CloseNow()
			return superseded
		case frame.Call != nil:
			held.begin(frame.Call)
		case frame.Cancel != nil:
			held.cancel(frame.Cancel.ID)
		case frame.Drain != nil:
			superseded = frame.Drain.Superseded
			held.drain()
		}
	}
}
