package ingest

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// The bounds of a batch, which is one transaction. A batch grows while batches
// are quick and full, so that a backlog costs few syncs, and shrinks when one
// takes long, since a transaction that loses to another is done again.
const (
	firstBatch    = 64
	maxBatch      = 4096
	maxBatchBytes = 4 << 20
	quickBatch    = 100 * time.Millisecond
	slowBatch     = 500 * time.Millisecond
)

// kafkaTries is how often a record is written before its message is parked: an
// assertion may look at the clock. A topic's message is tried again by its
// group, which counts.
const kafkaTries = 3

// The pauses after a failure that is not a message's, doubling from the first
// to the longest: short enough that consumption goes on within seconds of the
// engine's return.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
	// conflictPause bounds the random pause after losing to another member.
	conflictPause = 20 * time.Millisecond
)

// message is one message of a batch.
type message struct {
	content value.Value
	// unreadable is why there is no content.
	unreadable error
	sizeBytes  int
	// key is that of its record, once the message was applied; late says that
	// there is none because a later message of the identity came first.
	key  value.Value
	late bool

	// position and deliveries are a message's of the store.
	position   topic.Position
	deliveries topic.Deliveries
	// partition, offset and payload are a message's of Kafka.
	partition int32
	offset    int64
	payload   []byte
}

// source is where a member's messages come from, and where it says what became
// of them. It is used by one goroutine.
type source interface {
	// wait returns when there may be something to read, or with an error.
	wait(ctx context.Context) error
	// begin starts a batch in a transaction, from the first message that is not
	// settled: one that was begun before and did not commit is forgotten. An
	// error is not a message's fault.
	begin(ctx context.Context, tx *store.Tx, into *store.Table) error
	// read returns the next messages of the batch, at most limit, or none.
	read(ctx context.Context, limit int) ([]message, error)
	// superseded reports whether a later message of the identity was applied
	// before this one, so that this one must not be written.
	superseded(m *message) (bool, error)
	// settle says that messages were applied.
	settle(ctx context.Context, messages []message) error
	// setAside says that a message cannot be applied, under ON FAILURE
	// quarantine, and reports whether it is put aside for good, not to be
	// tried again.
	setAside(ctx context.Context, m *message, reason error) (forGood bool, err error)
	// finish is the last that a batch does before its transaction commits.
	finish(ctx context.Context) error
	// committed says that the batch's transaction is durable.
	committed(ctx context.Context) error
	// describe names a message for people.
	describe(m *message) string
	// close gives up what the source holds.
	close()
}

// member is one worker of a consumer.
type member struct {
	*consumer
	// turn is held by the one member that works, of a source whose members
	// would else only take messages from each other.
	turn   chan struct{}
	writer *session.Writer
	source source
	limit  int
	// narrowed is how many messages the next batch takes, to end before the
	// one that failed; 0 for limit.
	narrowed int
}

func newMember(c *consumer, turn chan struct{}) *member {
	m := &member{consumer: c, writer: session.NewWriter(c.store), limit: firstBatch}
	if c.declared.Kind == store.TopicConsumer {
		// What is handed out and what is settled are one commit, so a second
		// member could only lose to the first: they take turns.
		m.turn = turn
	}
	return m
}

// errGone says that the declaration is not the one that the member runs.
var errGone = errors.New("the declaration was changed or dropped")

// run works until ctx ends; a batch that was begun is finished first.
func (m *member) run(ctx context.Context) {
	defer m.closeSource()
	wait := firstPause
	for ctx.Err() == nil {
		err := m.step(ctx)
		switch {
		case err == nil:
			wait = firstPause
		case ctx.Err() != nil:
		case errors.Is(err, errGone):
			// The supervisor is about to stop this member.
			pause(ctx, lookEvery)
		case errors.Is(err, fault.Conflict):
			m.limit = max(m.limit/2, 1)
			pause(ctx, rand.N(conflictPause))
		default:
			m.troubled(err)
			pause(ctx, wait)
			wait = min(2*wait, longestPause)
		}
	}
}

// step waits for something to read and applies one batch of it.
func (m *member) step(ctx context.Context) error {
	if m.turn != nil {
		select {
		case m.turn <- struct{}{}:
			defer func() { <-m.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if m.source == nil {
		opened, err := m.open(ctx)
		if err != nil {
			return err
		}
		m.source = opened
	}
	if err := m.source.wait(ctx); err != nil {
		// What a source cannot wait for it may reach when it is opened anew.
		m.closeSource()
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// From here on the batch is finished, whatever ctx does.
	return m.apply(context.WithoutCancel(ctx))
}

func (m *member) open(ctx context.Context) (source, error) {
	if m.declared.Kind == store.KafkaConsumer {
		return openKafka(ctx, m.consumer)
	}
	return &topicSource{consumer: m.consumer}, nil
}

func (m *member) closeSource() {
	if m.source != nil {
		m.source.close()
		m.source = nil
	}
}

// batch is what one transaction takes from a source.
type batch struct {
	tx    *store.Tx
	table *store.Table
	limit int

	read, bytes          int
	applied, quarantined int
	// refused is a message at which ON FAILURE stop ends the batch, at is which
	// of the batch it is.
	refused *message
	reason  error
	at      int
	// aside says that a message was put aside, to be tried again or not.
	aside bool
}

// apply applies one batch.
func (m *member) apply(ctx context.Context) error {
	started := time.Now()
	limit := m.limit
	if m.narrowed > 0 {
		limit = m.narrowed
	}
	b := &batch{limit: limit}
	err := m.transact(ctx, b)
	switch {
	case errors.Is(err, fault.TooLarge) && limit > 1:
		// The transaction has no room for so many: take fewer.
		m.limit, m.narrowed = max(limit/2, 1), 0
		return nil
	case err != nil:
		return err
	case b.refused == nil:
		m.narrowed = 0
	case b.at > 0:
		// What comes before the message is applied first.
		m.narrowed = b.at
		return nil
	default:
		m.halt(m.source.describe(b.refused), b.reason)
		return nil
	}
	m.count(b)
	m.adapt(b, time.Since(started))
	return m.source.committed(ctx)
}

// adapt chooses the size of the next batch.
func (m *member) adapt(b *batch, took time.Duration) {
	switch {
	case took > slowBatch:
		m.limit = max(m.limit/2, 1)
	case took < quickBatch && b.read >= m.limit:
		m.limit = min(2*m.limit, maxBatch)
	}
}

// transact applies a batch in a transaction and commits it. Nothing is written
// when it returns an error, and nothing when it stops at a message.
func (m *member) transact(ctx context.Context, b *batch) (err error) {
	if b.tx, err = m.database.Begin(ctx); err != nil {
		return err
	}
	defer b.tx.Cancel()
	catalog := b.tx.Catalog()
	current, err := catalog.Consumer(m.declared.Kind, m.declared.Name)
	if err != nil || current.ID != m.declared.ID || current.Generation != m.declared.Generation {
		return errGone
	}
	if err := session.CheckDeclarer(ctx, m.store, catalog, current); err != nil {
		return err
	}
	if b.table, err = catalog.Table(m.declared.Into); err != nil {
		return err
	}
	if err := m.source.begin(ctx, b.tx, b.table); err != nil {
		return err
	}
	for b.read < b.limit && b.bytes < maxBatchBytes && !b.aside {
		messages, err := m.source.read(ctx, b.limit-b.read)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			break
		}
		if err := m.applyAll(ctx, b, messages); err != nil || b.refused != nil {
			return err
		}
	}
	if !b.tx.Wrote() {
		return nil
	}
	if err := m.source.finish(ctx); err != nil {
		return err
	}
	_, err = b.tx.Commit(ctx)
	return err
}

// applyAll applies messages and settles them.
func (m *member) applyAll(ctx context.Context, b *batch, messages []message) error {
	applied := make([]message, 0, len(messages))
	for i := range messages {
		one := &messages[i]
		refusal, err := m.applyOne(ctx, b, one)
		if err != nil {
			return err
		}
		b.read++
		b.bytes += one.sizeBytes
		if refusal == nil {
			applied = append(applied, *one)
			continue
		}
		if !m.declared.Quarantine {
			b.refused, b.reason, b.at = one, refusal, b.read-1
			return nil
		}
		if err := m.setAside(ctx, b, one, refusal); err != nil {
			return err
		}
	}
	b.applied += len(applied)
	return m.source.settle(ctx, applied)
}

// applyOne writes a message's record. A refusal is the message's own fault and
// leaves the transaction as it was; an error is not.
func (m *member) applyOne(ctx context.Context, b *batch, one *message) (refusal, err error) {
	if one.unreadable != nil {
		return one.unreadable, nil
	}
	var record value.Value
	if one.key, record, refusal = land(m.declared, b.table, one.content); refusal != nil {
		return refusal, nil
	}
	if one.late, err = m.source.superseded(one); err != nil || one.late {
		return nil, err
	}
	tries := 1
	if m.declared.Kind == store.KafkaConsumer && m.declared.Quarantine {
		tries = kafkaTries
	}
	for range tries {
		err = m.writer.Put(ctx, b.tx, b.table, one.key, record)
		if err == nil || !isRefusal(err) || errors.Is(err, fault.TooLarge) && b.limit > 1 {
			return nil, err
		}
	}
	return err, nil
}

// isRefusal reports whether an error is what a table says of a record, and not
// that of a store that cannot write now.
func isRefusal(err error) bool {
	switch fault.Of(err).Kind {
	case fault.TypeMismatch, fault.UnknownField, fault.AssertionFailed, fault.InvalidClause, fault.TooLarge:
		return true
	}
	return false
}

func (m *member) setAside(ctx context.Context, b *batch, one *message, reason error) error {
	forGood, err := m.source.setAside(ctx, one, reason)
	if err != nil {
		return err
	}
	b.aside = true
	at := m.source.describe(one)
	m.failed(at, reason)
	if forGood {
		b.quarantined++
		m.log.Warn("a message cannot be applied and is put aside", slog.String("at", at), slog.Any("error", reason))
	}
	return nil
}
