package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
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
type Message struct{ backend BackendMessage }

// MessageOf is a message of a backend.
func MessageOf(backend BackendMessage) Message { return Message{backend} }

// Position is the message's place in the topic: 1, 2, 3 with no gap. It is 0
// for a Message that is none.
func (m Message) Position() uint64 {
	if m.backend == nil {
		return 0
	}
	return m.backend.Position()
}

// ID is the message's identity.
func (m Message) ID() value.RecordID { return m.backend.ID() }

// Appended is the time of the commit that appended the message. It never runs
// backwards within a topic.
func (m Message) Appended() time.Time { return m.backend.Appended() }

// Deliveries counts how often a group handed the message out, this time
// included; 0 for a message read without a group.
func (m Message) Deliveries() uint32 { return m.backend.Deliveries() }

// Headers are what who appended the message sent beside its value, such as the
// trace it belongs to; nil for none.
func (m Message) Headers() map[string]string { return m.backend.Headers() }

// Value is what the message holds.
func (m Message) Value() (value.Value, error) { return m.backend.Value() }

// Scan decodes what the message holds into the Go variable that dst points to.
// Struct fields are named by their json tags.
func (m Message) Scan(dst any) error {
	v, err := m.backend.Value()
	if err != nil {
		return err
	}
	return v.Scan(dst)
}

// AppendOption says more about a message that is appended.
type AppendOption func(*appendSettings)

type appendSettings struct{ key any }

// WithKey names the key of the message's identity, an int, a string or a uuid,
// so that appending is idempotent: a second append of the identity is
// fault.RecordExists.
func WithKey(key any) AppendOption { return func(s *appendSettings) { s.key = key } }

func newMessage(message any, options []AppendOption) (m NewMessage, err error) {
	if m.Value, err = value.Of(message); err != nil || len(options) == 0 {
		return m, err
	}
	var settings appendSettings
	for _, option := range options {
		option(&settings)
	}
	if settings.key != nil {
		m.Key, err = value.Of(settings.key)
	}
	return m, err
}

// Append appends a message and returns it with its position once it is
// durable. appended is false when the topic's deduplication kept the message
// out.
//
// When a node is lost with the append on its way, one that named its identity
// (WithKey) is sent again; if the topic holds that identity with the same value
// by then, it is the append's own. Of one that did not, fault.Unavailable says
// that its outcome is unknown.
func (t *Topic) Append(ctx context.Context, message any, options ...AppendOption) (m Message, appended bool, err error) {
	prepared, err := newMessage(message, options)
	if err != nil {
		return Message{}, false, err
	}
	return t.db.backend.Append(ctx, t.name, prepared)
}

// AppendAsync appends a message without waiting for the disk. done is called
// once, when the message is durable, was kept out (appended is false) or has
// failed; it must return soon, since other answers wait for it. Messages that
// one goroutine appends keep their order. AppendAsync itself waits only while
// very much is on its way to the disk.
func (t *Topic) AppendAsync(ctx context.Context, message any, done func(m Message, appended bool, err error), options ...AppendOption) error {
	prepared, err := newMessage(message, options)
	if err != nil {
		return err
	}
	return t.db.backend.AppendAsync(ctx, t.name, prepared, done)
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
	return t.db.backend.Read(ctx, t.name, ReadRequest{After: options.After, Limit: options.Limit, Wait: options.Wait})
}

// maxReadLimit is the largest LIMIT of a READ.
const maxReadLimit = 10_000

func checkLimit(limit int) error {
	if limit < 0 || limit > maxReadLimit {
		return fault.New(fault.InvalidClause, "a read's limit is 1 to %d, not %d", maxReadLimit, limit)
	}
	return nil
}

// FollowOptions say where to begin. The zero value begins with the topic's
// first message.
type FollowOptions struct {
	// After is the position after which to start.
	After uint64
	// New begins with the next message that commits instead.
	New bool
}

// Follow yields the topic's messages in order as they commit, page by page,
// until the loop ends or ctx does:
//
//	for page, err := range events.Follow(ctx, tidemark.FollowOptions{}) {
//
// An error is the last thing it yields: fault.NotFound where the topic was
// dropped. It goes on with another node where one is lost, from the message
// after the last one that it yielded.
func (t *Topic) Follow(ctx context.Context, options FollowOptions) iter.Seq2[Page, error] {
	var after *uint64
	if !options.New {
		after = &options.After
	}
	return func(yield func(Page, error) bool) {
		err := t.db.backend.Follow(ctx, t.name, after, func(page Page) error {
			if !yield(page, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
			yield(Page{}, err)
		}
	}
}

// errEnough says that who follows has broken its loop.
var errEnough = fault.New(fault.Cancelled, "the loop was left")
