package deploy

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// What an operator does with a subscription that is stuck. Each is one commit.
// What a runner still does with the events that were in flight settles nothing
// any more, and is cancelled: at once where this node called it, otherwise when
// the node that did moves the deadline on.

// operation is what an operator does to one subscription.
type operation struct {
	catalog
	row   subscriptionRow
	state store.GroupState
	// settled are the hand-outs that count no more.
	settled []topic.Settle
}

// Retry has what is in flight tried again now, from the first attempt, and
// returns how many events that are.
func (h *Host) Retry(ctx context.Context, database, subscription string) (int, error) {
	return h.operate(ctx, database, subscription, "retry", func(o *operation) error {
		for _, held := range o.state.Held {
			o.settled = append(o.settled, topic.Settle{Position: held.Position, Delivery: held.Deliveries})
			row := attemptRow{Subscription: subscription, Position: int64(held.Position)}
			key := attemptKey(subscription, held.Position)
			if _, err := o.get(tableAttempts, key, &row); err != nil {
				return err
			}
			row.Forgiven = int(held.Deliveries - held.Released)
			if err := o.put(tableAttempts, key, row); err != nil {
				return err
			}
		}
		atOnce := time.Duration(0)
		return o.settle(store.Settlement{Kind: store.Return, At: o.settled, Delay: &atOnce})
	})
}

// Skip gives up on the oldest event in flight and returns 1, or fault.NotFound
// where none is.
func (h *Host) Skip(ctx context.Context, database, subscription string) (int, error) {
	return h.operate(ctx, database, subscription, "skip", func(o *operation) error {
		if len(o.state.Held) == 0 {
			return fault.New(fault.NotFound, "subscription %s has no event in flight that could be skipped", subscription)
		}
		held := o.state.Held[0]
		o.settled = []topic.Settle{{Position: held.Position, Delivery: held.Deliveries}}
		if err := o.settle(store.Settlement{Kind: store.Reject, At: o.settled, Reason: "skipped by an operator"}); err != nil {
			return err
		}
		if err := o.remove(tableAttempts, attemptKey(subscription, held.Position)); err != nil {
			return err
		}
		return o.deadLetter(held.Position, h.log)
	})
}

// The places that Reset takes beside a position.
const (
	Beginning = "beginning"
	Latest    = "latest"
)

// Reset moves a subscription to a place: the event at a position comes next, or
// the topic's first, or the next one that is published. What was in flight is
// forgotten; Reset returns how many events that were.
func (h *Host) Reset(ctx context.Context, database, subscription, to string) (int, error) {
	return h.operate(ctx, database, subscription, "reset", func(o *operation) error {
		place, err := o.place(to)
		if err != nil {
			return err
		}
		for _, held := range o.state.Held {
			o.settled = append(o.settled, topic.Settle{Position: held.Position, Delivery: held.Deliveries})
			if err := o.remove(tableAttempts, attemptKey(subscription, held.Position)); err != nil {
				return err
			}
		}
		if err := o.remove(tableFailures, subscription); err != nil {
			return err
		}
		return o.tx.StartAt(o.ctx, o.row.StoreTopic, subscription, place)
	})
}

// place is the position after which a subscription goes on.
func (o *operation) place(to string) (topic.Position, error) {
	switch to {
	case Beginning:
		return o.state.First - 1, nil
	case Latest:
		return o.state.Last, nil
	}
	p, err := strconv.ParseUint(to, 10, 63)
	if err != nil || p == 0 {
		return 0, fault.New(fault.InvalidClause, "%q is no place; it is %s, %s, or a position from 1", to, Beginning, Latest)
	}
	if topic.Position(p) < o.state.First || topic.Position(p) > o.state.Last+1 {
		return 0, fault.New(fault.InvalidClause, "position %d is not in topic %s, which holds %d to %d", p, o.row.Topic, o.state.First, o.state.Last)
	}
	return topic.Position(p) - 1, nil
}

// settle settles what is in flight.
func (o *operation) settle(settlement store.Settlement) error {
	if len(settlement.At) == 0 {
		return nil
	}
	table, err := o.tx.Catalog().TopicTable(o.row.StoreTopic)
	if err != nil {
		return err
	}
	_, err = o.tx.Settle(o.ctx, table, o.row.Subscription, settlement)
	return err
}

// deadLetter takes the event of a position to the subscription's dead letter
// topic, where it has one.
func (o *operation) deadLetter(p topic.Position, log *slog.Logger) error {
	var row moduleRow
	found, err := o.get(tableModules, o.row.Module, &row)
	if err != nil || !found || row.Schema == "" {
		return err
	}
	module, err := parseModule(row.Schema)
	if err != nil {
		return err
	}
	target := module.DeadLetterOf(o.row.Name)
	if target == (schema.Ref{}) {
		return nil
	}
	table, err := o.tx.Catalog().TopicTable(o.row.StoreTopic)
	if err != nil {
		return err
	}
	events := o.tx.Scan(o.ctx, table, store.ScanOptions{From: p, To: p})
	for events.Next() {
		event := events.Row()
		content, err := event.Value()
		if err != nil {
			_ = events.Close()
			return err
		}
		deadLetter(o.catalog, target, content, event.Headers, log)
	}
	return events.Close()
}

// operate does something to a subscription in one transaction and returns how
// many events in flight it touched.
func (h *Host) operate(ctx context.Context, database, subscription, what string, work func(*operation) error) (int, error) {
	db, err := h.store.Database(ctx, ftlwire.Namespace, database)
	if err != nil {
		return 0, err
	}
	var settled []topic.Settle
	err = transact(ctx, db, func(c catalog) error {
		o := &operation{catalog: c}
		found, err := c.get(tableSubscriptions, subscription, &o.row)
		if err != nil {
			return err
		}
		if !found {
			return o.unknown(subscription)
		}
		if o.state, err = c.tx.GroupState(c.ctx, o.row.StoreTopic, subscription); err != nil {
			return err
		}
		err = work(o)
		settled = o.settled
		return err
	})
	if err != nil {
		return 0, err
	}
	h.log.Info("an operator moved a subscription on", slog.String("subscription", subscription), slog.String("by", what), slog.Int("events", len(settled)))
	h.lose(database, subscription, settled)
	return len(settled), nil
}

// unknown says which subscriptions there are.
func (o *operation) unknown(subscription string) error {
	known, err := rows[subscriptionRow](o.catalog, tableSubscriptions)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	hint := "tidemark ftl status lists them"
	if nearest := schema.Nearest(subscription, names); nearest != "" {
		hint = "did you mean " + nearest + "?"
	}
	return fault.New(fault.NotFound, "there is no subscription %s; %s", subscription, hint)
}

// lose cancels what this node has called for hand-outs that count no more.
func (h *Host) lose(database, group string, settled []topic.Settle) {
	h.mu.Lock()
	d := h.databases[database]
	h.mu.Unlock()
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range settled {
		if one := d.held[heldKey{group, s.Position}]; one != nil && one.message.Deliveries == s.Delivery {
			one.lose()
		}
	}
}

// Operate does what an operator asks for by name, and returns how many events in
// flight it touched.
func (h *Host) Operate(ctx context.Context, database, subscription, what, to string) (int, error) {
	switch what {
	case "retry":
		return h.Retry(ctx, database, subscription)
	case "skip":
		return h.Skip(ctx, database, subscription)
	case "reset":
		return h.Reset(ctx, database, subscription, to)
	}
	return 0, fault.New(fault.InvalidClause, "%q is nothing to do with a subscription; retry, skip and reset are", what)
}
