package tidemark

import (
	"context"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// embedded carries the API to a store that this process has opened.
type embedded struct {
	store     *store.Store
	consumers *ingest.Supervisor
}

// Close lets the declared consumers finish and closes the store.
func (e *embedded) Close() error {
	e.consumers.Stop()
	return e.store.Close()
}

// Database opens a database, which is created where it is missing.
func (e *embedded) Database(ctx context.Context, namespace, name string) (client.BackendDatabase, error) {
	if err := e.store.DefineNamespace(ctx, namespace, true); err != nil {
		return nil, err
	}
	if err := e.store.DefineDatabase(ctx, namespace, name, true); err != nil {
		return nil, err
	}
	database, err := e.store.Database(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &embeddedDatabase{e, database}, nil
}

// embeddedDatabase is a database of a store of this process.
type embeddedDatabase struct {
	owner    *embedded
	database *store.Database
}

// newSession starts a session in the database.
func (db *embeddedDatabase) newSession() *session.Session {
	return session.New(db.owner.store, session.Options{Database: db.database, Running: db.owner.consumers})
}

// withHeaders is a context whose headers the store sees.
func withHeaders(ctx context.Context) (context.Context, error) {
	headers := client.HeadersOf(ctx)
	if headers == nil {
		return ctx, nil
	}
	return store.WithHeaders(ctx, headers)
}

// Run runs a script in a session of its own.
func (db *embeddedDatabase) Run(ctx context.Context, script string, params map[string]value.Value) ([]client.Answer, error) {
	s := db.newSession()
	defer s.Close()
	return runScript(ctx, s, script, params)
}

func runScript(ctx context.Context, s *session.Session, script string, params map[string]value.Value) ([]client.Answer, error) {
	ctx, err := withHeaders(ctx)
	if err != nil {
		return nil, err
	}
	results, err := s.Run(ctx, script, params)
	if err != nil {
		return nil, err
	}
	answers := make([]client.Answer, len(results))
	for i, result := range results {
		answers[i] = client.Answer{Value: result.Value, Lapsed: result.Lapsed, Err: result.Err}
	}
	return answers, nil
}

// Append appends one message.
func (db *embeddedDatabase) Append(ctx context.Context, topic string, m client.NewMessage) (client.Message, bool, error) {
	ctx, err := withHeaders(ctx)
	if err != nil {
		return client.Message{}, false, err
	}
	stored, err := db.database.Append(ctx, topic, store.NewMessage{Key: m.Key, Value: m.Value})
	if err != nil || len(stored) == 0 {
		return client.Message{}, false, err
	}
	return messageOf(&stored[0]), true, nil
}

// AppendAsync appends one message without waiting for the disk.
func (db *embeddedDatabase) AppendAsync(ctx context.Context, topic string, m client.NewMessage, done func(client.Message, bool, error)) error {
	ctx, err := withHeaders(ctx)
	if err != nil {
		return err
	}
	return db.database.AppendAsync(ctx, topic, func(stored []store.Message, err error) {
		if err != nil || len(stored) == 0 {
			done(client.Message{}, false, err)
			return
		}
		done(messageOf(&stored[0]), true, nil)
	}, store.NewMessage{Key: m.Key, Value: m.Value})
}

// Read reads, and waits where there is nothing.
func (db *embeddedDatabase) Read(ctx context.Context, topic string, request client.ReadRequest) (client.Page, error) {
	page, err := db.database.Read(ctx, topic, readOptionsOf(request), request.Wait)
	return pageOf(page), err
}

func readOptionsOf(request client.ReadRequest) store.ReadOptions {
	options := store.ReadOptions{Consumer: request.Consumer, Limit: request.Limit}
	if request.Consumer == "" {
		after := topic.Position(request.After)
		options.After = &after
	}
	return options
}

// followPage is how many messages a FOLLOW of this process hands out at once.
const followPage = 1000

// Follow hands out messages as they commit.
func (db *embeddedDatabase) Follow(ctx context.Context, topicName string, after *uint64, handle func(client.Page) error) error {
	var from *topic.Position
	if after != nil {
		position := topic.Position(*after)
		from = &position
	}
	subscription, err := db.database.Follow(ctx, topicName, from)
	if err != nil {
		return err
	}
	for {
		page, err := subscription.Next(ctx, followPage, 0)
		if err != nil {
			return err
		}
		if err := handle(pageOf(page)); err != nil {
			return err
		}
	}
}

// Settle settles messages that a group has in flight.
func (db *embeddedDatabase) Settle(ctx context.Context, topicName, group string, s client.Settlement) (int, error) {
	settlement, err := settlementOf(s)
	if err != nil {
		return 0, err
	}
	return db.database.Settle(ctx, topicName, group, settlement)
}

func settlementOf(s client.Settlement) (store.Settlement, error) {
	settlement := store.Settlement{Delay: s.Delay, By: s.By, Reason: s.Reason, At: make([]topic.Settle, len(s.Messages))}
	for i, m := range s.Messages {
		settlement.At[i] = topic.Settle{Position: topic.Position(m.Position()), Delivery: topic.Deliveries(m.Deliveries())}
	}
	switch s.Verb {
	case client.VerbAck:
		settlement.Kind = store.Acknowledge
	case client.VerbReject:
		settlement.Kind = store.Reject
	case client.VerbRelease:
		settlement.Kind = store.Release
	case client.VerbExtend:
		settlement.Kind = store.Extend
		return settlement, topic.CheckDelay("an extension", s.By)
	case client.VerbNack:
		settlement.Kind = store.Return
		if s.Delay != nil {
			return settlement, topic.CheckDelay("a delay", *s.Delay)
		}
	default:
		return settlement, fault.New(fault.InvalidClause, "%q says nothing of a message", s.Verb)
	}
	return settlement, nil
}

// storedMessage is a message of a store of this process: a pointer into the page
// that it was read with.
type storedMessage struct{ stored *store.Message }

func messageOf(m *store.Message) client.Message { return client.MessageOf(storedMessage{m}) }

func (m storedMessage) Position() uint64            { return uint64(m.stored.Position) }
func (m storedMessage) ID() value.RecordID          { return m.stored.ID() }
func (m storedMessage) Appended() time.Time         { return m.stored.Appended() }
func (m storedMessage) Deliveries() uint32          { return uint32(m.stored.Deliveries) }
func (m storedMessage) Headers() map[string]string  { return m.stored.Headers() }
func (m storedMessage) Value() (value.Value, error) { return m.stored.Value() }

func pageOf(page store.Page) client.Page {
	messages := make([]client.Message, len(page.Messages))
	for i := range page.Messages {
		messages[i] = messageOf(&page.Messages[i])
	}
	return client.Page{Messages: messages, Lapsed: page.Lapsed}
}
