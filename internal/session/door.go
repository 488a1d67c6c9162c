package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// Door is where callers who have not signed in append to PUBLIC topics, each
// topic at its rate. It counts in memory: a process has one, which all its
// sessions share. It is safe for concurrent use.
type Door struct {
	mu sync.Mutex
	// topics are protected by mu.
	topics map[doorTopic]*topic.Bucket
}

// doorTopic names a topic among all of the store.
type doorTopic struct {
	namespace, database string
	id                  store.ObjectID
}

// NewDoor returns a door through which nothing has come.
func NewDoor() *Door { return &Door{topics: map[doorTopic]*topic.Bucket{}} }

// admit counts n messages of a topic, or refuses them with
// fault.TopicRateExceeded.
func (d *Door) admit(of doorTopic, table *store.Table, n int, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	bucket := d.topics[of]
	if bucket == nil {
		d.forget(now)
		bucket = new(topic.Bucket)
		d.topics[of] = bucket
	}
	return bucket.Take(table.Name, *table.Topic.Public, n, now)
}

// giveBack uncounts messages that were not appended.
func (d *Door) giveBack(of doorTopic, public topic.Public, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bucket := d.topics[of]; bucket != nil {
		bucket.GiveBack(public, n)
	}
}

// maxDoorTopics is how many topics are counted before those that were dropped
// or are quiet are looked for.
const maxDoorTopics = 1024

// forget forgets topics that are quiet, of which there is nothing to know.
func (d *Door) forget(now time.Time) {
	if len(d.topics) < maxDoorTopics {
		return
	}
	for of, bucket := range d.topics {
		if bucket.IsQuiet(now) {
			delete(d.topics, of)
		}
	}
}

// throughDoor runs a statement of a stranger: USE, of whatever name, and CREATE
// or INSERT into a PUBLIC topic of what reads nothing and names no identity.
// Everything else is answered as one, so that nothing is told of what exists.
func (s *Session) throughDoor(e *environment, statement lang.Statement) (Answer, error) {
	// One that was begun while the store had no owner goes no further.
	s.endTransaction()
	switch x := statement.(type) {
	case *lang.Use:
		return null, s.useUnseen(x)
	case *lang.Create:
		if x.Target.Key == nil && readsNothing(x.Value) {
			return s.appendAsStranger(e, x.Target.Table, x.Value, false)
		}
	case *lang.Insert:
		if readsNothing(x.Rows) {
			return s.appendAsStranger(e, x.Table, x.Rows, true)
		}
	}
	return null, errNotSignedIn
}

// useUnseen is USE for a stranger: whether there is anything of the name is
// looked up when something is appended.
func (s *Session) useUnseen(x *lang.Use) error {
	if x.Kind == lang.Namespace {
		s.namespace, s.database, s.unseen = x.Name, nil, ""
		return nil
	}
	if s.namespace == "" {
		return errNoNamespace()
	}
	s.database, s.unseen = nil, x.Name
	return nil
}

// see looks up the database that a stranger named.
func (s *Session) see(ctx context.Context) error {
	if s.unseen == "" {
		return nil
	}
	database, err := s.store.Database(ctx, s.namespace, s.unseen)
	if err == nil {
		s.database, s.unseen = database, ""
	}
	return err
}

// readsNothing reports whether an expression is made of what a stranger sends
// and of nothing that is in the store.
func readsNothing(expression lang.Expression) bool {
	switch x := expression.(type) {
	case *lang.Literal, *lang.Parameter:
		return true
	case *lang.Call:
		if !slices.Contains([]string{"len", "type", "now", "uuid"}, x.Function) {
			return false
		}
	case *lang.RecordExpression:
		return readsNothing(x.Key)
	case *lang.Path:
		if x.Root == nil {
			return false
		}
	case *lang.Binary, *lang.Unary, *lang.ArrayExpression, *lang.ObjectExpression:
	default:
		return false
	}
	for _, part := range parts(expression) {
		if !readsNothing(part) {
			return false
		}
	}
	return true
}

// appendAsStranger appends what a stranger says, at the topic's rate. rows says
// that it may be several messages, which are admitted or refused whole.
func (s *Session) appendAsStranger(e *environment, name string, said lang.Expression, rows bool) (Answer, error) {
	table, err := s.publicTopic(e.ctx, name)
	if err != nil {
		return null, err
	}
	content, err := e.evaluate(said)
	if err != nil {
		return null, err
	}
	contents := []value.Value{content}
	if list, ok := content.AsArray(); ok && rows {
		contents = list
	}
	messages := make([]newRow, len(contents))
	for i, content := range contents {
		if fields, ok := content.AsObject(); rows && ok && !fields["id"].IsNone() {
			return null, errNotSignedIn
		}
		messages[i].content = content
	}
	now, err := s.store.Now(e.ctx)
	if err != nil {
		return null, err
	}
	of := doorTopic{s.database.Namespace, s.database.Name, table.ID}
	if err := s.caller.door.admit(of, table, len(messages), now); err != nil {
		return null, err
	}
	// MAX BYTES is to bound all that comes through the door.
	answer, err := s.append(store.WithoutHeaders(e.ctx), name, messages)
	if err != nil {
		s.caller.door.giveBack(of, *table.Topic.Public, len(messages))
	}
	if errors.Is(err, fault.NotFound) {
		err = errNotSignedIn // It was dropped this very moment.
	}
	return answer, err
}

// publicTopic finds a topic that strangers may append to. Whatever else there
// is, or is not, is answered as one.
func (s *Session) publicTopic(ctx context.Context, name string) (*store.Table, error) {
	err := s.see(ctx)
	if err == nil && s.database == nil {
		return nil, errNotSignedIn
	}
	var catalog *store.Catalog
	if err == nil {
		catalog, err = s.database.NewestCatalog(ctx)
	}
	var table *store.Table
	if err == nil {
		table, err = catalog.TopicTable(name)
	}
	switch {
	case errors.Is(err, fault.NotFound) || err == nil && table.Topic.Public == nil:
		return nil, errNotSignedIn
	case err != nil:
		return nil, err
	}
	return table, nil
}
