package deploy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/deploy/policy"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// delivery is one event that was handed out, until it is settled:
//
//	prepare ─► call a verb ─► succeed | fail | release
//
// Whatever it writes names the hand-out (position and delivery). Where that is
// not the present one any more, because an operator moved the subscription on or
// the deadline gave the event to another, it writes nothing.
type delivery struct {
	*feed
	message store.Message
	// handedOut is when it was, on the store's clock.
	handedOut time.Time
	receiver  *receiver
	runner    *runner

	// attempt counts the attempts of the event, this one included.
	attempt int
	// row is what is written of the event, and written says that it is.
	row     attemptRow
	written bool

	// next holds the event after this one, where its acknowledgement took it along.
	next store.Page

	// gone is closed when somebody else has the event.
	gone     chan struct{}
	goneOnce sync.Once
}

// deliverOne is deliver of one event that was handed out at a time.
func (f *feed) deliverOne(message store.Message, handedOut time.Time) {
	d := f.dispatcher
	one := &delivery{feed: f, message: message, handedOut: handedOut, receiver: f.receiver(message.Position), gone: make(chan struct{})}
	one.runner = f.pool.take(f.group)
	key := heldKey{f.group, message.Position}
	d.mu.Lock()
	if before := d.held[key]; before != nil {
		before.lose()
	}
	d.held[key] = one
	d.mu.Unlock()
	f.outstanding.Add(1)
	d.deliveries.Go(func() {
		defer f.settledOne()
		one.run(d.finishing)
		d.mu.Lock()
		if d.held[key] == one {
			delete(d.held, key)
		}
		d.mu.Unlock()
		f.deliver(one.next)
	})
}

// logger names the event in its lines.
func (d *delivery) logger() *slog.Logger {
	return d.log.With(slog.Uint64("position", uint64(d.message.Position)))
}

// lose says that somebody else has the event.
func (d *delivery) lose() { d.goneOnce.Do(func() { close(d.gone) }) }

// run calls the verb and settles the event. When ctx ends it leaves the event to
// its deadline.
func (d *delivery) run(ctx context.Context) {
	if d.runner == nil {
		// Its runner left between the hand-out and now.
		d.release(ctx)
		return
	}
	action, done, outcome := d.attend(ctx)
	switch outcome {
	case outcomeGone, outcomeGivenUp:
	case outcomeNotRun:
		d.release(ctx)
	case outcomeEnough:
		d.fail(ctx, policy.GiveUp, "")
	case outcomeLost:
		d.fail(ctx, action, "the runner was lost while "+d.verb(action)+" ran")
	case outcomeDone:
		d.conclude(ctx, action, done)
	}
}

// attend finds out what is to be done with the event, and calls its verb. The
// runner has room for another call when it returns: what is left is the store's.
func (d *delivery) attend(ctx context.Context) (policy.Action, *ftlwire.Done, outcome) {
	defer d.pool.give(d.runner, d.group)
	if err := persist(ctx, d.prepare); err != nil {
		return policy.Call, nil, outcomeGivenUp
	}
	action := policy.Start(d.receiver.retry, d.attempt)
	if action == policy.GiveUp {
		return action, nil, outcomeEnough
	}
	started := time.Now()
	done, outcome := d.call(ctx, action)
	d.calls.Observe(time.Since(started).Seconds())
	return action, done, outcome
}

// conclude settles an event whose verb has returned.
func (d *delivery) conclude(ctx context.Context, action policy.Action, done *ftlwire.Done) {
	switch {
	case done.Error != nil && done.Error.NotRun:
		d.release(ctx)
	case done.Error != nil:
		d.fail(ctx, action, done.Error.Message)
	case done.Settled:
		d.done.Inc()
		if d.written {
			_ = persist(ctx, func(ctx context.Context) error {
				return transact(ctx, d.dispatcher.db, func(c catalog) error { return c.remove(tableAttempts, d.key()) })
			})
		}
	default:
		if err := d.succeed(ctx, action, done); err != nil {
			// What the mapper returned cannot be appended.
			d.fail(ctx, action, fault.Of(err).Error())
		}
	}
}

// verb names the verb of an action, as module.verb.
func (d *delivery) verb(action policy.Action) string {
	if action == policy.Catch {
		return d.receiver.retry.Catch.String()
	}
	return d.module.Name + "." + d.receiver.verb
}

func (d *delivery) key() string { return attemptKey(d.group, d.message.Position) }

func (d *delivery) settle() []topic.Settle {
	return []topic.Settle{{Position: d.message.Position, Delivery: d.message.Deliveries}}
}

// prepare finds out which attempt this is. Of an event that is handed out for
// the first time nothing is written.
func (d *delivery) prepare(ctx context.Context) error {
	d.row = attemptRow{Subscription: d.group, Position: int64(d.message.Position)}
	d.attempt, d.written = 1, false
	if d.message.Deliveries == 1 {
		return nil
	}
	tx, err := d.dispatcher.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Cancel()
	if d.written, err = (catalog{ctx, tx}).get(tableAttempts, d.key(), &d.row); err != nil {
		return err
	}
	d.attempt = max(int(d.message.Deliveries-d.message.Released)-d.row.Forgiven, 1)
	return nil
}

// outcome is how a call ended.
type outcome int

const (
	// outcomeDone: the verb returned, or panicked.
	outcomeDone outcome = iota
	// outcomeNotRun: the runner was gone before the call could reach it.
	outcomeNotRun
	// outcomeLost: the runner was lost in the middle.
	outcomeLost
	// outcomeGone: somebody else has the event.
	outcomeGone
	// outcomeGivenUp: the node has no more time.
	outcomeGivenUp
	// outcomeEnough: there were as many attempts before as there may be.
	outcomeEnough
)

// call calls the verb and waits for its outcome. Meanwhile it moves the event's
// deadline on.
func (d *delivery) call(ctx context.Context, action policy.Action) (*ftlwire.Done, outcome) {
	if d.runner.ended() {
		return nil, outcomeNotRun
	}
	id, answered := d.runner.call(d.request(action))
	defer d.runner.forget(id)
	ticker := time.NewTicker(d.dispatcher.host.extendEvery)
	defer ticker.Stop()
	for {
		select {
		case done := <-answered:
			return done, outcomeDone
		case <-d.runner.lost():
			select {
			case done := <-answered:
				return done, outcomeDone
			default:
				return nil, outcomeLost
			}
		case <-d.gone:
			return nil, outcomeGone
		case <-ctx.Done():
			return nil, outcomeGivenUp
		case <-ticker.C:
			if !d.extend(ctx, action) {
				return nil, outcomeGone
			}
		}
	}
}

// request is the call of an action.
func (d *delivery) request(action policy.Action) *ftlwire.Call {
	c := &ftlwire.Call{
		Kind: d.receiver.kind, Verb: d.receiver.verb,
		Subscription: d.subscription.Name, Group: d.group, Topic: d.topic,
		Position: uint64(d.message.Position), Delivery: uint32(d.message.Deliveries), Attempt: d.attempt,
		Event: d.message.Encoded(), Headers: d.message.EncodedHeaders(),
	}
	if action == policy.Catch {
		attempts := d.receiver.retry.Attempts()
		c.Kind, c.Verb, c.Attempt = ftlwire.Catch, d.receiver.retry.Catch.Name, d.attempt-attempts
		c.Caught = &ftlwire.Caught{Verb: d.verb(policy.Call), RequestType: d.receiver.event, Error: d.lastError(), Attempts: attempts}
	}
	return c
}

// lastError is what the event failed with, also where nobody lived to tell.
func (d *delivery) lastError() string {
	if d.row.Error == "" || d.row.Attempt < d.receiver.retry.Attempts() && d.row.Attempt < d.attempt-1 {
		return "the node was lost while " + d.verb(policy.Call) + " ran"
	}
	return d.row.Error
}

// extend moves the deadline of the event on, and the first time writes down
// since when it is with which verb. It reports whether the event is still ours.
func (d *delivery) extend(ctx context.Context, action policy.Action) bool {
	settlement := store.Settlement{Kind: store.Extend, At: d.settle()}
	count := 0
	var err error
	if d.written && d.row.Delivery == int64(d.message.Deliveries) {
		count, err = d.dispatcher.db.Settle(ctx, d.topic, d.group, settlement)
	} else {
		row := d.row
		row.Delivery, row.Verb, row.Since = int64(d.message.Deliveries), d.verb(action), d.handedOut
		err = d.transact(ctx, settlement, &count, func(c catalog) error { return c.put(tableAttempts, d.key(), row) })
		if err == nil && count > 0 {
			d.row, d.written = row, true
		}
	}
	// Where the store cannot be written, the deadline may pass; the event is
	// ours until somebody else has it.
	return err != nil || count > 0
}

// succeed acknowledges the event, in one commit with what a mapper made of it.
// An error says that the result cannot be appended.
func (d *delivery) succeed(ctx context.Context, action policy.Action, done *ftlwire.Done) error {
	maps := d.receiver.kind == ftlwire.Mapper && action == policy.Call
	if !maps && !d.written && !d.inOrder() {
		d.settler.acknowledge(ctx, d.settle()[0])
		return nil
	}
	settlement := store.Settlement{Kind: store.Acknowledge, At: d.settle()}
	count := 0
	err := persist(ctx, func(ctx context.Context) (err error) {
		if !maps && !d.written {
			count, err = d.acknowledge(ctx, settlement)
			return err
		}
		return d.transact(ctx, settlement, &count, func(c catalog) error {
			if err := d.takeNext(c); err != nil {
				return err
			}
			if err := c.remove(tableAttempts, d.key()); err != nil || !maps {
				return err
			}
			result, err := value.DecodeCBOR(done.Result)
			if err != nil {
				return fault.New(fault.TypeMismatch, "what %s returned does not decode: %w", d.verb(action), err)
			}
			return appendEvent(c, d.receiver.result, result, done.Headers)
		})
	})
	d.count(err, count, "done")
	if refusesResult(err) {
		return err
	}
	return nil
}

// acknowledge acknowledges an event that is handled in order, and takes the next
// one in the same commit: two commits an event would be half as many events.
func (d *delivery) acknowledge(ctx context.Context, settlement store.Settlement) (count int, err error) {
	if !d.goesOn() {
		return d.dispatcher.db.Settle(ctx, d.topic, d.group, settlement)
	}
	count, page, err := d.dispatcher.db.SettleAndRead(ctx, d.topic, d.group, settlement, 1)
	d.next = page
	return count, err
}

// takeNext is the same in a transaction, which has settled the event.
func (d *delivery) takeNext(c catalog) error {
	d.next = store.Page{}
	if !d.goesOn() {
		return nil
	}
	table, err := c.tx.Catalog().TopicTable(d.topic)
	if err != nil {
		return err
	}
	page, err := c.tx.Read(c.ctx, table, store.ReadOptions{Consumer: d.group, Limit: 1})
	d.next = page
	return err
}

// goesOn reports whether the next event is this feed's to take.
func (d *delivery) goesOn() bool { return d.inOrder() && d.taking.Err() == nil && !d.runner.ended() }

// refusesResult reports whether an error is about what a mapper returned, which
// the next attempt may mend.
func refusesResult(err error) bool {
	switch {
	case err == nil, errors.Is(err, fault.Unavailable), errors.Is(err, fault.Cancelled), errors.Is(err, fault.Conflict), errors.Is(err, fault.NotAGroup):
		return false
	}
	return true
}

// release hands back an event whose verb did not run; that is no attempt.
func (d *delivery) release(ctx context.Context) {
	count := 0
	err := persist(ctx, func(ctx context.Context) (err error) {
		count, err = d.dispatcher.db.Settle(ctx, d.topic, d.group, store.Settlement{Kind: store.Release, At: d.settle()})
		return err
	})
	d.count(err, count, "released")
}

// fail settles an attempt that failed: the event is tried again after the
// policy's delay, or given up on. The error is kept in the same commit. Without
// a message the attempt did not begin, since there were enough before it.
func (d *delivery) fail(ctx context.Context, action policy.Action, message string) {
	decision, delay := policy.GiveUp, time.Duration(0)
	if action != policy.GiveUp {
		decision, delay = policy.Failed(d.receiver.retry, d.attempt)
	} else {
		message = d.lastError()
	}
	message = cut(message, maxErrorBytes)
	result := "failed"
	if decision == policy.GiveUp {
		result = "given_up"
	}
	count := 0
	err := persist(ctx, func(ctx context.Context) error {
		return d.transact(ctx, d.failure(decision, delay, message), &count, func(c catalog) error {
			return d.note(c, action, decision, message)
		})
	})
	d.count(err, count, result)
	level, sentence := slog.LevelInfo, "an event failed and is tried again"
	if decision == policy.GiveUp {
		level, sentence = slog.LevelWarn, "an event is given up on"
	}
	d.logger().Log(ctx, level, sentence, slog.String("verb", d.verb(action)), slog.Int("attempt", d.attempt),
		slog.Duration("again in", delay), slog.String("error", message))
}

// failure is the settlement of a failed attempt.
func (d *delivery) failure(decision policy.Action, delay time.Duration, message string) store.Settlement {
	if decision == policy.GiveUp {
		return store.Settlement{Kind: store.Reject, At: d.settle(), Reason: message}
	}
	return store.Settlement{Kind: store.Return, At: d.settle(), Delay: &delay}
}

// note writes down why the event failed, and takes it to the dead letter topic
// where it is given up on.
func (d *delivery) note(c catalog, action, decision policy.Action, message string) error {
	now, err := c.tx.Now(c.ctx)
	if err != nil {
		return err
	}
	if d.writesFailure() {
		newest := failureRow{
			Subscription: d.group, Position: int64(d.message.Position), Verb: d.verb(action), Attempt: d.attempt,
			Error: message, At: now, GivenUp: decision == policy.GiveUp,
		}
		if err := c.put(tableFailures, d.group, newest); err != nil {
			return err
		}
	}
	if decision == policy.GiveUp {
		if err := c.remove(tableAttempts, d.key()); err != nil {
			return err
		}
		event, err := d.message.Value()
		if err != nil {
			return err
		}
		deadLetter(c, d.deadLetter, event, d.message.Headers(), d.logger())
		return nil
	}
	row := d.row
	row.Delivery, row.Verb, row.Since = int64(d.message.Deliveries), d.verb(action), now
	row.FailedAt = now
	if action == policy.Catch {
		row.CatchError = message
	} else {
		row.Error, row.Attempt = message, d.attempt
	}
	return c.put(tableAttempts, d.key(), row)
}

// transact settles the event and does more in the same transaction, unless the
// event is not ours any more: then count is 0 and nothing is done.
func (d *delivery) transact(ctx context.Context, settlement store.Settlement, count *int, more func(catalog) error) error {
	return transact(ctx, d.dispatcher.db, func(c catalog) error {
		table, err := c.tx.Catalog().TopicTable(d.topic)
		if err != nil {
			return err
		}
		if *count, err = c.tx.Settle(ctx, table, d.group, settlement); err != nil || *count == 0 {
			return err
		}
		return more(c)
	})
}

// persist does something in the store until it succeeds, or it does not help to
// try again, or the deadline hands the events out again anyway.
func persist(ctx context.Context, work func(context.Context) error) error {
	wait := firstPause
	for deadline := time.Now().Add(AckDeadline); ; {
		err := work(ctx)
		if err == nil || ctx.Err() != nil || !fault.Of(err).Kind.Retriable() || time.Now().After(deadline) {
			return err
		}
		pause(ctx, wait)
		wait = min(2*wait, longestPause)
	}
}

// count counts what became of the event, and logs what kept it from being
// settled: then its deadline hands it out again.
func (d *delivery) count(err error, settled int, result string) {
	switch {
	case err != nil:
		d.logger().Warn("an event cannot be settled and is handed out again after its deadline", slog.String("outcome", result), slog.Any("error", err))
	case settled == 0:
		d.logger().Debug("an event was settled by somebody else", slog.String("outcome", result))
	default:
		d.dispatcher.host.metrics.event(d.group, result)
	}
}

// deadLetter appends an event that is given up on, as it is, to its dead letter
// topic. One that cannot take it holds nobody up: the event is still in its own
// topic.
func deadLetter(c catalog, target schema.Ref, event value.Value, headers store.Headers, log *slog.Logger) {
	if target == (schema.Ref{}) {
		return
	}
	if err := appendEvent(c, storeTopicOf(target), event, headers); err != nil {
		log.Warn("the dead letter topic does not take an event that is given up on",
			slog.String("topic", target.String()), slog.Any("error", err))
	}
}

// appendEvent appends an event to a topic in the transaction.
func appendEvent(c catalog, topicName string, event value.Value, headers store.Headers) error {
	ctx, err := store.WithHeaders(c.ctx, headers)
	if err != nil {
		return err
	}
	table, err := c.tx.Catalog().TopicTable(topicName)
	if err != nil {
		return err
	}
	_, _, err = c.tx.Append(ctx, table, value.None(), event)
	return err
}

// maxErrorBytes is where a longer error is cut.
const maxErrorBytes = 4 << 10

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && text[most]&0xc0 == 0x80 {
		most--
	}
	return text[:most] + "…"
}
