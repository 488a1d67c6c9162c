package store

import (
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// Existing says what a definition does where its name is taken.
type Existing int

// What a definition does where its name is taken.
const (
	Refuse    Existing = iota // fault.AlreadyExists
	Keep                      // nothing, where it names the same kind
	Overwrite                 // replace the definition
)

// DefineTable adds a definition of a table, collection, space or topic; its ID
// is given here. Overwriting a typed table keeps its records as they are: they
// are checked when they are next written.
func (tx *Tx) DefineTable(ctx context.Context, definition Table, existing Existing) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	if err := CheckName(string(definition.Kind), definition.Name); err != nil {
		return err
	}
	if err := definition.checkFieldNames(); err != nil {
		return err
	}
	if definition.Kind == Topic {
		if err := definition.Topic.Check(); err != nil {
			return err
		}
	}
	if taken, ok := tx.catalog.tables[definition.Name]; ok {
		switch {
		case taken.Kind == definition.Kind && existing == Keep:
			return nil
		case taken.Kind == definition.Kind && existing == Overwrite:
			definition.ID = taken.ID
			return tx.setTable(&definition)
		}
		return fault.New(fault.AlreadyExists, "%s exists already: it is a %s", definition.Name, taken.Kind)
	}
	id, err := tx.newObjectID(ctx)
	if err != nil {
		return err
	}
	definition.ID = id
	return tx.setTable(&definition)
}

func (t *Table) checkFieldNames() error {
	for i, field := range t.Fields {
		if field.Name == "id" {
			return fault.New(fault.InvalidClause, "table %s cannot have a field id: it is the record's identity", t.Name)
		}
		if slices.ContainsFunc(t.Fields[:i], func(f Field) bool { return f.Name == field.Name }) {
			return fault.New(fault.InvalidClause, "table %s has field %s twice", t.Name, field.Name)
		}
	}
	return nil
}

// setTable writes a table's definition.
func (tx *Tx) setTable(table *Table) error {
	row, err := encodeDefinition(table)
	if err != nil {
		return err
	}
	return tx.changeCatalog(nameKey(rowTable, table.Name), row, func(c *Catalog) {
		if old := c.tables[table.Name]; old != nil && table.Groups == nil {
			table.Groups = old.Groups
		}
		if table.Groups == nil {
			table.Groups = map[string]*Group{}
		}
		c.tables[table.Name] = table
	})
}

// changeCatalog changes one definition and the version that all commits
// validate.
func (tx *Tx) changeCatalog(key, row []byte, change func(*Catalog)) error {
	if err := tx.put(key, row); err != nil {
		return err
	}
	if err := tx.put(catalogVersionKey, []byte{1}); err != nil {
		return err
	}
	tx.catalog = tx.catalog.changed(change)
	tx.catalogChanged = true
	return nil
}

// AlterTopic replaces the bounds of a topic.
func (tx *Tx) AlterTopic(ctx context.Context, name string, change func(*topic.TopicDefinition) error) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	table, err := tx.catalog.TopicTable(name)
	if err != nil {
		return err
	}
	altered := *table
	if err := change(&altered.Topic); err != nil {
		return err
	}
	if err := altered.Topic.Check(); err != nil {
		return err
	}
	if !sameDeduplication(table.Topic.Deduplicate, altered.Topic.Deduplicate) {
		// Keys of another field, or of none, would keep out what they should
		// not.
		tx.drop(objectRange(rowDeduplication, table.ID))
		tx.drop(objectRange(rowExpiry, table.ID))
	}
	tx.altered = append(tx.altered, table.ID)
	return tx.setTable(&altered)
}

// DropTable removes a table of a kind and all that it holds; of a topic also
// its readers and groups.
func (tx *Tx) DropTable(ctx context.Context, kind TableKind, name string) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	table, ok := tx.catalog.tables[name]
	if !ok || table.Kind != kind {
		return fault.New(fault.NotFound, "%s %s does not exist in this database", kind, name)
	}
	for _, group := range table.Groups {
		if err := tx.removeGroup(table, group); err != nil {
			return err
		}
	}
	for _, row := range []byte{rowRecord, rowTopicState, rowMessage, rowIdentity, rowDeduplication, rowExpiry, rowReader, rowGrant} {
		tx.drop(objectRange(row, table.ID))
	}
	tx.appends = slices.DeleteFunc(tx.appends, func(a txAppend) bool { return a.table.ID == table.ID })
	return tx.changeCatalog(nameKey(rowTable, name), nil, func(c *Catalog) {
		delete(c.tables, name)
		c.dropGrants(table.ID)
	})
}

// drop removes a range of rows, with what the transaction wrote there.
func (tx *Tx) drop(r engine.Range) {
	var written []string
	tx.writes.Ascend(string(r.From), func(key string, _ write) bool {
		if key >= string(r.To) {
			return false
		}
		written = append(written, key)
		return true
	})
	for _, key := range written {
		tx.writes.Delete(key)
	}
	tx.dropped = append(tx.dropped, r)
}

// DefineGroup declares a group on a topic. It takes over the place of a reader
// of its name.
func (tx *Tx) DefineGroup(ctx context.Context, topicName, name string, definition topic.GroupDefinition, keyedBy value.Path, existing Existing) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	table, err := tx.catalog.TopicTable(topicName)
	if err != nil {
		return err
	}
	if err := CheckName("group", name); err != nil {
		return err
	}
	if _, ok := table.Groups[name]; ok {
		if existing == Keep {
			return nil
		}
		return fault.New(fault.GroupExists, "topic %s has a group '%s' already; ALTER GROUP changes it", topicName, name)
	}
	definition.KeyedBy = keyedBy.String()
	if err := tx.checkGroupDefinition(table, definition); err != nil {
		return err
	}
	reader := objectNameKey(rowReader, table.ID, name)
	place, found, err := readerPosition(tx, reader)
	if err != nil {
		return err
	}
	if found {
		if err := tx.put(reader, nil); err != nil {
			return err
		}
	}
	id, err := tx.newObjectID(ctx)
	if err != nil {
		return err
	}
	group := &Group{ID: id, Name: name, Topic: table.ID, Definition: definition, KeyedBy: keyedBy}
	if err := tx.put(objectKey(rowGroupHead, id), topic.Head{Position: place}.Append(nil)); err != nil {
		return err
	}
	return tx.setGroup(table, group)
}

func (tx *Tx) checkGroupDefinition(table *Table, definition topic.GroupDefinition) error {
	if err := definition.Check(table.Name); err != nil {
		return err
	}
	if definition.DeadLetter == "" {
		return nil
	}
	_, err := tx.catalog.TopicTable(definition.DeadLetter)
	return err
}

func (tx *Tx) setGroup(table *Table, group *Group) error {
	row, err := encodeDefinition(group)
	if err != nil {
		return err
	}
	return tx.changeCatalog(objectNameKey(rowGroup, table.ID, group.Name), row, func(c *Catalog) {
		c.setGroup(table, group, true)
	})
}

// AlterGroup changes clauses of a group.
func (tx *Tx) AlterGroup(ctx context.Context, topicName, name string, change func(*topic.GroupDefinition) error) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	table, group, err := tx.findGroup(topicName, name)
	if err != nil {
		return err
	}
	altered := *group
	altered.Definition.Backoff = slices.Clone(group.Definition.Backoff)
	if err := change(&altered.Definition); err != nil {
		return err
	}
	if err := tx.checkGroupDefinition(table, altered.Definition); err != nil {
		return err
	}
	if g := tx.groups[group.ID]; g != nil {
		g.definition = &altered
		g.group.SetDefinition(altered.Definition)
	}
	return tx.setGroup(table, &altered)
}

// findGroup finds a group to alter or drop, or returns fault.NotFound.
func (tx *Tx) findGroup(topicName, name string) (*Table, *Group, error) {
	table, err := tx.catalog.TopicTable(topicName)
	if err != nil {
		return nil, nil, err
	}
	group, ok := table.Groups[name]
	if !ok {
		return nil, nil, fault.New(fault.NotFound, "topic %s has no group '%s'", topicName, name)
	}
	return table, group, nil
}

// DropGroup removes a group and its place.
func (tx *Tx) DropGroup(ctx context.Context, topicName, name string) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	table, group, err := tx.findGroup(topicName, name)
	if err != nil {
		return err
	}
	return tx.removeGroup(table, group)
}

func (tx *Tx) removeGroup(table *Table, group *Group) error {
	if tx.groups[group.ID] != nil {
		delete(tx.groups, group.ID)
		tx.groupOrder = slices.DeleteFunc(tx.groupOrder, func(id ObjectID) bool { return id == group.ID })
	}
	tx.drop(objectRange(rowGroupHead, group.ID))
	tx.drop(objectRange(rowGroupEntry, group.ID))
	return tx.changeCatalog(objectNameKey(rowGroup, table.ID, group.Name), nil, func(c *Catalog) {
		if current := c.tables[table.Name]; current != nil {
			c.setGroup(current, group, false)
		}
	})
}

// DefineConsumer declares a consumer, or declares it again.
func (tx *Tx) DefineConsumer(ctx context.Context, definition Consumer, existing Existing) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	if err := CheckName("consumer", definition.Name); err != nil {
		return err
	}
	if taken, ok := tx.catalog.consumers[consumerName{definition.Kind, definition.Name}]; ok {
		switch existing {
		case Keep:
			return nil
		case Refuse:
			return fault.New(fault.AlreadyExists, "%s consumer %s exists already", definition.Kind, definition.Name)
		}
		definition.ID, definition.Generation = taken.ID, taken.Generation+1
		return tx.setConsumer(&definition)
	}
	id, err := tx.newObjectID(ctx)
	if err != nil {
		return err
	}
	definition.ID = id
	return tx.setConsumer(&definition)
}

// ResumeConsumer starts a consumer anew that stopped at a message.
func (tx *Tx) ResumeConsumer(ctx context.Context, kind ConsumerKind, name string) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	consumer, err := tx.catalog.Consumer(kind, name)
	if err != nil {
		return err
	}
	resumed := *consumer
	resumed.Generation++
	return tx.setConsumer(&resumed)
}

func (tx *Tx) setConsumer(consumer *Consumer) error {
	row, err := encodeDefinition(consumer)
	if err != nil {
		return err
	}
	name := consumerName{consumer.Kind, consumer.Name}
	return tx.changeCatalog(consumerKey(name), row, func(c *Catalog) { c.consumers[name] = consumer })
}

// DropConsumer removes a consumer's declaration, and with it what it parked and
// what it kept about its identities and partitions.
func (tx *Tx) DropConsumer(ctx context.Context, kind ConsumerKind, name string) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	consumer, err := tx.catalog.Consumer(kind, name)
	if err != nil {
		return err
	}
	for _, row := range []byte{rowParked, rowApplied, rowOwner} {
		tx.drop(objectRange(row, consumer.ID))
	}
	key := consumerName{kind, name}
	return tx.changeCatalog(consumerKey(key), nil, func(c *Catalog) { delete(c.consumers, key) })
}

func consumerKey(name consumerName) []byte {
	return append(nameKey(rowConsumer, string(name.kind[:1])), name.name...)
}
