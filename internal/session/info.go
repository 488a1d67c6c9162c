package session

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// Version is the version of this build, as INFO FOR STORE tells it.
const Version = "0.1.0"

func (s *Session) info(e *environment, x *lang.Info) (Answer, error) {
	switch x.Kind {
	case lang.Store:
		return s.infoStore(e)
	case lang.Namespace:
		return s.infoNamespace(e)
	}
	return s.inTransaction(e.ctx, func(tx *store.Tx) (Answer, error) {
		switch x.Kind {
		case lang.Database:
			return s.infoDatabase(e, tx)
		case lang.Topic:
			return s.infoTopic(e, tx, x.Name)
		case lang.TopicConsumers, lang.KafkaConsumers:
			return s.infoConsumers(tx, consumerKinds[x.Kind]), nil
		case lang.TopicConsumer, lang.KafkaConsumer:
			return s.infoConsumer(e, tx, consumerKinds[x.Kind], x.Name)
		}
		return s.infoTable(e, tx, x.Name)
	})
}

func object(fields value.Object) Answer { return Answer{Value: value.Fields(fields)} }

func names(list []string) value.Value {
	values := make([]value.Value, len(list))
	for i, name := range list {
		values[i] = value.String(name)
	}
	return value.Array(values...)
}

// orNull is v, or null where there is nothing to tell.
func orNull(tell bool, v value.Value) value.Value {
	if tell {
		return v
	}
	return value.Null()
}

// count is a figure that never is negative.
func count(n uint64) value.Value { return value.Int(int64(n)) }

func (s *Session) infoStore(e *environment) (Answer, error) {
	namespaces, err := s.store.Namespaces(e.ctx)
	if err != nil {
		return Answer{}, err
	}
	live, err := s.store.Nodes(e.ctx)
	if err != nil {
		return Answer{}, err
	}
	nodes := make([]value.Value, len(live))
	for i, node := range live {
		nodes[i] = value.Fields(value.Object{
			"id":      value.UUID(node.ID),
			"name":    value.String(node.Name),
			"address": orNull(node.Address != "", value.String(node.Address)),
			"started": value.Datetime(node.Started),
		})
	}
	info := value.Object{
		"version": value.String(Version),
		"engine":  value.String(s.store.Engine().Name()),
		"nodes":   value.Array(nodes...),
		"namespaces": names(kept(namespaces, func(namespace string) bool {
			return s.authority.reaches(namespace, "")
		})),
	}
	return s.withUsers(e, info, lang.Store, "")
}

// kept are those of a list that are there for the caller.
func kept(list []string, keep func(string) bool) []string {
	return slices.DeleteFunc(list, func(name string) bool { return !keep(name) })
}

// withUsers adds the users of the store or a namespace, for its owners.
func (s *Session) withUsers(e *environment, info value.Object, of lang.Kind, namespace string) (Answer, error) {
	if !s.authority.isOwner(of) {
		return object(info), nil
	}
	users, err := s.store.Users(e.ctx)
	if err != nil {
		return Answer{}, err
	}
	info["users"] = usersInfo(users.Of(namespace))
	return object(info), nil
}

func (s *Session) infoNamespace(e *environment) (Answer, error) {
	if s.namespace == "" {
		return Answer{}, errNoNamespace()
	}
	databases, err := s.store.Databases(e.ctx, s.namespace)
	if err != nil {
		return Answer{}, err
	}
	info := value.Object{
		"namespace": value.String(s.namespace),
		"databases": names(kept(databases, func(database string) bool {
			return s.authority.reaches(s.namespace, database)
		})),
	}
	return s.withUsers(e, info, lang.Namespace, s.namespace)
}

// infoDatabase lists what the caller holds something on.
func (s *Session) infoDatabase(e *environment, tx *store.Tx) (Answer, error) {
	byKind := map[store.TableKind][]string{}
	for _, table := range tx.Catalog().Tables() {
		if s.authority.held(table.Name) == 0 {
			continue
		}
		byKind[table.Kind] = append(byKind[table.Kind], table.Name)
	}
	consumers := func(kind store.ConsumerKind) value.Value {
		var list []string
		for _, consumer := range tx.Catalog().Consumers(kind) {
			if s.authority.held(consumer.Into) == 0 {
				continue
			}
			list = append(list, consumer.Name)
		}
		return names(list)
	}
	info := value.Object{
		"namespace":       value.String(s.database.Namespace),
		"database":        value.String(s.database.Name),
		"collections":     names(byKind[store.Collection]),
		"tables":          names(byKind[store.TypedTable]),
		"spaces":          names(byKind[store.Space]),
		"topics":          names(byKind[store.Topic]),
		"topic_consumers": consumers(store.TopicConsumer),
		"kafka_consumers": consumers(store.KafkaConsumer),
	}
	if !s.authority.isOwner(lang.Database) {
		return object(info), nil
	}
	users, err := s.databaseUsersInfo(e, tx.Catalog())
	info["users"] = users
	return object(info), err
}

func (s *Session) infoTable(e *environment, tx *store.Tx, name string) (Answer, error) {
	table, err := tx.Catalog().Table(name)
	if err != nil {
		return Answer{}, err
	}
	records, err := tx.CountRecords(e.ctx, table)
	if err != nil {
		return Answer{}, err
	}
	fields := value.Object{}
	for _, field := range table.Fields {
		fields[field.Name] = value.String(field.Describe())
	}
	return object(value.Object{
		"table":   value.String(table.Name),
		"kind":    value.String(string(table.Kind)),
		"fields":  value.Fields(fields),
		"records": count(records),
	}), nil
}

func (s *Session) infoTopic(e *environment, tx *store.Tx, name string) (Answer, error) {
	table, err := tx.Catalog().TopicTable(name)
	if err != nil {
		return Answer{}, err
	}
	report, err := tx.ReportTopic(e.ctx, table)
	if err != nil {
		return Answer{}, err
	}
	readers := value.Object{}
	for name, reader := range report.Readers {
		readers[name] = value.Fields(value.Object{
			"position": count(uint64(reader.Position)),
			"lag":      count(reader.Lag),
		})
	}
	groups := value.Object{}
	for name, group := range report.Groups {
		groups[name] = groupInfo(group)
	}
	bounds := table.Topic
	info := value.Object{
		"topic":        value.String(table.Name),
		"first":        count(uint64(report.First)),
		"last":         count(uint64(report.Last)),
		"messages":     count(report.Messages),
		"retain":       orNull(bounds.Retain != 0, duration(bounds.Retain)),
		"retain_bytes": orNull(bounds.RetainBytes != 0, value.Int(bounds.RetainBytes)),
		"bytes":        orNull(bounds.RetainBytes != 0, count(report.Bytes)),
		"max_bytes":    orNull(bounds.MaxBytes != 0, value.Int(bounds.MaxBytes)),
		"deduplicate":  value.Null(),
		"public":       value.Null(),
		"readers":      value.Fields(readers),
		"groups":       value.Fields(groups),
		"ingested_by":  s.ingestedBy(tx, table.Name),
	}
	if d := bounds.Deduplicate; d != nil {
		info["deduplicate"] = value.Fields(value.Object{"window": duration(d.Window), "field": value.String(d.Field)})
	}
	if p := bounds.Public; p != nil {
		info["public"] = value.Fields(value.Object{"rate": value.Int(p.Rate), "per": duration(p.Per)})
	}
	return object(info), nil
}

// duration is a duration of an answer: as JSON it is Go's text form.
func duration(d time.Duration) value.Value { return value.Duration(d) }

func groupInfo(group store.GroupReport) value.Value {
	definition := group.Definition
	backoff := make([]value.Value, len(definition.Backoff))
	for i, d := range definition.Backoff {
		backoff[i] = duration(d)
	}
	info := value.Object{
		"position":            count(uint64(group.Position)),
		"committed":           count(uint64(group.Committed)),
		"lag":                 count(group.Lag),
		"in_flight":           count(group.InFlight),
		"redelivered":         count(group.Redelivered),
		"dead_lettered":       count(group.DeadLettered),
		"oldest":              value.Null(),
		"paused":              value.Bool(definition.Paused),
		"dead_letter_refused": count(group.DeadLetterRefused),
		"dead_letter_reason":  orNull(group.DeadLetterReason != "", value.String(group.DeadLetterReason)),
		"ack_deadline":        duration(definition.AckDeadline),
		"in_flight_limit":     value.Int(int64(definition.InFlight)),
		"deliveries":          orNull(definition.Deliveries != 0, value.Int(int64(definition.Deliveries))),
		"dead_letter":         orNull(definition.DeadLetter != "", value.String(definition.DeadLetter)),
		"keyed_by":            orNull(definition.KeyedBy != "", value.String(definition.KeyedBy)),
		"backoff":             value.Array(backoff...),
	}
	if group.OldestAppended != nil {
		info["oldest"] = value.Datetime(*group.OldestAppended)
	}
	return value.Fields(info)
}
