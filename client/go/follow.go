package client

import (
	"context"
	"sync"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// Subscription is a FOLLOW: messages of a topic as they commit. The node pushes
// at most a window of messages that Next has not returned. It is used by one
// goroutine, and closed.
type Subscription struct {
	session *Session
	id      int64
	window  int64
	// After is the position after which the subscription began.
	After int64

	mu sync.Mutex
	// The following are protected by mu.
	pushed []Page
	ended  error
	// arrived holds a token when there is something to return.
	arrived chan struct{}
}

// Follow subscribes to a topic by a FOLLOW statement. The window is how many
// messages may be on their way to Next at once.
func (s *Session) Follow(ctx context.Context, statement string, params map[string]value.Value, window int) (*Subscription, error) {
	subscription := &Subscription{session: s, window: int64(window), arrived: make(chan struct{}, 1)}
	call := &Call{done: make(chan struct{})}
	fields := value.Object{"sql": value.String(statement), "credit": value.Int(int64(window)), "times": value.Bool(true)}
	if len(params) > 0 {
		fields["params"] = value.Fields(params)
	}
	s.mu.Lock()
	if ended := s.ended; ended != nil {
		s.mu.Unlock()
		return nil, neverSent(ended)
	}
	subscription.id = s.nextID()
	call.id = subscription.id
	fields["id"] = value.Int(subscription.id)
	err := s.outgoing.add(fields)
	if err == nil {
		s.announce()
		s.calls.add(call)
		s.follows[subscription.id] = subscription
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	answers, err := call.Wait(ctx)
	if err == nil && len(answers) == 1 && answers[0].Err != nil {
		err = answers[0].Err
	}
	if err != nil {
		subscription.Close()
		return nil, err
	}
	if len(answers) == 1 {
		fields, _ := answers[0].Value.AsObject()
		subscription.After, _ = fields["after"].AsInt()
	}
	return subscription, nil
}

// Next waits for messages and gives the node credit for as many more. Once the
// subscription ended it returns why: fault.NotFound where the topic was
// dropped.
func (f *Subscription) Next(ctx context.Context) (Page, error) {
	for {
		f.mu.Lock()
		if len(f.pushed) > 0 {
			next := f.pushed[0]
			f.pushed = f.pushed[1:]
			f.mu.Unlock()
			return next, f.say(value.Object{"credit": value.Int(int64(len(next.Messages)))})
		}
		ended := f.ended
		f.mu.Unlock()
		if ended != nil {
			return Page{}, ended
		}
		select {
		case <-f.arrived:
		case <-ctx.Done():
			return Page{}, fault.New(fault.Cancelled, "the caller gave up: %w", ctx.Err())
		}
	}
}

// Close ends the subscription; messages that were pushed and not returned are
// dropped.
func (f *Subscription) Close() {
	_ = f.say(value.Object{"cancel": value.Bool(true)})
	f.session.mu.Lock()
	delete(f.session.follows, f.id)
	f.session.mu.Unlock()
	f.end(fault.New(fault.Cancelled, "the subscription was closed"))
}

// say sends a word on the FOLLOW to the node, which needs none once it ended.
func (f *Subscription) say(fields value.Object) error {
	fields["follow"] = value.Int(f.id)
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	if f.session.follows[f.id] == nil {
		return nil
	}
	if err := f.session.outgoing.add(fields); err != nil {
		return err
	}
	f.session.announce()
	return nil
}

// deliver takes a push. It is called with the session's mu held.
func (f *Subscription) deliver(fields value.Object) {
	if err := errorOf(fields); err != nil {
		delete(f.session.follows, f.id)
		f.end(err)
		return
	}
	messages, _ := fields["messages"].AsArray()
	lapsed, _ := fields["lapsed"].AsInt()
	f.take(Page{Messages: messagesOf(messages), Lapsed: uint64(lapsed)})
}

// take hands a push to Next.
func (f *Subscription) take(pushed Page) {
	f.mu.Lock()
	f.pushed = append(f.pushed, pushed)
	f.mu.Unlock()
	f.signal()
}

func (f *Subscription) end(reason error) {
	f.mu.Lock()
	if f.ended == nil {
		f.ended = reason
	}
	f.mu.Unlock()
	f.signal()
}

func (f *Subscription) signal() {
	select {
	case f.arrived <- struct{}{}:
	default:
	}
}
