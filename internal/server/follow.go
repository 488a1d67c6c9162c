package server

import (
	"context"
	"errors"
	"sync"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// The bounds of one push: it ends at the credit given, and is about so large.
const (
	maxPushMessages   = 1000
	pushBytes         = 256 << 10
	firstPushMessages = 16
)

// follow is a FOLLOW that is open: a goroutine that reads as many messages as
// there is credit for, and reads on when they were sent. So a client that takes
// nothing costs the page that it was last pushed, and what others append is
// neither copied nor kept for it.
type follow struct {
	id           value.Value
	subscription *session.Following
	ctx          context.Context
	cancel       context.CancelCauseFunc
	leave        func()

	mu sync.Mutex
	// credit is protected by mu.
	credit int64
	// given holds a token when credit was given.
	given chan struct{}
}

// follows are the FOLLOWs of a connection.
type follows struct {
	running sync.WaitGroup

	mu sync.Mutex
	// open is protected by mu: by the text of their ids.
	open map[string]*follow
}

var errFollowCancelled = fault.New(fault.Cancelled, "the client cancelled the FOLLOW")

// followOf is the FOLLOW that a script is.
func followOf(script *lang.Script) (*lang.Follow, bool) {
	if len(script.Statements) != 1 {
		return nil, false
	}
	x, ok := script.Statements[0].(*lang.Follow)
	return x, ok
}

// startFollow opens a FOLLOW under the id of its request, and answers the
// position after which it starts.
func (c *connection) startFollow(reply *reply, r request, script *lang.Script, x *lang.Follow) {
	f, err := c.openFollow(r, x)
	var answer session.Answer
	if err != nil {
		answer = session.FailedAnswer(err)
	} else {
		answer = session.Answer{Value: value.Fields(value.Object{
			"topic": value.String(x.Topic),
			"after": value.Int(int64(f.subscription.After())),
		})}
	}
	c.server.metrics.count(script, x, answer)
	answers := &list{format: c.format}
	answers.next()
	answers.elements = appendAnswer(c.format, nil, answer)
	c.outbox.finish(reply, answers)
	if f != nil {
		// Only now, so that what it pushes comes after the answer.
		c.follows.running.Go(func() { c.runFollow(f) })
	}
}

func (c *connection) openFollow(r request, x *lang.Follow) (*follow, error) {
	if r.id.IsNull() {
		return nil, fault.New(fault.InvalidClause, "a FOLLOW needs the id of its request: what it pushes is named by it")
	}
	subscription, err := c.session.Follow(c.ctx, x, r.params)
	if err != nil {
		return nil, err
	}
	waiting, leave, err := c.server.waiting.Enter(c.ctx)
	if err != nil {
		return nil, err
	}
	f := &follow{id: r.id, subscription: subscription, leave: leave, credit: r.credit, given: make(chan struct{}, 1)}
	f.ctx, f.cancel = context.WithCancelCause(waiting)
	if err := c.follows.add(f, c.server.limits.Follows); err != nil {
		f.cancel(nil)
		leave()
		return nil, err
	}
	return f, nil
}

func (fs *follows) add(f *follow, most int) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	name := nameOf(f.id)
	switch {
	case fs.open[name] != nil:
		return fault.New(fault.InvalidClause, "a FOLLOW with the id %s is open already; give this one another, or cancel that one", f.id)
	case len(fs.open) >= most:
		return fault.New(fault.Unavailable, "the session has %d FOLLOWs open, which is the limit; cancel one", most)
	}
	if fs.open == nil {
		fs.open = map[string]*follow{}
	}
	fs.open[name] = f
	return nil
}

func nameOf(id value.Value) string { return string(appendValue(formatJSON, nil, id)) }

// heed does what a client says of a FOLLOW; false where none of that id is open.
func (fs *follows) heed(r request) bool {
	fs.mu.Lock()
	f := fs.open[nameOf(r.follow)]
	fs.mu.Unlock()
	if f == nil {
		return false
	}
	if r.cancel {
		f.cancel(errFollowCancelled)
		return true
	}
	f.mu.Lock()
	f.credit = min(f.credit+r.credit, maxCredit)
	f.mu.Unlock()
	signal(f.given)
	return true
}

// heedInTurn does what a client said of a FOLLOW that was not open when the
// word came; it may have been on its way.
func (c *connection) heedInTurn(r request) {
	if c.follows.heed(r) {
		return
	}
	// It is sent before the next request is looked at: who reads nothing must not
	// pile up what it is told.
	<-c.outbox.push(c.endOfFollow(r.follow, fault.New(fault.NotFound, "no FOLLOW with the id %s is open", r.follow)))
}

// end ends all FOLLOWs and waits for their last word.
func (fs *follows) end() {
	fs.mu.Lock()
	for _, f := range fs.open {
		f.cancel(errShuttingDown)
	}
	fs.mu.Unlock()
	fs.running.Wait()
}

// runFollow pushes until the FOLLOW ends, and says why it did.
func (c *connection) runFollow(f *follow) {
	err := c.pushAll(f)
	c.follows.mu.Lock()
	delete(c.follows.open, nameOf(f.id))
	c.follows.mu.Unlock()
	if cause := context.Cause(f.ctx); cause != nil && errors.Is(err, fault.Cancelled) {
		err = cause
	}
	f.cancel(nil)
	f.leave()
	if c.ctx.Err() == nil {
		<-c.outbox.push(c.endOfFollow(f.id, err))
	}
}

// pushAll pushes messages until there is an error.
func (c *connection) pushAll(f *follow) error {
	most := firstPushMessages
	for {
		credit, err := f.awaitCredit()
		if err != nil {
			return err
		}
		page, err := f.subscription.Next(f.ctx, min(credit, most), pushBytes)
		if err != nil {
			return err
		}
		f.spend(len(page.Messages))
		frame, err := c.pushed(f, page)
		if err != nil {
			return err
		}
		most = nextPush(most, len(page.Messages), len(frame))
		c.server.metrics.pushed.Add(float64(len(page.Messages)))
		select {
		case <-c.outbox.push(frame):
		case <-f.ctx.Done():
			return fault.Cancelled
		}
	}
}

// nextPush is how many messages the next push may hold, so that it is about as
// large as a push should be.
func nextPush(most, messages, size int) int {
	if messages == 0 {
		return most
	}
	fitting := pushBytes / max(1, size/messages)
	return min(max(1, fitting), 2*most, maxPushMessages)
}

// awaitCredit waits until there is credit, and returns at most as much as is
// there.
func (f *follow) awaitCredit() (int, error) {
	for {
		f.mu.Lock()
		credit := f.credit
		f.mu.Unlock()
		if credit > 0 {
			return int(credit), nil
		}
		select {
		case <-f.given:
		case <-f.ctx.Done():
			return 0, fault.Cancelled
		}
	}
}

func (f *follow) spend(messages int) {
	f.mu.Lock()
	f.credit -= int64(messages)
	f.mu.Unlock()
}

// pushed is {"follow":…,"messages":[…]}, with what lapsed before the first.
func (c *connection) pushed(f *follow, page store.Page) ([]byte, error) {
	answer := f.subscription.Answer(page)
	if c.format == formatCBOR {
		return pushedCBOR(f.id, answer)
	}
	answer, err := answer.Decode()
	if err != nil {
		return nil, err
	}
	fields := value.Object{"follow": f.id, "messages": answer.Value}
	if page.Lapsed > 0 {
		fields["lapsed"] = value.Int(int64(page.Lapsed))
	}
	return c.encode(value.Fields(fields))
}

// pushedCBOR is the same in deterministic CBOR, without decoding the messages.
func pushedCBOR(id value.Value, answer session.Answer) ([]byte, error) {
	fields := 2
	if answer.Lapsed > 0 {
		fields++
	}
	frame := value.AppendName(value.AppendObjectHead(make([]byte, 0, answer.Bytes()), fields), "follow")
	frame, err := id.AppendCBOR(frame)
	if err != nil {
		return nil, err
	}
	if answer.Lapsed > 0 {
		if frame, err = value.Int(int64(answer.Lapsed)).AppendCBOR(value.AppendName(frame, "lapsed")); err != nil {
			return nil, err
		}
	}
	return answer.AppendMessages(value.AppendName(frame, "messages"))
}

func (c *connection) encode(v value.Value) ([]byte, error) {
	if c.format == formatCBOR {
		return v.AppendCBOR(nil)
	}
	return v.AppendJSON(nil)
}

// endOfFollow is {"follow":…,"error":{…}}, the last that a FOLLOW pushes.
func (c *connection) endOfFollow(id value.Value, err error) []byte {
	told := fault.Of(err)
	frame, err := c.encode(value.Fields(value.Object{"follow": id, "error": value.Fields(value.Object{
		"kind":    value.String(string(told.Kind)),
		"message": value.String(told.Message),
	})}))
	if err != nil {
		return c.endOfFollow(id, fault.Internal)
	}
	return frame
}
