package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// TableKind says what a table holds.
type TableKind string

// The kinds of tables. All tables of a database share one space of names,
// since an identity is written table:key.
const (
	Collection TableKind = "collection" // records of any shape
	TypedTable TableKind = "table"      // records of one shape
	Space      TableKind = "space"      // the newest value per key
	Topic      TableKind = "topic"      // messages by position
)

// Table is the definition of a table, collection, space or topic. What the
// catalog holds is shared and never changed.
type Table struct {
	ID     ObjectID
	Name   string
	Kind   TableKind
	Fields []Field
	Topic  topic.TopicDefinition

	// Groups are the groups of a topic, by name.
	Groups map[string]*Group `cbor:"-"`
}

// Group is the definition of a group on a topic.
type Group struct {
	ID         ObjectID
	Name       string
	Topic      ObjectID
	Definition topic.GroupDefinition
	// KeyedBy is the path whose values are kept in order, which
	// Definition.KeyedBy shows as text; empty for a group without keys.
	KeyedBy value.Path
}

// Consumer is the declaration of a consumer that the nodes run.
type Consumer struct {
	ID          ObjectID
	Kind        ConsumerKind
	Name        string
	From        string
	Brokers     []string
	Settings    map[string]string
	Group       string
	Format      string
	Into        string
	Identity    value.Path
	Map         []Mapping
	Quarantine  bool
	Parallelism int
	// DeclaredBy is the user with whose authority the consumer runs; nil for
	// one that was declared by the process itself, or before the store had an
	// owner, which runs with the store's own.
	DeclaredBy *Declarer
	// Generation grows whenever the consumer is declared again or resumed, so
	// that a node knows that it must start anew.
	Generation uint64
}

// Declarer is the user who declared a consumer.
type Declarer struct {
	UserName
	ID UserID
}

// ConsumerKind says what a declared consumer reads.
type ConsumerKind string

// The sources of declared consumers.
const (
	TopicConsumer ConsumerKind = "topic"
	KafkaConsumer ConsumerKind = "kafka"
)

// Mapping is one field of a message and the record's field it becomes.
type Mapping struct {
	From value.Path
	To   string
}

// Catalog is all definitions of a database at one point of its commit order.
// It is immutable: changed returns another.
type Catalog struct {
	// version is the commit that changed the definitions last.
	version   engine.Sequence
	tables    map[string]*Table
	consumers map[consumerName]*Consumer
	// users are those of the database, by name; grants are what any user holds.
	users  map[string]*User
	grants map[UserID]map[ObjectID]Grant
}

type consumerName struct {
	kind ConsumerKind
	name string
}

func emptyCatalog() *Catalog {
	return &Catalog{
		tables: map[string]*Table{}, consumers: map[consumerName]*Consumer{},
		users: map[string]*User{}, grants: map[UserID]map[ObjectID]Grant{},
	}
}

// Table returns the definition of a name, or fault.NotFound.
func (c *Catalog) Table(name string) (*Table, error) {
	if table, ok := c.tables[name]; ok {
		return table, nil
	}
	return nil, fault.New(fault.NotFound, "table %s does not exist in this database", name)
}

// TopicTable returns the definition of a topic, or fault.NotFound.
func (c *Catalog) TopicTable(name string) (*Table, error) {
	table, ok := c.tables[name]
	if !ok {
		return nil, fault.New(fault.NotFound, "topic %s does not exist in this database", name)
	}
	if table.Kind != Topic {
		return nil, fault.New(fault.NotFound, "topic %s does not exist in this database: %s is a %s", name, name, table.Kind)
	}
	return table, nil
}

// Group returns the group of a topic, or fault.NotAGroup.
func (t *Table) Group(name string) (*Group, error) {
	if group, ok := t.Groups[name]; ok {
		return group, nil
	}
	return nil, fault.New(fault.NotAGroup, "topic %s has no group '%s', so nothing is held that could be settled", t.Name, name)
}

// Tables returns the definitions, by name.
func (c *Catalog) Tables() []*Table {
	names := slices.Sorted(maps.Keys(c.tables))
	tables := make([]*Table, len(names))
	for i, name := range names {
		tables[i] = c.tables[name]
	}
	return tables
}

// Consumer returns the declaration of a consumer, or fault.NotFound.
func (c *Catalog) Consumer(kind ConsumerKind, name string) (*Consumer, error) {
	if consumer, ok := c.consumers[consumerName{kind, name}]; ok {
		return consumer, nil
	}
	return nil, fault.New(fault.NotFound, "%s consumer %s does not exist in this database", kind, name)
}

// Consumers returns the declared consumers of a kind, by name.
func (c *Catalog) Consumers(kind ConsumerKind) []*Consumer {
	var consumers []*Consumer
	for name, consumer := range c.consumers {
		if name.kind == kind {
			consumers = append(consumers, consumer)
		}
	}
	slices.SortFunc(consumers, func(a, b *Consumer) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return consumers
}

// changed returns a copy to which change was applied.
func (c *Catalog) changed(change func(*Catalog)) *Catalog {
	next := &Catalog{
		version: c.version, tables: maps.Clone(c.tables), consumers: maps.Clone(c.consumers),
		users: maps.Clone(c.users), grants: maps.Clone(c.grants),
	}
	change(next)
	return next
}

func (c *Catalog) setGroup(table *Table, group *Group, present bool) {
	next := *table
	next.Groups = maps.Clone(table.Groups)
	if next.Groups == nil {
		next.Groups = map[string]*Group{}
	}
	if present {
		next.Groups[group.Name] = group
	} else {
		delete(next.Groups, group.Name)
	}
	c.tables[table.Name] = &next
}

// topicByID finds a topic that may have been defined anew under its name.
func (c *Catalog) topicByID(name string, id ObjectID) (*Table, bool) {
	table, ok := c.tables[name]
	return table, ok && table.ID == id
}

// loadCatalog reads all definitions.
func loadCatalog(ctx context.Context, r engine.Reader, version engine.Sequence) (*Catalog, error) {
	catalog := emptyCatalog()
	catalog.version = version
	byID := map[ObjectID]*Table{}
	err := scanRows(ctx, r, engine.PrefixRange([]byte{rowTable}), func(_, row []byte) error {
		table := new(Table)
		if err := decodeDefinition(row, table); err != nil {
			return err
		}
		table.Groups = map[string]*Group{}
		catalog.tables[table.Name] = table
		byID[table.ID] = table
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = scanRows(ctx, r, engine.PrefixRange([]byte{rowGroup}), func(_, row []byte) error {
		group := new(Group)
		if err := decodeDefinition(row, group); err != nil {
			return err
		}
		if table := byID[group.Topic]; table != nil {
			table.Groups[group.Name] = group
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = scanRows(ctx, r, engine.PrefixRange([]byte{rowConsumer}), func(_, row []byte) error {
		consumer := new(Consumer)
		if err := decodeDefinition(row, consumer); err != nil {
			return err
		}
		catalog.consumers[consumerName{consumer.Kind, consumer.Name}] = consumer
		return nil
	})
	if err != nil {
		return nil, err
	}
	return catalog, catalog.loadUsers(ctx, r)
}

// scanRows calls visit with every row of a range; key and row are valid during
// the call only.
func scanRows(ctx context.Context, r engine.Reader, rows engine.Range, visit func(key, row []byte) error) error {
	it := r.Scan(ctx, rows, false, 0)
	for it.Next() {
		if err := visit(it.Key(), it.Value()); err != nil {
			_ = it.Close()
			return err
		}
	}
	return it.Close()
}

func encodeDefinition(definition any) ([]byte, error) {
	row, err := cbor.Marshal(definition)
	if err != nil {
		return nil, fmt.Errorf("encode a definition: %w", err)
	}
	return row, nil
}

func decodeDefinition(row []byte, definition any) error {
	if err := cbor.Unmarshal(row, definition); err != nil {
		return fmt.Errorf("decode a definition: %w", err)
	}
	return nil
}

func corrupt(table string, p topic.Position, cause error) error {
	return fault.New(fault.Internal, "message %d of topic %s cannot be read: %w", p, table, cause)
}
