package client

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// ConsumeOptions are the settings of a consumer. The zero value is a good
// default.
type ConsumeOptions struct {
	// Batch is at most how many messages the handler is given at once, 100
	// when 0. A larger batch makes fewer commits; a failed one repeats more.
	Batch int
	// Lapsed is told how many messages retention removed before the consumer
	// read them. Default: a warning in the store's log.
	Lapsed func(count uint64)
}

// Handler handles messages in a transaction. What it writes through tx commits
// together with the consumer's position; when it returns an error neither
// does, and the same messages are given again.
type Handler func(ctx context.Context, tx *Tx, messages []Message) error

// awaitFor is how long one wait for new messages lasts before the next; ctx
// ends it at any time.
const awaitFor = time.Hour

// Consume reads the topic under a name, from the position that the name has in
// the store, and gives the messages to handler in order, waiting for new ones.
// An effect that handler writes through tx happens exactly once a message; one
// outside the store at least once.
//
// Consumers under one name take turns. Consume returns when ctx ends, with nil,
// or when handler fails, with its error. While no node answers it goes on
// looking for one. A node rolls back a transaction that it has not heard of for
// a minute (its setting transaction-idle): a handler that works longer between
// two statements is better a group's (Group.Work).
func (t *Topic) Consume(ctx context.Context, consumer string, handler Handler, options ConsumeOptions) error {
	if err := checkLimit(options.Batch); err != nil {
		return err
	}
	for {
		err := t.consumeOnce(ctx, consumer, handler, options)
		if ctx.Err() != nil && (err == nil || errors.Is(err, fault.Cancelled) || errors.Is(err, fault.Timeout) || nodeWasLost(err)) {
			return nil
		}
		if err != nil && !t.db.outlasts(ctx, err, "consumer", consumer, "topic", t.name) {
			return err
		}
	}
}

// consumeOnce handles one batch.
func (t *Topic) consumeOnce(ctx context.Context, consumer string, handler Handler, options ConsumeOptions) error {
	return rerun(ctx, func() error {
		backend, err := t.db.backend.Begin(ctx)
		if err != nil {
			return err
		}
		defer backend.Cancel()
		page, err := backend.Read(ctx, t.name, ReadRequest{Consumer: consumer, Limit: options.Batch, Wait: awaitFor})
		if err != nil {
			return err
		}
		if len(page.Messages) > 0 {
			if err := handler(ctx, NewTx(backend), page.Messages); err != nil {
				return err
			}
		}
		// A batch that was handled is committed also where ctx ended meanwhile.
		if _, err := backend.Commit(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if page.Lapsed > 0 {
			t.tellLapsed(consumer, page.Lapsed, options.Lapsed)
		}
		return nil
	})
}

func (t *Topic) tellLapsed(consumer string, count uint64, tell func(uint64)) {
	if tell != nil {
		tell(count)
		return
	}
	t.db.log.Warn("retention removed messages before a consumer read them",
		"topic", t.name, "consumer", consumer, "lapsed", count)
}

// outlasts reports whether an error is that of a node which was lost, so that
// who consumes goes on; it is said in the log. The pause before the next try was
// in the search for a node.
func (db *Database) outlasts(ctx context.Context, err error, who ...any) bool {
	if ctx.Err() != nil || !nodeWasLost(err) {
		return false
	}
	db.log.Warn("a node was lost while it was read; the reading goes on", append(who, "error", err)...)
	return true
}
