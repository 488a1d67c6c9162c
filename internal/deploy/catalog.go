package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// The collections that hold what is deployed in a database. Their names are
// those of FTL's data model; a topic of a module has its module's name before
// an underscore, which is why no module is called topic.
const (
	tableModules       = "modules"             // by module
	tableTopics        = "topics"              // by module.topic
	tableSubscriptions = "topic_subscriptions" // by module.subscription
	tableSubscribers   = "topic_subscribers"   // by module.subscription/module.sink
	tableMappers       = "topic_mappers"       // by module.subscription/module.mapper/module.topic
	tableAttempts      = "topic_attempts"      // by module.subscription/position
	tableFailures      = "topic_failures"      // by module.subscription
	tableRunners       = "topic_runners"       // by node/module
)

var tables = []string{
	tableModules, tableTopics, tableSubscriptions, tableSubscribers, tableMappers, tableAttempts, tableFailures, tableRunners,
}

// reservedModule is the module whose topics could have the names of the tables.
const reservedModule = "topic"

// moduleRow is a module that was deployed.
type moduleRow struct {
	Module string `json:"module"`
	// Deployment is the one whose runners are called, "" before the first has
	// said hello; Schema is what it declares.
	Deployment string    `json:"deployment"`
	Schema     string    `json:"schema"`
	Since      time.Time `json:"since"`
	// NextDeployment is one that was provisioned and has no runner yet, "" for
	// none.
	NextDeployment string `json:"next_deployment"`
	NextSchema     string `json:"next_schema"`
}

// newest is the schema that was provisioned last.
func (m *moduleRow) newest() string {
	if m.NextDeployment != "" {
		return m.NextSchema
	}
	return m.Schema
}

// topicRow is a topic that was provisioned, also one that no deployment declares
// any more.
type topicRow struct {
	Topic      string `json:"topic"`
	Module     string `json:"module"`
	Name       string `json:"name"`
	StoreTopic string `json:"store_topic"`
	// Type is the type of its events, and Shape the text of a module that
	// declares the topic and what its type is made of, for comparing the next
	// one with.
	Type      string    `json:"type"`
	Shape     string    `json:"shape"`
	Exported  bool      `json:"exported"`
	Declared  bool      `json:"declared"`
	CreatedAt time.Time `json:"created_at"`
}

// subscriptionRow is a subscription that was provisioned, also one that no
// deployment declares any more. Its place is the group's.
type subscriptionRow struct {
	Subscription string    `json:"subscription"`
	Module       string    `json:"module"`
	Name         string    `json:"name"`
	Topic        string    `json:"topic"`
	StoreTopic   string    `json:"store_topic"`
	FromLatest   bool      `json:"from_latest"`
	Parallel     int       `json:"parallel"`
	Declared     bool      `json:"declared"`
	CreatedAt    time.Time `json:"created_at"`
}

// subscriberRow is a sink of a subscription.
type subscriberRow struct {
	Subscription string `json:"subscription"`
	Module       string `json:"module"`
	Sink         string `json:"sink"`
}

// mapperRow is a mapper of a subscription.
type mapperRow struct {
	Subscription string `json:"subscription"`
	Module       string `json:"module"`
	Mapper       string `json:"mapper"`
	Topic        string `json:"topic"`
}

// attemptRow is what must be known of an event beyond its group's record: one
// that has failed, takes long, or is tried again from the start. It is removed
// with the event's settlement.
type attemptRow struct {
	Subscription string `json:"subscription"`
	Position     int64  `json:"position"`
	// Delivery is the hand-out that was Since with Verb.
	Delivery int64     `json:"delivery"`
	Verb     string    `json:"verb"`
	Since    time.Time `json:"since"`
	// Error is what the newest failed attempt of the sink or mapper failed with,
	// Attempt which one that was; CatchError is the catch verb's.
	Error      string    `json:"error"`
	CatchError string    `json:"catch_error"`
	Attempt    int       `json:"attempt"`
	FailedAt   time.Time `json:"failed_at"`
	// Forgiven is how many attempts do not count, since an operator had the
	// event tried again.
	Forgiven int `json:"forgiven"`
}

// failureRow is the newest failure of a subscription.
type failureRow struct {
	Subscription string    `json:"subscription"`
	Position     int64     `json:"position"`
	Verb         string    `json:"verb"`
	Attempt      int       `json:"attempt"`
	Error        string    `json:"error"`
	At           time.Time `json:"at"`
	GivenUp      bool      `json:"given_up"`
}

// runnersRow is the runners of a module that are connected to a node.
type runnersRow struct {
	Node        string      `json:"node"`
	Module      string      `json:"module"`
	Deployments []connected `json:"deployments"`
}

// connected is the runners of a deployment on a node.
type connected struct {
	Deployment string   `json:"deployment"`
	Runners    int      `json:"runners"`
	Ingress    []string `json:"ingress"`
}

func attemptKey(group string, p topic.Position) string { return fmt.Sprintf("%s/%d", group, p) }

// catalog is the tables as a transaction sees them.
type catalog struct {
	ctx context.Context
	tx  *store.Tx
}

// define makes the tables that are missing.
func (c catalog) define() error {
	for _, name := range tables {
		if err := c.tx.DefineTable(c.ctx, store.Table{Name: name, Kind: store.Collection}, store.Keep); err != nil {
			return err
		}
	}
	return nil
}

// get reads a row into dst and reports whether there is one.
func (c catalog) get(table, key string, dst any) (found bool, err error) {
	definition, err := c.tx.Catalog().Table(table)
	if err != nil {
		return false, notProvisioned(err)
	}
	row, found, err := c.tx.Get(c.ctx, definition, value.String(key))
	if err != nil || !found {
		return false, err
	}
	return true, scan(row, dst)
}

func scan(row store.Row, dst any) error {
	content, err := row.Value()
	if err != nil {
		return err
	}
	return content.Scan(dst)
}

// put writes a row, unless it is there as it is.
func (c catalog) put(table, key string, row any) error {
	definition, err := c.tx.Catalog().Table(table)
	if err != nil {
		return notProvisioned(err)
	}
	content, err := value.Of(row)
	if err != nil {
		return err
	}
	before, found, err := c.tx.Get(c.ctx, definition, value.String(key))
	if err != nil {
		return err
	}
	if found {
		if same, err := before.Value(); err == nil && value.Equal(same, content) {
			return nil
		}
	}
	_, err = c.tx.Put(c.ctx, definition, value.String(key), content)
	return err
}

func (c catalog) remove(table, key string) error {
	definition, err := c.tx.Catalog().Table(table)
	if err != nil {
		return notProvisioned(err)
	}
	if _, found, err := c.tx.Get(c.ctx, definition, value.String(key)); err != nil || !found {
		return err
	}
	return c.tx.Delete(c.ctx, definition, value.String(key))
}

// rows are all rows of a table, by key.
func rows[R any](c catalog, table string) (map[string]R, error) {
	definition, err := c.tx.Catalog().Table(table)
	if err != nil {
		return nil, notProvisioned(err)
	}
	found := map[string]R{}
	scanned := c.tx.Scan(c.ctx, definition, store.ScanOptions{})
	for scanned.Next() {
		key, _ := scanned.Row().ID.Key.AsString()
		var row R
		if err := scan(scanned.Row(), &row); err != nil {
			_ = scanned.Close()
			return nil, fmt.Errorf("row %s of %s: %w", key, table, err)
		}
		found[key] = row
	}
	return found, scanned.Close()
}

// notProvisioned says of a database without the tables what is missing.
func notProvisioned(error) error {
	return fault.New(fault.NotFound, "no module is deployed in this database; tidemark ftl deploy does")
}

// parseModule reads a schema that was checked when it was provisioned.
func parseModule(text string) (*schema.Module, error) {
	module, err := schema.ParseModule(text)
	if err != nil {
		return nil, fault.New(fault.Internal, "the schema of a deployed module does not parse: %w", err)
	}
	return module, nil
}

// shapeOf is a module that declares one topic, and what its type is made of.
func shapeOf(module *schema.Module, declared *schema.Topic) *schema.Module {
	shape := &schema.Module{Name: module.Name, Topics: []*schema.Topic{declared}}
	var add func(schema.Type)
	add = func(t schema.Type) {
		schema.Walk(t, func(part schema.Type) {
			ref, ok := part.(schema.Ref)
			if !ok || ref.Module != module.Name {
				return
			}
			data := module.DataOf(ref.Name)
			if data == nil || slices.Contains(shape.Data, data) {
				return
			}
			shape.Data = append(shape.Data, data)
			for _, field := range data.Fields {
				add(field.Type)
			}
		})
	}
	add(declared.Event)
	return shape
}

// groupDefinition is a subscription as a group of the store.
func groupDefinition(s *schema.Subscription) topic.GroupDefinition {
	return topic.GroupDefinition{AckDeadline: AckDeadline, InFlight: s.InFlight()}
}

// storeTopic is a topic of a module as a table of the store.
func storeTopic(module string, t *schema.Topic) store.Table {
	return store.Table{
		Name: ftlwire.StoreTopic(module, t.Name), Kind: store.Topic,
		Topic: topic.TopicDefinition{Retain: t.Retain, RetainBytes: t.RetainBytes},
	}
}

// storeTopicOf is the store's topic that a reference names.
func storeTopicOf(r schema.Ref) string { return ftlwire.StoreTopic(r.Module, r.Name) }

// groupOf is the store's group of a subscription.
func groupOf(module, subscription string) string { return ftlwire.StoreGroup(module, subscription) }

// ofModule reports whether a key begins with a module's name and a dot.
func ofModule(key, module string) bool { return strings.HasPrefix(key, module+".") }
