package store

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// NewMessage is a message to append: the key of its identity, none for one
// that the store generates, and its value.
type NewMessage struct {
	Key   value.Value
	Value value.Value
	// Encoded, where it is not nil, is the value as value.CBORReader.Stored
	// reads it, and Value is not looked at. It is not changed, and kept until
	// the message is answered.
	Encoded []byte
}

// encode appends the value as it is stored, which may nest levels deeper than
// another's.
func (m NewMessage) encode(levels int) ([]byte, error) {
	if m.Encoded != nil {
		return m.Encoded, nil
	}
	return m.Value.AppendStored(make([]byte, 0, typicalMessageBytes), levels)
}

// decode is the value.
func (m NewMessage) decode() (value.Value, error) {
	if m.Encoded != nil {
		return value.DecodeCBOR(m.Encoded)
	}
	return m.Value, nil
}

// Append appends messages to a topic in one commit of their own, all or none,
// and returns them with their positions. A message that deduplication keeps
// out is not among them.
func (db *Database) Append(ctx context.Context, topicName string, messages ...NewMessage) ([]Message, error) {
	for {
		request := &appendRequest{name: topicName, waiter: newWaiter()}
		request.done = request.waiter.finished
		if err := db.prepareAppend(ctx, request, messages); err != nil {
			return nil, err
		}
		err := submit(ctx, db.committer, request, request.waiter)
		if errors.Is(err, errStale) {
			// Another process may have altered the topic: what this one
			// remembers is renewed, or it would prepare the same for ever.
			if _, err := db.Catalog(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		return request.answer(), nil
	}
}

// AppendAsync appends as Append does, without waiting: done is called once,
// when the commit is durable or has failed, with the messages or the error. It
// must return soon, since other appends' answers wait for it. Messages of one
// caller are appended in the order of the calls. AppendAsync itself waits
// only while very much is waiting for the disk.
func (db *Database) AppendAsync(ctx context.Context, topicName string, done func([]Message, error), messages ...NewMessage) error {
	request := &appendRequest{name: topicName}
	request.done = func(err error) {
		if errors.Is(err, errStale) {
			// The topic was altered between the call and its commit: prepare
			// the messages anew, away from the committer.
			go func() { done(db.Append(ctx, topicName, messages...)) }()
			return
		}
		if err != nil {
			done(nil, err)
			return
		}
		done(request.answer(), nil)
	}
	if err := db.prepareAppend(ctx, request, messages); err != nil {
		return err
	}
	return db.committer.enqueue(request)
}

// IsTopic reports whether a table is a topic, or returns fault.NotFound.
func (db *Database) IsTopic(ctx context.Context, tableName string) (bool, error) {
	catalog, err := db.NewestCatalog(ctx)
	if err != nil {
		return false, err
	}
	table, err := catalog.Table(tableName)
	if err != nil {
		return false, err
	}
	return table.Kind == Topic, nil
}

// prepareAppend encodes messages and checks what the topic's definition alone
// can refuse. What is remembered of the definitions may be behind what another
// process has made of them, so only the newest ones refuse.
func (db *Database) prepareAppend(ctx context.Context, request *appendRequest, messages []NewMessage) error {
	remembered := db.catalog.Load()
	if remembered != nil && request.prepare(ctx, remembered, messages) == nil {
		return nil
	}
	newest, err := db.Catalog(ctx)
	if err != nil {
		return err
	}
	return request.prepare(ctx, newest, messages)
}

// prepare encodes messages under a topic's definition as a catalog has it.
func (r *appendRequest) prepare(ctx context.Context, catalog *Catalog, messages []NewMessage) error {
	table, err := catalog.TopicTable(r.name)
	if err != nil {
		return err
	}
	r.size = 0
	r.table = table
	r.reserve(len(messages))
	headers := headersOf(ctx)
	for i, message := range messages {
		prepared := r.messages[i]
		if *prepared, err = prepareMessage(table, message, 0); err != nil {
			return err
		}
		prepared.headers = headers
		r.size += len(prepared.encoded) + len(headers) + messageHeadBytes + positionKeyBytes
	}
	if r.size > MaxTransactionBytes {
		return fault.New(fault.TooLarge, "the messages take more than %d bytes; append them in smaller steps", MaxTransactionBytes)
	}
	return nil
}

// typicalMessageBytes is where most messages fit without growing.
const typicalMessageBytes = 192

// prepareMessage encodes a message and checks what its topic's definition alone
// can refuse: its size, its key, its deduplication key. levels is how much
// deeper than another value this one may nest.
func prepareMessage(table *Table, message NewMessage, levels int) (m newMessage, err error) {
	if m.encoded, err = message.encode(levels); err != nil {
		return m, err
	}
	if err := topic.CheckMaxBytes(table.Name, table.Topic, len(m.encoded)); err != nil {
		return m, err
	}
	if deduplicate := table.Topic.Deduplicate; deduplicate != nil {
		v, err := message.decode()
		if err != nil {
			return m, err
		}
		if m.deduplication, err = deduplicate.Key(table.Name, v); err != nil {
			return m, err
		}
	}
	if message.Key.IsNone() {
		return m, nil
	}
	if err := CheckKey(table.Name, message.Key); err != nil {
		return m, err
	}
	m.key = message.Key
	m.namedKey, err = value.AppendKey(nil, message.Key)
	return m, err
}

// appendRequest is a lone append that waits to be sealed.
type appendRequest struct {
	waiter
	name     string
	table    *Table
	messages []*newMessage
	size     int
	done     func(error)

	// One message, which most appends are, has its place in the request: an
	// allocation a message is what the fastest appender waits for.
	only    newMessage
	pointer [1]*newMessage
}

// reserve makes room for a number of messages.
func (r *appendRequest) reserve(count int) {
	if count == 1 {
		r.pointer[0] = &r.only
		r.messages = r.pointer[:]
		return
	}
	prepared := make([]newMessage, count)
	r.messages = make([]*newMessage, count)
	for i := range prepared {
		r.messages[i] = &prepared[i]
	}
}

func (r *appendRequest) bytes() int         { return r.size }
func (r *appendRequest) alone() bool        { return false }
func (r *appendRequest) finished(err error) { r.done(err) }

// errStale says that a request was prepared under definitions that changed.
var errStale = fault.New(fault.Conflict, "the topic was altered meanwhile")

func (r *appendRequest) seal(s *sealing) error {
	table, err := s.catalog.TopicTable(r.name)
	if err != nil {
		return err
	}
	if table != r.table && !sameTopic(table, r.table) {
		return errStale
	}
	if err := s.admit(table, r.messages); err != nil {
		return err
	}
	return s.append(table, r.messages)
}

// sameTopic reports whether what was prepared for one definition of a topic
// stands for the other.
func sameTopic(a, b *Table) bool {
	return a.ID == b.ID && a.Topic.MaxBytes == b.Topic.MaxBytes && sameDeduplication(a.Topic.Deduplicate, b.Topic.Deduplicate)
}

func sameDeduplication(a, b *topic.Deduplication) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Field == b.Field
}

func (r *appendRequest) answer() []Message {
	answer := make([]Message, 0, len(r.messages))
	for _, m := range r.messages {
		if !m.keptOut {
			answer = append(answer, m.message(r.table))
		}
	}
	return answer
}
