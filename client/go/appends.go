package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// The bounds of what is on its way. A node lets one session have 8,192 requests
// on their way, and reads 8 MiB ahead of what it runs.
const (
	maxAppends     = 8192
	maxAppendBytes = 4 << 20
)

// appends sends the lone appends of a database over one session, in the order in
// which they came, many at once; so they share frames and commits, and keep
// their order.
//
// When the session is lost, the order must outlast it: what came later must not
// pass what is sent again. So what is safe to send again waits in a backlog until
// everything that was on its way is decided, and with it whatever comes
// meanwhile; then another session is opened and the backlog sent, in order.
type appends struct {
	pool *pool
	// others are the goroutines that open sessions, look identities up and tell of
	// failures.
	others sync.WaitGroup

	mu sync.Mutex
	// freed is signalled when less is on its way. It is on mu.
	freed *sync.Cond
	// The following are protected by mu.
	session *Session // nil before the first, and while there is none
	broken  bool     // what comes goes to the backlog
	backlog []*pendingAppend
	// inFlight is how many the session has not answered; count and bytes are of
	// all that are not done.
	inFlight, count, bytes int
	lastOrder              uint64
	// statements are what appends to a topic says, by the topic: without an
	// identity and with one.
	statements map[string][2]string
}

// pendingAppend is an append that is not done.
type pendingAppend struct {
	Call
	appends *appends
	ctx     context.Context
	order   uint64
	topic   string
	message NewMessage
	// params are the message, encoded.
	params []byte
	done   func(Message, bool, error)
	// unsure says that it was sent before, with an unknown outcome.
	unsure bool
}

func newAppends(p *pool) *appends {
	a := &appends{pool: p, broken: true, statements: map[string][2]string{}}
	a.freed = sync.NewCond(&a.mu)
	return a
}

// Append appends one message.
func (db *remoteDatabase) Append(ctx context.Context, topic string, message NewMessage) (m Message, appended bool, err error) {
	type outcome struct {
		message  Message
		appended bool
		err      error
	}
	done := make(chan outcome, 1)
	err = db.appends.add(ctx, topic, message, func(m Message, appended bool, err error) {
		done <- outcome{m, appended, err}
	})
	if err != nil {
		return Message{}, false, err
	}
	select {
	case o := <-done:
		return o.message, o.appended, o.err
	case <-ctx.Done():
		return Message{}, false, fault.New(fault.Cancelled, "the caller gave up before the answer; the message may be appended: %w", ctx.Err())
	}
}

// AppendAsync appends one message without waiting.
func (db *remoteDatabase) AppendAsync(ctx context.Context, topic string, message NewMessage, done func(Message, bool, error)) error {
	return db.appends.add(ctx, topic, message, done)
}

// add sends a message, or leaves it in the backlog. It waits while too much is
// on its way.
func (a *appends) add(ctx context.Context, topic string, message NewMessage, done func(Message, bool, error)) error {
	params, err := message.appendParams(make([]byte, 0, typicalParamsBytes))
	if err != nil {
		return err
	}
	p := &pendingAppend{appends: a, ctx: ctx, topic: topic, message: message, params: params, done: done}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.awaitRoom(ctx, len(params)); err != nil {
		return err
	}
	a.count++
	a.bytes += len(params)
	a.lastOrder++
	p.order = a.lastOrder
	if a.broken {
		a.backlog = append(a.backlog, p)
	} else {
		a.sendLocked(p)
	}
	// The session may have ended while nothing was on its way.
	a.reopenLocked()
	return nil
}

// awaitRoom waits until one more of a size may be on its way.
func (a *appends) awaitRoom(ctx context.Context, size int) error {
	full := func() bool { return a.count >= maxAppends || a.count > 0 && a.bytes+size > maxAppendBytes }
	if !full() {
		return a.stopped(ctx)
	}
	wake := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.freed.Broadcast()
	}
	defer context.AfterFunc(ctx, wake)()
	for full() && a.stopped(ctx) == nil {
		a.freed.Wait()
	}
	return a.stopped(ctx)
}

func (a *appends) stopped(ctx context.Context) error {
	switch {
	case a.pool.nodes.closed.Err() != nil:
		return errClosed
	case ctx.Err() != nil:
		return fault.New(fault.Cancelled, "the caller gave up; the message was not sent: %w", ctx.Err())
	}
	return nil
}

// sendLocked sends an append. Its answer comes from the session's goroutine.
func (a *appends) sendLocked(p *pendingAppend) {
	r := request{sql: a.statementLocked(p), encoded: p.params, headers: headersOf(p.ctx), brief: true, page: true}
	p.Call = Call{then: p}
	a.inFlight++
	if err := a.session.register(&p.Call, r); err != nil {
		a.inFlight--
		if !a.keepLocked(p, err) {
			a.giveUpLocked(p, err)
		}
	}
}

// maxKeptStatements bounds the statements that are kept.
const maxKeptStatements = 256

// statementLocked is what an append says.
func (a *appends) statementLocked(p *pendingAppend) string {
	kept, found := a.statements[p.topic]
	if !found {
		if len(a.statements) == maxKeptStatements {
			clear(a.statements)
		}
		kept = [2]string{createStatement(p.topic, false), createStatement(p.topic, true)}
		a.statements[p.topic] = kept
	}
	if p.message.Key.IsNone() {
		return kept[0]
	}
	return kept[1]
}

// createStatement appends $value to a topic, as $key where it is named.
func createStatement(topic string, named bool) string {
	statement := "CREATE " + value.QuoteIdentifier(topic)
	if named {
		statement += ":$key"
	}
	return statement + " = $value"
}

// typicalParamsBytes is where most messages fit without growing.
const typicalParamsBytes = 192

// appendParams appends the parameters of the statement that appends a message.
func (m NewMessage) appendParams(dst []byte) (_ []byte, err error) {
	if m.Key.IsNone() {
		dst = value.AppendObjectHead(dst, 1)
	} else if dst, err = m.Key.AppendCBOR(value.AppendName(value.AppendObjectHead(dst, 2), "key")); err != nil {
		return dst, err
	}
	return m.Value.AppendCBOR(value.AppendName(dst, "value"))
}

// answered takes the answer to an append.
func (p *pendingAppend) answered() {
	a := p.appends
	m, appended, err := messageAnswered(&p.Call)
	a.mu.Lock()
	a.inFlight--
	kept := err != nil && a.keepLocked(p, err)
	a.reopenLocked()
	a.mu.Unlock()
	switch {
	case kept:
	case p.unsure && errors.Is(err, fault.RecordExists):
		// It may be there by its own first sending.
		a.others.Go(func() { a.lookUp(p, err) })
	case err != nil || !appended:
		a.finish(p, Message{}, false, err)
	default:
		// A brief answer lacks the value.
		m.backend.(*remoteMessage).content = p.message.Value
		a.finish(p, m, true, nil)
	}
}

// messageAnswered is the message that an append answers; appended is false where
// it was kept out.
func messageAnswered(call *Call) (m Message, appended bool, err error) {
	if call.err != nil {
		return Message{}, false, call.err
	}
	if len(call.answers) != 1 {
		return Message{}, false, fault.New(fault.Internal, "the node gave %d answers to an append", len(call.answers))
	}
	if err := call.answers[0].Err; err != nil {
		if err.Kind == fault.Unavailable {
			return Message{}, false, lost(err, refusedWhole(err))
		}
		return Message{}, false, err
	}
	messages := call.answers[0].page().Messages
	if len(messages) == 0 {
		return Message{}, false, nil
	}
	return messages[0], true, nil
}

// keepLocked puts an append that failed into the backlog, if it is safe to send
// again.
func (a *appends) keepLocked(p *pendingAppend, err error) bool {
	a.broken = a.broken || nodeWasLost(err)
	named := !p.message.Key.IsNone()
	if safe := neverRan(err) || nodeWasLost(err) && named; !safe {
		return false
	}
	p.unsure = p.unsure || !neverRan(err)
	a.backlog = append(a.backlog, p)
	return true
}

// finish tells whoever appended.
func (a *appends) finish(p *pendingAppend, m Message, appended bool, err error) {
	p.done(m, appended, err)
	a.mu.Lock()
	a.count--
	a.bytes -= len(p.params)
	a.freed.Broadcast()
	a.mu.Unlock()
}

// lookUp tells whether a taken identity holds the message that was to be
// appended under it.
func (a *appends) lookUp(p *pendingAppend, taken error) {
	db := &remoteDatabase{pool: a.pool}
	var found []Message
	err := db.again(p.ctx, func(s *Session) error {
		answer, err := s.one(p.ctx, "SELECT * FROM "+value.QuoteIdentifier(p.topic)+":$key", map[string]value.Value{"key": p.message.Key})
		if err != nil {
			return err
		}
		rows, _ := answer.Value.AsArray()
		found = messagesOf(rows)
		if len(found) == 0 {
			return nil
		}
		// As a message it tells when it was appended.
		page, err := s.read(p.ctx, p.topic, ReadRequest{After: found[0].Position() - 1, Limit: 1})
		switch {
		case nodeWasLost(err):
			return err
		case err == nil && len(page.Messages) == 1 && page.Messages[0].Position() == found[0].Position():
			found = page.Messages
		}
		return nil
	})
	switch {
	case err != nil:
		a.finish(p, Message{}, false, outcomeUnknown(err))
	case len(found) == 1 && holds(found[0], p.message.Value):
		a.finish(p, found[0], true, nil)
	default:
		a.finish(p, Message{}, false, taken)
	}
}

func holds(m Message, content value.Value) bool {
	held, err := m.Value()
	return err == nil && value.Equal(held, content)
}

// reopenLocked opens another session once everything on its way is decided and
// something waits.
func (a *appends) reopenLocked() {
	if a.inFlight > 0 || len(a.backlog) == 0 || !a.broken {
		return
	}
	old := a.session
	a.session = nil
	a.inFlight = 1 // the opening: nobody else opens meanwhile
	a.others.Go(func() { a.reopen(old) })
}

// reopen opens a session and sends the backlog.
func (a *appends) reopen(old *Session) {
	if old != nil {
		a.pool.nodes.failed(old.node, fault.New(fault.Unavailable, "%s", a.whyLost(old)))
		a.pool.forget(old)
	}
	s, err := a.pool.open(a.pool.nodes.closed)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inFlight--
	backlog := a.backlog
	a.backlog = nil
	slices.SortFunc(backlog, func(x, y *pendingAppend) int { return cmp.Compare(x.order, y.order) })
	if err == nil {
		a.session, a.broken = s, false
	}
	for _, p := range backlog {
		switch {
		case err != nil:
			a.giveUpLocked(p, err)
		case p.ctx.Err() != nil:
			a.giveUpLocked(p, fault.New(fault.Cancelled, "the caller gave up: %w", p.ctx.Err()))
		case a.broken:
			// It was lost again meanwhile.
			a.backlog = append(a.backlog, p)
		default:
			a.sendLocked(p)
		}
	}
	a.reopenLocked()
}

func (a *appends) whyLost(old *Session) string {
	if err := old.Ended(); err != nil {
		return fault.Of(err).Message
	}
	return shuttingDown
}

// giveUpLocked fails what waited to be sent. done is never called with mu held.
func (a *appends) giveUpLocked(p *pendingAppend, err error) {
	if p.unsure {
		err = outcomeUnknown(err)
	}
	a.others.Go(func() { a.finish(p, Message{}, false, err) })
}

// close waits until everything was told: the sessions have ended.
func (a *appends) close() {
	a.mu.Lock()
	a.freed.Broadcast()
	a.mu.Unlock()
	a.others.Wait()
}
