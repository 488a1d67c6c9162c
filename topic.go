package tidemark

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// Topic is a topic of a database. The topic is looked up when it is used:
// fault.NotFound says that it does not exist.
type Topic struct {
	db   *Database
	name string
}

// Topic returns a topic by its name. It does not create one; DEFINE TOPIC does.
func (db *Database) Topic(name string) *Topic { return &Topic{db: db, name: name} }

// Message is one message of a topic. It is small, and shares the memory of the
// page that it was read with.
type Message struct{ message *store.Message }

// Position is the message's place in the topic: 1, 2, 3 with no gap.
func (m Message) Position() uint64 { return uint64(m.message.Position) }

// ID is the message's identity.
func (m Message) ID() value.RecordID { return m.message.ID() }

// Appended is the time of the commit that appended the message. It never runs
// backwards within a topic.
func (m Message) Appended() time.Time { return m.message.Appended() }

// Deliveries counts how often a group handed the message out, this time
// included; 0 for a message read without a group.
func (m Message) Deliveries() uint32 { return uint32(m.message.Deliveries) }

// Value is what the message holds.
func (m Message) Value() (value.Value, error) { return m.message.Value() }

// Scan decodes what the message holds into the Go variable that dst points to.
// Struct fields are named by their json tags.
func (m Message) Scan(dst any) error {
	v, err := m.message.Value()
	if err != nil {
		return err
	}
	return v.Scan(dst)
}

func messagesOf(stored []store.Message) []Message {
	messages := make([]Message, len(stored))
	for i := range stored {
		messages[i] = Message{&stored[i]}
	}
	return messages
}

// AppendOption says more about a message that is appended.
type AppendOption func(*appendSettings)

type appendSettings struct{ key any }

// WithKey names the key of the message's identity, an int, a string or a uuid,
// so that appending is idempotent: a second append of the identity is
// fault.RecordExists.
func WithKey(key any) AppendOption { return func(s *appendSettings) { s.key = key } }

func prepare(message any, options []AppendOption) (v, key value.Value, err error) {
	var settings appendSettings
	for _, option := range options {
		option(&settings)
	}
	if v, err = value.Of(message); err != nil {
		return v, key, err
	}
	if settings.key != nil {
		key, err = value.Of(settings.key)
	}
	return v, key, err
}

// Append appends a message and returns it with its position once it is
// durable. appended is false when the topic's deduplication kept the message
// out.
func (t *Topic) Append(ctx context.Context, message any, options ...AppendOption) (m Message, appended bool, err error) {
	v, key, err := prepare(message, options)
	if err != nil {
		return Message{}, false, err
	}
	stored, err := t.db.database.Append(ctx, t.name, store.NewMessage{Key: key, Value: v})
	if err != nil || len(stored) == 0 {
		return Message{}, false, err
	}
	return Message{&stored[0]}, true, nil
}

// AppendAsync appends a message without waiting for the disk. done is called
// once, when the message is durable, was kept out (appended is false) or has
// failed; it must return soon, since other answers wait for it. Messages that
// one goroutine appends keep their order. AppendAsync itself waits only while
// very much is on its way to the disk.
func (t *Topic) AppendAsync(ctx context.Context, message any, done func(m Message, appended bool, err error), options ...AppendOption) error {
	v, key, err := prepare(message, options)
	if err != nil {
		return err
	}
	return t.db.database.AppendAsync(ctx, t.name, func(stored []store.Message, err error) {
		if err != nil || len(stored) == 0 {
			done(Message{}, false, err)
			return
		}
		done(Message{&stored[0]}, true, nil)
	}, store.NewMessage{Key: key, Value: v})
}

// ReadOptions say which messages to read. The zero value reads from the
// beginning.
type ReadOptions struct {
	// After is the position after which to start.
	After uint64
	// Limit is at most how many messages to answer: 100 when 0, 10,000 at
	// most. An answer also ends before 16 MiB of values.
	Limit int
	// Wait is how long to wait for the first message where there is none.
	Wait time.Duration
}

// Page is the answer to a read.
type Page struct {
	Messages []Message
	// Lapsed is how many messages retention removed between where the read
	// started and its first message.
	Lapsed uint64
}

// Read reads messages without a name and leaves no trace.
func (t *Topic) Read(ctx context.Context, options ReadOptions) (Page, error) {
	if err := checkLimit(options.Limit); err != nil {
		return Page{}, err
	}
	after := topic.Position(options.After)
	page, err := t.db.database.Read(ctx, t.name, store.ReadOptions{After: &after, Limit: options.Limit}, options.Wait)
	return Page{Messages: messagesOf(page.Messages), Lapsed: page.Lapsed}, err
}

func checkLimit(limit int) error {
	if limit < 0 || limit > store.MaxReadLimit {
		return fault.New(fault.InvalidClause, "a read's limit is 1 to %d, not %d", store.MaxReadLimit, limit)
	}
	return nil
}

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
// or when handler fails, with its error.
func (t *Topic) Consume(ctx context.Context, consumer string, handler Handler, options ConsumeOptions) error {
	if err := checkLimit(options.Batch); err != nil {
		return err
	}
	for {
		count, err := t.consumeOnce(ctx, consumer, handler, options)
		if ctx.Err() != nil && (err == nil || errors.Is(err, fault.Cancelled) || errors.Is(err, fault.Timeout)) {
			return nil
		}
		if err != nil {
			return err
		}
		if count > 0 {
			continue
		}
		if err := t.db.database.Await(ctx, t.name, store.ReadOptions{Consumer: consumer, Limit: 1}, awaitFor); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// consumeOnce handles one batch and returns how many messages it had.
func (t *Topic) consumeOnce(ctx context.Context, consumer string, handler Handler, options ConsumeOptions) (count int, err error) {
	err = session.Rerun(ctx, func() error {
		tx, err := t.db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Cancel()
		page, err := tx.session.Read(ctx, t.name, store.ReadOptions{Consumer: consumer, Limit: options.Batch})
		if err != nil {
			return err
		}
		count = len(page.Messages)
		if count > 0 {
			if err := handler(ctx, tx, messagesOf(page.Messages)); err != nil {
				return err
			}
		}
		// A batch that was handled is committed also where ctx ended meanwhile.
		if _, err := tx.Commit(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if page.Lapsed > 0 {
			t.tellLapsed(consumer, page.Lapsed, options)
		}
		return nil
	})
	return count, err
}

func (t *Topic) tellLapsed(consumer string, count uint64, options ConsumeOptions) {
	if options.Lapsed != nil {
		options.Lapsed(count)
		return
	}
	t.db.owner.log.Warn("retention removed messages before a consumer read them",
		"topic", t.name, "consumer", consumer, "lapsed", count)
}
