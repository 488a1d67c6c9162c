package export

import (
	"maps"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// definitions are a catalog as statements: those that come before the rows, and
// those that come after them. DEDUPLICATE comes after, since all messages are
// appended within its window; declared consumers, since they would begin to
// work.
func definitions(catalog *store.Catalog) (before, after []lang.Statement, err error) {
	var groups []lang.Statement
	for _, table := range catalog.Tables() {
		definition, err := tableDefinition(table)
		if err != nil {
			return nil, nil, err
		}
		before = append(before, definition)
		if d := table.Topic.Deduplicate; d != nil {
			after = append(after, &lang.AlterTopic{Name: table.Name, TopicClauses: lang.TopicClauses{
				Deduplicate: &lang.Deduplicate{Window: duration(d.Window), Field: value.Path{d.Field}},
			}})
		}
		// After all topics: their dead letters may go to any.
		for _, name := range slices.Sorted(maps.Keys(table.Groups)) {
			groups = append(groups, groupDefinitions(table, table.Groups[name])...)
		}
	}
	for _, kind := range []store.ConsumerKind{store.TopicConsumer, store.KafkaConsumer} {
		for _, consumer := range catalog.Consumers(kind) {
			after = append(after, consumerDefinition(consumer))
		}
	}
	return append(before, groups...), after, nil
}

func tableDefinition(table *store.Table) (lang.Statement, error) {
	switch table.Kind {
	case store.Collection:
		return &lang.Define{Kind: lang.Collection, Name: table.Name, IfNotExists: true}, nil
	case store.Space:
		return &lang.Define{Kind: lang.Space, Name: table.Name, IfNotExists: true}, nil
	case store.Topic:
		return topicDefinition(table), nil
	}
	definition := &lang.DefineTable{Name: table.Name, IfNotExists: true}
	for _, f := range table.Fields {
		field := lang.FieldDefinition{Name: f.Name, Type: string(f.Type), Nullable: f.Nullable, Required: f.Required}
		var err error
		if field.Default, err = parse(f.Default); err != nil {
			return nil, err
		}
		if field.Assert, err = parse(f.Assert); err != nil {
			return nil, err
		}
		definition.Fields = append(definition.Fields, field)
	}
	return definition, nil
}

// parse parses an expression of a definition, nil for none.
func parse(text string) (lang.Expression, error) {
	if text == "" {
		return nil, nil
	}
	return lang.ParseExpression(text)
}

// topicDefinition is a topic without DEDUPLICATE.
func topicDefinition(table *store.Table) lang.Statement {
	definition := &lang.DefineTopic{Name: table.Name, IfNotExists: true}
	d := table.Topic
	if d.Retain > 0 {
		definition.Retain = duration(d.Retain)
	}
	if d.RetainBytes > 0 {
		definition.RetainBytes = integer(d.RetainBytes)
	}
	if d.MaxBytes > 0 {
		definition.MaxBytes = integer(d.MaxBytes)
	}
	if d.Public != nil {
		definition.Public = &lang.Public{Rate: integer(d.Public.Rate), Per: duration(d.Public.Per)}
	}
	return definition
}

// groupDefinitions define a group, and pause it where it is paused.
func groupDefinitions(table *store.Table, group *store.Group) []lang.Statement {
	d := group.Definition
	definition := &lang.DefineGroup{Name: text(group.Name), Topic: table.Name, IfNotExists: true, KeyedBy: group.KeyedBy}
	definition.AckDeadline = duration(d.AckDeadline)
	definition.InFlight = integer(int64(d.InFlight))
	if d.Deliveries > 0 {
		definition.Deliveries = integer(int64(d.Deliveries))
	}
	for _, wait := range d.Backoff {
		definition.Backoff = append(definition.Backoff, duration(wait))
	}
	definition.DeadLetter = d.DeadLetter
	if !d.Paused {
		return []lang.Statement{definition}
	}
	return []lang.Statement{definition, &lang.AlterGroup{Name: text(group.Name), Topic: table.Name, Pause: true}}
}

func consumerDefinition(c *store.Consumer) lang.Statement {
	landing := lang.Landing{Into: lang.QualifiedName{Name: c.Into}, Identity: c.Identity, Quarantine: c.Quarantine}
	for _, m := range c.Map {
		landing.Map = append(landing.Map, lang.Mapping{From: m.From, To: m.To})
	}
	if c.Parallelism > 1 {
		landing.Parallelism = integer(int64(c.Parallelism))
	}
	if c.Kind == store.TopicConsumer {
		return &lang.DefineTopicConsumer{
			Name: c.Name, IfNotExists: true, From: lang.QualifiedName{Name: c.From}, Group: text(c.Group), Landing: landing,
		}
	}
	definition := &lang.DefineKafkaConsumer{
		Name: c.Name, IfNotExists: true, Topic: text(c.From), Group: text(c.Group), Format: c.Format, Landing: landing,
	}
	for _, broker := range c.Brokers {
		definition.Brokers = append(definition.Brokers, text(broker))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		definition.With = append(definition.With, lang.Setting{Name: name, Value: text(c.Settings[name])})
	}
	return definition
}

func text(s string) lang.Expression { return &lang.Literal{Value: value.String(s)} }

func integer(n int64) lang.Expression { return &lang.Literal{Value: value.Int(n)} }

func duration(d time.Duration) lang.Expression { return &lang.Literal{Value: value.Duration(d)} }
