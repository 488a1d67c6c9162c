package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// Worker handles one message of a group. What it returns settles the message:
//
//	nil                  done, never handed out again
//	an error             handed out again, after the group's BACKOFF
//	Nack(delay)          handed out again after the delay
//	Reject(reason)       given up on now: to the dead letters
//
// Its effects happen at least once: a process may die between an effect and its
// settlement. A Worker that panics has failed.
//
// While it runs, its hand-out is extended again and again. Its ctx ends when the
// group gave the message to another after all (the store could not be reached in
// time), or when Work was told to stop and the time to finish is over; then the
// message of a Worker that returns an error is released, so that another has it
// at once and the attempt does not count.
type Worker func(ctx context.Context, message Message) error

// Nack is what a Worker returns to have its message handed out again after a
// delay, instead of the group's BACKOFF.
func Nack(delay time.Duration) error { return &nack{delay} }

type nack struct{ delay time.Duration }

func (n *nack) Error() string { return fmt.Sprintf("to be handed out again after %s", n.delay) }

// Reject is what a Worker returns to give its message up now, as one that will
// never succeed; the reason goes with it to the dead letters.
func Reject(reason string) error { return &reject{reason} }

type reject struct{ reason string }

func (r *reject) Error() string { return "rejected: " + r.reason }

// WorkOptions are the settings of a worker. The zero value is a good default.
type WorkOptions struct {
	// Concurrency is how many messages are handled at once: the group's IN
	// FLIGHT when 0, and never more.
	Concurrency int
	// Drain is how long what is being handled may go on once ctx has ended, ten
	// seconds when 0. Less than your supervisor waits before it kills.
	Drain time.Duration
	// Failed is told of every message that is handed back or given up on, and
	// why. Default: a warning in the store's log.
	Failed func(message Message, err error)
	// Lapsed is told how many messages retention removed before they were
	// handed out. Default: a warning in the store's log.
	Lapsed func(count uint64)
}

// defaultDrain is a third of what container platforms commonly wait.
const defaultDrain = 10 * time.Second

// Work reads as a member of the group and gives every message to worker, as many
// at once as the group's IN FLIGHT allows, and waits for more. It returns nil
// once ctx has ended and everything was settled or released; an error where the
// group was dropped, or reading it is refused. While no node answers it goes on
// looking for one.
//
//	err := mail.Group("mailer").Work(ctx, func(ctx context.Context, m tidemark.Message) error {
//		var letter Letter
//		if err := m.Scan(&letter); err != nil {
//			return tidemark.Reject(err.Error()) // it never will
//		}
//		return send(ctx, letter)
//	}, tidemark.WorkOptions{})
func (g *Group) Work(ctx context.Context, worker Worker, options WorkOptions) error {
	if options.Drain == 0 {
		options.Drain = defaultDrain
	}
	definition, err := g.definition(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	concurrency := definition.inFlight
	if options.Concurrency > 0 {
		concurrency = min(concurrency, options.Concurrency)
	}
	w := &shift{
		group: g, worker: worker, options: options,
		slots: make(chan struct{}, concurrency),
		held:  newHeld(g, definition.deadline),
	}
	return w.run(ctx)
}

// shift is one run of Work.
//
//	read ─► handle (a goroutine a message) ─► settle
//	             └───────── held, extended ──────┘
type shift struct {
	group   *Group
	worker  Worker
	options WorkOptions
	// slots holds a token for every message that is handled or being settled.
	slots chan struct{}
	held  *held
	// settled are those whose Worker returned.
	settled settleQueue
	workers sync.WaitGroup
}

func (w *shift) run(ctx context.Context) error {
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Handlers outlast ctx for as long as Drain says, the others until the end.
	lasting := context.WithoutCancel(ctx)
	handling, endHandling := context.WithCancel(lasting)
	defer endHandling()
	lasting, endAll := context.WithCancel(lasting)

	var aides sync.WaitGroup
	w.settled.filled = make(chan struct{}, 1)
	aides.Go(func() { w.held.keep(lasting) })
	aides.Go(func() { w.settle(lasting, stop) })

	err := w.read(reading, handling)
	drained := time.AfterFunc(w.options.Drain, endHandling)
	w.workers.Wait()
	drained.Stop()
	// Every slot is free once everything was settled.
	for range cap(w.slots) {
		w.slots <- struct{}{}
	}
	endAll()
	aides.Wait()
	if cause := context.Cause(reading); ctx.Err() == nil && cause != nil {
		return cause
	}
	return err
}

// waitForWork is how long one read waits before the next.
const waitForWork = time.Hour

// read hands messages to handlers until ctx ends or the group cannot be read.
func (w *shift) read(ctx, handling context.Context) error {
	for {
		free, ok := w.takeSlots(ctx)
		if !ok {
			return nil
		}
		page, err := w.group.Read(ctx, min(free, maxReadLimit), waitForWork)
		for i, message := range page.Messages {
			if ctx.Err() != nil {
				w.release(page.Messages[i:])
				break
			}
			free--
			w.handle(handling, message)
		}
		for range free {
			<-w.slots
		}
		if page.Lapsed > 0 {
			w.group.topic.tellLapsed(w.group.name, page.Lapsed, w.options.Lapsed)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !w.group.topic.db.outlasts(ctx, err, "group", w.group.name, "topic", w.group.topic.name) {
			return err
		}
	}
}

// takeSlots waits for a slot and takes all that are free.
func (w *shift) takeSlots(ctx context.Context) (taken int, ok bool) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, false
	}
	for taken = 1; taken < cap(w.slots); taken++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return taken, true
		}
	}
	return taken, true
}

// release hands back messages that no handler has begun. Their slots are still
// the reader's.
func (w *shift) release(messages []Message) {
	if _, err := w.group.Release(context.Background(), messages...); err != nil {
		w.group.topic.db.log.Warn("messages that were not begun could not be released; they come back at their deadline",
			"topic", w.group.topic.name, "group", w.group.name, "messages", len(messages), "error", err)
	}
}

// handle runs the worker on a message, whose slot is free again once it was
// settled.
func (w *shift) handle(ctx context.Context, message Message) {
	ctx, done := w.held.add(ctx, message)
	w.workers.Go(func() {
		defer done()
		err := w.runWorker(ctx, message)
		w.settled.put(settled{message, w.settlementOf(ctx, message, err)})
	})
}

func (w *shift) runWorker(ctx context.Context, message Message) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("the worker panicked: %v\n%s", panicked, debug.Stack())
		}
	}()
	return w.worker(ctx, message)
}

// settlementOf is what a worker's answer says of its message.
func (w *shift) settlementOf(ctx context.Context, message Message, err error) Settlement {
	s := Settlement{Messages: []Message{message}}
	var delayed *nack
	var rejected *reject
	switch {
	case err == nil:
		s.Verb = VerbAck
		return s
	case errors.As(err, &rejected):
		s.Verb, s.Reason = VerbReject, rejected.reason
	case ctx.Err() != nil:
		s.Verb = VerbRelease
		return s
	case errors.As(err, &delayed):
		s.Verb, s.Delay = VerbNack, &delayed.delay
	default:
		s.Verb = VerbNack
	}
	w.tellFailed(message, err)
	return s
}

func (w *shift) tellFailed(message Message, err error) {
	if w.options.Failed != nil {
		w.options.Failed(message, err)
		return
	}
	w.group.topic.db.log.Warn("a worker did not finish a message",
		"topic", w.group.topic.name, "group", w.group.name, "position", message.Position(),
		"deliveries", message.Deliveries(), "error", err)
}

// settle settles what workers have answered until ctx ends. Acknowledgements
// that are there together are one statement, and so one commit.
func (w *shift) settle(ctx context.Context, stop context.CancelCauseFunc) {
	for {
		select {
		case <-w.settled.filled:
		case <-ctx.Done():
			return
		}
		for _, settlement := range w.settled.take() {
			_, err := w.group.settle(ctx, settlement)
			if err != nil {
				w.group.topic.db.log.Warn("messages could not be settled; they come back at their deadline",
					"topic", w.group.topic.name, "group", w.group.name, "messages", len(settlement.Messages), "error", err)
			}
			if errors.Is(err, fault.NotAGroup) || errors.Is(err, fault.NotFound) {
				stop(err)
			}
			for _, message := range settlement.Messages {
				w.held.remove(message)
				<-w.slots
			}
		}
	}
}

// settleQueue holds the settlements that wait to be sent.
type settleQueue struct {
	mu sync.Mutex
	// waiting is protected by mu.
	waiting []settled
	// filled holds a token when there may be something to take.
	filled chan struct{}
}

type settled struct {
	message    Message
	settlement Settlement
}

func (q *settleQueue) put(s settled) {
	q.mu.Lock()
	q.waiting = append(q.waiting, s)
	q.mu.Unlock()
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// take returns all that wait: the acknowledgements as one.
func (q *settleQueue) take() []Settlement {
	q.mu.Lock()
	waiting := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	acks := Settlement{Verb: VerbAck}
	var all []Settlement
	for _, s := range waiting {
		if s.settlement.Verb == VerbAck {
			acks.Messages = append(acks.Messages, s.message)
			continue
		}
		all = append(all, s.settlement)
	}
	if len(acks.Messages) > 0 {
		all = append(all, acks)
	}
	return all
}
