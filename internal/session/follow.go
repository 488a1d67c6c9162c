package session

import (
	"context"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// Follow begins a FOLLOW: a subscription that whoever runs the session takes
// the messages from. Without AFTER it starts with the next message that
// commits.
func (s *Session) Follow(ctx context.Context, x *lang.Follow, params map[string]value.Value) (*store.Subscription, error) {
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
	return db.Follow(ctx, x.Topic, after)
}

// PageAnswer is a page of messages as an answer has them; see Options.PassOn.
func PageAnswer(page store.Page) Answer {
	return Answer{messages: page.Messages, Lapsed: page.Lapsed}
}

// FailedAnswer is the answer to a statement that failed.
func FailedAnswer(err error) Answer { return failed(err) }
