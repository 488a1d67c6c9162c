package session

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// messageAnswer is a message as an answer has it; times is as TellTimes
// says.
func messageAnswer(m store.Message, content value.Value, times bool) value.Value {
	fields := value.Object{"id": value.Record(m.ID()), "value": content}
	if m.Position != 0 {
		fields["position"] = value.Int(int64(m.Position))
	}
	if m.Deliveries != 0 {
		fields["deliveries"] = value.Int(int64(m.Deliveries))
	}
	if headers := m.Headers(); headers != nil {
		fields["headers"] = headers.Value()
	}
	if times && m.TellsTime() {
		fields["appended"] = value.Datetime(m.Appended())
	}
	return value.Fields(fields)
}

// messagesAnswer is messages as an answer has them. In a transaction they are
// decoded, since its answers are weighed until it has ended.
func (s *Session) messagesAnswer(messages []store.Message) (Answer, error) {
	answer := Answer{messages: messages, times: s.times}
	if s.passOn && s.tx == nil && len(messages) > 0 {
		return answer, nil
	}
	return answer.decoded()
}

func (s *Session) read(e *environment, x *lang.Read) (Answer, error) {
	options, err := e.readOptions(x)
	if err != nil {
		return Answer{}, err
	}
	db, err := s.inDatabase()
	if err != nil {
		return Answer{}, err
	}
	if options.wait > 0 {
		waiting, leave, err := s.limits.Waiting.Enter(e.ctx)
		if err != nil {
			return Answer{}, err
		}
		defer leave()
		e.ctx = waiting
	}
	var page store.Page
	switch {
	case s.tx != nil:
		page, err = s.readInTransaction(e, x.Topic, options)
	case options.wait > 0 && !s.caller.isProcess():
		page, err = s.readWaiting(e, db, x, options)
	default:
		page, err = db.Read(e.ctx, x.Topic, options.ReadOptions, options.wait)
	}
	if err != nil {
		if ended(err) && errors.Is(context.Cause(e.ctx), fault.Unavailable) {
			err = context.Cause(e.ctx)
		}
		return Answer{}, err
	}
	answer, err := s.messagesAnswer(page.Messages)
	answer.Lapsed = page.Lapsed
	return answer, err
}

// readWaiting waits and then asks anew what the caller may do: who was stopped
// meanwhile is not answered, and moves no place.
func (s *Session) readWaiting(e *environment, db *store.Database, x *lang.Read, options readOptions) (store.Page, error) {
	until := time.Now().Add(options.wait)
	for {
		left := time.Until(until)
		if err := db.Await(e.ctx, x.Topic, options.ReadOptions, max(left, 0)); err != nil {
			return store.Page{}, err
		}
		if err := s.authorize(e.ctx, x); err != nil {
			return store.Page{}, err
		}
		page, err := db.Read(e.ctx, x.Topic, options.ReadOptions, 0)
		// What was waited for another of the name may have taken.
		if err != nil || len(page.Messages) > 0 || page.Lapsed > 0 || left <= 0 {
			return page, err
		}
		if options.Consumer != "" {
			// The read has moved the place there, from where others go on.
			options.After, options.Since = nil, nil
		}
	}
}

// readInTransaction reads in the open transaction. A WAIT waits before the
// transaction has a snapshot that matters: it is begun anew when there is
// something to read.
func (s *Session) readInTransaction(e *environment, topicName string, options readOptions) (store.Page, error) {
	if options.wait > 0 {
		if s.used {
			return store.Page{}, fault.New(fault.InvalidClause, "WAIT cannot stand in a transaction that has already read or written; make the READ its first statement")
		}
		s.tx.Cancel()
		waited := s.database.Await(e.ctx, topicName, options.ReadOptions, options.wait)
		tx, err := s.database.Begin(e.ctx)
		if err != nil {
			s.tx = nil
			return store.Page{}, err
		}
		s.tx = tx
		if waited != nil {
			return store.Page{}, waited
		}
	}
	s.used = true
	table, err := s.tx.Catalog().TopicTable(topicName)
	if err != nil {
		return store.Page{}, err
	}
	return s.tx.Read(e.ctx, table, options.ReadOptions)
}

type readOptions struct {
	store.ReadOptions
	wait time.Duration
}

func (e *environment) readOptions(x *lang.Read) (options readOptions, err error) {
	if x.Consumer != nil {
		if options.Consumer, err = e.clauseString("FOR CONSUMER", x.Consumer); err != nil {
			return options, err
		}
		if err := store.CheckName("consumer", options.Consumer); err != nil {
			return options, err
		}
	}
	if x.After != nil {
		after, err := e.clausePosition("AFTER", x.After, 0)
		if err != nil {
			return options, err
		}
		options.After = &after
	}
	if x.Since != nil {
		since, err := e.clauseDatetime("SINCE", x.Since)
		if err != nil {
			return options, err
		}
		options.Since = &since
	}
	if x.Limit != nil {
		limit, err := e.clauseInt("LIMIT", x.Limit)
		if err != nil {
			return options, err
		}
		if limit < 1 || limit > store.MaxReadLimit {
			return options, fault.New(fault.InvalidClause, "LIMIT of a READ is 1 to %d, not %d", store.MaxReadLimit, limit)
		}
		options.Limit = int(limit)
	}
	if x.Wait != nil {
		if options.wait, err = e.clauseDuration("WAIT", x.Wait); err != nil {
			return options, err
		}
		if options.wait < 0 || options.wait > MaxWait {
			return options, fault.New(fault.InvalidClause, "WAIT takes 0s to %s, not %s", MaxWait, options.wait)
		}
	}
	return options, nil
}

// clausePosition computes a position of a clause, at least minimum.
func (e *environment) clausePosition(clause string, expression lang.Expression, minimum int64) (topic.Position, error) {
	p, err := e.clauseInt(clause, expression)
	if err == nil && p < minimum {
		err = fault.New(fault.InvalidClause, "%s takes a position from %d, not %d", clause, minimum, p)
	}
	return topic.Position(p), err
}

func (s *Session) settle(e *environment, x *lang.Settle) (Answer, error) {
	group, err := e.clauseString("FOR CONSUMER", x.Group)
	if err != nil {
		return Answer{}, err
	}
	settlement, err := e.settlement(x)
	if err != nil {
		return Answer{}, err
	}
	db, err := s.inDatabase()
	if err != nil {
		return Answer{}, err
	}
	var count int
	if s.tx == nil {
		count, err = db.Settle(e.ctx, x.Topic, group, settlement)
	} else {
		s.used = true
		var table *store.Table
		if table, err = s.tx.Catalog().TopicTable(x.Topic); err == nil {
			count, err = s.tx.Settle(e.ctx, table, group, settlement)
		}
	}
	return Answer{Value: value.Int(int64(count))}, err
}

func (e *environment) settlement(x *lang.Settle) (settlement store.Settlement, err error) {
	for _, delivery := range x.At {
		var at topic.Settle
		if at.Position, err = e.clausePosition("AT", delivery.Position, 1); err != nil {
			return settlement, err
		}
		if delivery.Delivery != nil {
			n, err := e.clauseInt("DELIVERY", delivery.Delivery)
			if err != nil {
				return settlement, err
			}
			if n < 1 || n > topic.MaxDeliveries {
				return settlement, fault.New(fault.InvalidClause, "DELIVERY is 1 to %d, not %d", topic.MaxDeliveries, n)
			}
			at.Delivery = topic.Deliveries(n)
		}
		settlement.At = append(settlement.At, at)
	}
	switch x.Verb {
	case lang.Nack:
		settlement.Kind = store.Return
		if x.Delay != nil {
			delay, err := e.clauseDuration("DELAY", x.Delay)
			if err != nil {
				return settlement, err
			}
			settlement.Delay = &delay
			return settlement, topic.CheckDelay("DELAY", delay)
		}
	case lang.Extend:
		settlement.Kind = store.Extend
		if x.By != nil {
			if settlement.By, err = e.clauseDuration("BY", x.By); err != nil {
				return settlement, err
			}
			return settlement, topic.CheckDuration("BY", settlement.By)
		}
	case lang.Reject:
		settlement.Kind = store.Reject
		if x.Reason != nil {
			settlement.Reason, err = e.clauseString("REASON", x.Reason)
		}
	case lang.Release:
		settlement.Kind = store.Release
	default:
		settlement.Kind = store.Acknowledge
	}
	return settlement, err
}
