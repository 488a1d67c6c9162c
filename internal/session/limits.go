package session

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/value"
)

// Limits bound what the statements of a session may take from others. The zero
// value is what an embedded store has: its callers have contexts of their own.
type Limits struct {
	// StatementTime is how long one statement may run before it answers
	// fault.Timeout; 0 for as long as its context lives. A statement whose
	// commit is on its way is always told how that ended.
	StatementTime time.Duration
	// AnswerRows and AnswerBytes bound one SELECT, UPDATE or DELETE. Default:
	// MaxAnswerRows and MaxAnswerBytes.
	AnswerRows, AnswerBytes int
	// Waiting counts the reads that wait, of all sessions that share it; nil
	// for no bound.
	Waiting *Waiting
}

func (l Limits) withDefaults() Limits {
	if l.AnswerRows <= 0 {
		l.AnswerRows = MaxAnswerRows
	}
	if l.AnswerBytes <= 0 {
		l.AnswerBytes = MaxAnswerBytes
	}
	return l
}

// Waiting counts the reads that wait for messages, READ … WAIT and FOLLOW,
// refuses those past a limit, and ends all of them when it is stopped. It is
// safe for concurrent use.
type Waiting struct {
	limit int64
	count atomic.Int64
	// stopped ends when no read may wait any more.
	stopped context.Context
	stop    context.CancelFunc
}

// NewWaiting admits a number of waiting reads at once.
func NewWaiting(limit int) *Waiting {
	w := &Waiting{limit: int64(limit)}
	w.stopped, w.stop = context.WithCancel(context.Background())
	return w
}

// Count is how many reads wait now.
func (w *Waiting) Count() int { return int(w.count.Load()) }

// Stop ends every read that waits, and refuses others, with fault.Unavailable:
// nothing was taken from the topic for them. Stopping twice does nothing.
func (w *Waiting) Stop() { w.stop() }

// errStopped is what a read answers whose wait was ended.
var errStopped = fault.New(fault.Unavailable, "the node is shutting down and ends what waits; nothing was read, ask another node, or again when it is back")

// Enter admits a read that waits, or refuses it with fault.Unavailable. It
// waits under the context returned, whose cause tells why it ended, and leaves
// by the function returned.
func (w *Waiting) Enter(ctx context.Context) (waiting context.Context, leave func(), err error) {
	if w == nil {
		return ctx, func() {}, nil
	}
	if w.stopped.Err() != nil {
		return ctx, nil, errStopped
	}
	if w.count.Add(1) > w.limit {
		w.count.Add(-1)
		return ctx, nil, fault.New(fault.Unavailable, "%d reads wait on this node, which is its limit; ask again later, or READ without WAIT", w.limit)
	}
	waiting, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(w.stopped, func() { cancel(errStopped) })
	return waiting, func() {
		unhook()
		cancel(nil)
		w.count.Add(-1)
	}, nil
}

// executeInTime runs a statement within the time that one may take, and tells
// the end of that time from the end of the caller's patience.
func (s *Session) executeInTime(ctx context.Context, statement lang.Statement) (Answer, error) {
	limited := ctx
	if s.limits.StatementTime > 0 {
		var done context.CancelFunc
		limited, done = context.WithTimeout(ctx, s.limits.StatementTime)
		defer done()
	}
	answer, err := s.execute(limited, statement)
	if err == nil || !ended(err) || limited.Err() == nil {
		return answer, err
	}
	if ctx.Err() == nil {
		return answer, fault.New(fault.Timeout, "the statement ran for %s, which is the limit; ask for less at once, or let it be raised", s.limits.StatementTime)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return answer, fault.New(fault.Timeout, "the time for the statement has passed: %w", ctx.Err())
	}
	return answer, fault.New(fault.Cancelled, "the caller gave up: %w", ctx.Err())
}

// ended reports whether an error only says that a context ended.
func ended(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, fault.Timeout) || errors.Is(err, fault.Cancelled)
}

// InTransaction reports whether a transaction is open.
func (s *Session) InTransaction() bool { return s.tx != nil }

// Abandon rolls the open transaction back and gives up what it holds, for the
// reason given. To its caller it is open still, and failed: every statement
// answers that until COMMIT or CANCEL.
func (s *Session) Abandon(reason error) {
	if s.tx == nil {
		return
	}
	s.tx.Cancel()
	if s.failure == nil {
		s.failure = fault.Of(reason)
	}
}

// weight is about how many bytes a value takes, of an answer that is held.
func weight(v value.Value) int {
	const each = 16
	switch v.Kind() {
	case value.KindString:
		s, _ := v.AsString()
		return each + len(s)
	case value.KindBytes:
		b, _ := v.AsBytes()
		return each + len(b)
	case value.KindArray:
		elements, _ := v.AsArray()
		total := each
		for _, element := range elements {
			total += weight(element)
		}
		return total
	case value.KindObject:
		fields, _ := v.AsObject()
		total := each
		for name, field := range fields {
			total += each + len(name) + weight(field)
		}
		return total
	}
	return each
}
