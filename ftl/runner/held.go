package runner

import (
	"context"
	"errors"
	"sync"

	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/workers"
)

// held are the calls that a node has given to the process.
type held struct {
	process *process
	conn    *ftlwire.Conn
	running workers.Group

	mu sync.Mutex
	// The following are protected by mu. calls are those that run; draining says
	// that no more are begun.
	calls    map[uint64]context.CancelCauseFunc
	draining bool
}

func newHeld(p *process, conn *ftlwire.Conn) *held {
	return &held{process: p, conn: conn, calls: map[uint64]context.CancelCauseFunc{}}
}

// errNotAwaited ends a call whose outcome the node does not wait for any more.
var errNotAwaited = errors.New("the event was settled or handed to another meanwhile")

// begin begins a call, or says that it does not. Credit bounds how many run.
func (h *held) begin(c *ftlwire.Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		h.conn.Send(ftlwire.Frame{Done: &ftlwire.Done{ID: c.ID, Error: &ftlwire.Error{Message: "the runner drains", NotRun: true}}})
		return
	}
	ctx, cancel := context.WithCancelCause(h.process.running)
	h.calls[c.ID] = cancel
	h.process.calls.Add(1)
	h.running.Go(func() {
		defer h.process.calls.Done()
		done := h.process.answer(ctx, c)
		cancel(nil)
		// It is sent before it is counted as done, so that a connection that
		// drains is not closed in between.
		h.conn.Send(ftlwire.Frame{Done: done})
		h.mu.Lock()
		delete(h.calls, c.ID)
		h.mu.Unlock()
	})
}

// cancel ends the context of a call.
func (h *held) cancel(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cancel := h.calls[id]; cancel != nil {
		cancel(errNotAwaited)
	}
}

// drain begins no more calls, and closes the connection when those that run
// have been answered.
func (h *held) drain() {
	h.mu.Lock()
	already := h.draining
	h.draining = true
	h.mu.Unlock()
	if already {
		return
	}
	go func() {
		h.running.Wait()
		h.conn.Close("drained")
	}()
}

// lost ends the contexts of the calls that run, whose outcomes nobody hears. It
// does not wait for them: a verb that does not look at its context must not keep
// the process from connecting again.
func (h *held) lost(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for _, cancel := range h.calls {
		cancel(cause)
	}
}
