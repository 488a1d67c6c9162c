package session

import (
	"context"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// Following is a FOLLOW that has begun: a subscription that whoever runs the
// session takes the messages from, by itself.
type Following struct {
	*store.Subscription
	statement *lang.Follow
	// sentry is a session of the same caller in the same database.
	sentry *Session
	// times is as Session.TellTimes said.
	times bool
}

// ErrFollowAlone is the answer to a FOLLOW where nobody takes what it pushes.
var ErrFollowAlone = fault.New(fault.InvalidClause, "FOLLOW pushes messages to a request of its own over a WebSocket; here READ … WAIT asks for them")

// Next is store.Subscription.Next, as long as the caller may follow: what was
// revoked meanwhile is asked again before every page.
func (f *Following) Next(ctx context.Context, limit, maxBytes int) (store.Page, error) {
	page, err := f.Subscription.Next(ctx, limit, maxBytes)
	if err == nil {
		err = f.sentry.mayFollow(ctx, f.statement)
	}
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

func (s *Session) mayFollow(ctx context.Context, x *lang.Follow) error {
	err := s.authorize(ctx, x)
	if err == nil && s.authority.isStranger() {
		err = errNotSignedIn
	}
	return err
}

// Follow begins a FOLLOW. Without AFTER it starts with the next message that
// commits.
func (s *Session) Follow(ctx context.Context, x *lang.Follow, params map[string]value.Value) (*Following, error) {
	if err := s.mayFollow(ctx, x); err != nil {
		return nil, err
	}
	if s.tx != nil {
		return nil, fault.New(fault.InvalidClause, "FOLLOW cannot stand in a transaction: what it pushes commits later; COMMIT or CANCEL first")
	}
	db, err := s.inDatabase()
	if err != nil {
		return nil, err
	}
	var after *topic.Position
	if x.After != nil {
		e := &environment{ctx: ctx, store: s.store, params: params, limits: s.limits}
		position, err := e.clausePosition("AFTER", x.After, 0)
		if err != nil {
			return nil, err
		}
		after = &position
	}
	subscription, err := db.Follow(ctx, x.Topic, after)
	if err != nil {
		return nil, err
	}
	sentry := New(s.store, Options{Database: db, Caller: s.caller})
	return &Following{subscription, x, sentry, s.times}, nil
}

// Answer is a page of messages as an answer has them; see Options.PassOn.
func (f *Following) Answer(page store.Page) Answer {
	return Answer{messages: page.Messages, Lapsed: page.Lapsed, times: f.times}
}

// FailedAnswer is the answer to a statement that failed.
func FailedAnswer(err error) Answer { return failed(err) }
