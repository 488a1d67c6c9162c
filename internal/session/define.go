package session

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// define runs a statement that changes definitions.
func (s *Session) define(e *environment, statement lang.Statement) error {
	switch x := statement.(type) {
	case *lang.Define:
		return s.defineNamed(e.ctx, x)
	case *lang.Drop:
		return s.drop(e.ctx, x)
	case *lang.DefineUser:
		return s.defineUser(e, x)
	case *lang.AlterUser:
		return s.alterUser(e, x)
	case *lang.DropUser:
		return s.dropUser(e, x)
	}
	_, err := s.inTransaction(e.ctx, func(tx *store.Tx) (Answer, error) {
		return null, s.defineIn(e, tx, statement)
	})
	return err
}

func (s *Session) defineIn(e *environment, tx *store.Tx, statement lang.Statement) error {
	switch x := statement.(type) {
	case *lang.DefineTable:
		table := store.Table{Name: x.Name, Kind: store.TypedTable, Fields: fieldsOf(x.Fields)}
		return tx.DefineTable(e.ctx, table, existing(x.IfNotExists, x.Overwrite))
	case *lang.DefineTopic:
		var definition topic.TopicDefinition
		if err := e.topicClauses(x.TopicClauses, &definition); err != nil {
			return err
		}
		return tx.DefineTable(e.ctx, store.Table{Name: x.Name, Kind: store.Topic, Topic: definition}, existing(x.IfNotExists, false))
	case *lang.AlterTopic:
		return s.alterTopic(e, tx, x)
	case *lang.DefineGroup:
		return s.defineGroup(e, tx, x)
	case *lang.AlterGroup:
		return s.alterGroup(e, tx, x)
	case *lang.DropGroup:
		name, err := e.clauseString("DROP GROUP", x.Name)
		if err != nil {
			return err
		}
		return tx.DropGroup(e.ctx, x.Topic, name)
	case *lang.DefineTopicConsumer:
		return s.defineTopicConsumer(e, tx, x)
	case *lang.DefineKafkaConsumer:
		return s.defineKafkaConsumer(e, tx, x)
	case *lang.ResumeConsumer:
		return tx.ResumeConsumer(e.ctx, consumerKinds[x.Kind], x.Name)
	case *lang.Grant:
		return s.grant(e, tx, x)
	case *lang.Follow:
		return ErrFollowAlone
	}
	return fault.New(fault.Internal, "a statement of an unknown kind: %s", statement)
}

func existing(ifNotExists, overwrite bool) store.Existing {
	switch {
	case overwrite:
		return store.Overwrite
	case ifNotExists:
		return store.Keep
	}
	return store.Refuse
}

// refuseInTransaction refuses what is no part of one database's transaction.
func (s *Session) refuseInTransaction(what string) error {
	if s.tx == nil {
		return nil
	}
	return fault.New(fault.InvalidClause, "%s cannot stand in a transaction, which is one database's; COMMIT or CANCEL first", what)
}

func (s *Session) defineNamed(ctx context.Context, x *lang.Define) error {
	switch x.Kind {
	case lang.Namespace:
		if err := s.refuseInTransaction("DEFINE NAMESPACE"); err != nil {
			return err
		}
		return s.store.DefineNamespace(ctx, x.Name, x.IfNotExists)
	case lang.Database:
		if err := s.refuseInTransaction("DEFINE DATABASE"); err != nil {
			return err
		}
		if s.namespace == "" {
			return errNoNamespace()
		}
		return s.store.DefineDatabase(ctx, s.namespace, x.Name, x.IfNotExists)
	}
	kind := store.Collection
	if x.Kind == lang.Space {
		kind = store.Space
	}
	_, err := s.inTransaction(ctx, func(tx *store.Tx) (Answer, error) {
		return null, tx.DefineTable(ctx, store.Table{Name: x.Name, Kind: kind}, existing(x.IfNotExists, false))
	})
	return err
}

func (s *Session) drop(ctx context.Context, x *lang.Drop) error {
	switch x.Kind {
	case lang.Namespace:
		if err := s.refuseInTransaction("DROP NAMESPACE"); err != nil {
			return err
		}
		if err := s.store.DropNamespace(ctx, x.Name); err != nil {
			return err
		}
		if s.namespace == x.Name {
			s.namespace, s.database = "", nil
		}
		return nil
	case lang.Database:
		if err := s.refuseInTransaction("DROP DATABASE"); err != nil {
			return err
		}
		if s.namespace == "" {
			return errNoNamespace()
		}
		if err := s.store.DropDatabase(ctx, s.namespace, x.Name); err != nil {
			return err
		}
		if s.database != nil && s.database.Name == x.Name {
			s.database = nil
		}
		return nil
	case lang.TopicConsumer, lang.KafkaConsumer:
		_, err := s.inTransaction(ctx, func(tx *store.Tx) (Answer, error) {
			return null, tx.DropConsumer(ctx, consumerKinds[x.Kind], x.Name)
		})
		return err
	}
	kinds := map[lang.Kind]store.TableKind{
		lang.Collection: store.Collection, lang.Table: store.TypedTable, lang.Space: store.Space, lang.Topic: store.Topic,
	}
	_, err := s.inTransaction(ctx, func(tx *store.Tx) (Answer, error) {
		return null, tx.DropTable(ctx, kinds[x.Kind], x.Name)
	})
	return err
}

func fieldsOf(definitions []lang.FieldDefinition) []store.Field {
	fields := make([]store.Field, len(definitions))
	for i, d := range definitions {
		fields[i] = store.Field{Name: d.Name, Type: store.FieldType(d.Type), Nullable: d.Nullable, Required: d.Required}
		if d.Default != nil {
			fields[i].Default = d.Default.String()
		}
		if d.Assert != nil {
			fields[i].Assert = d.Assert.String()
		}
	}
	return fields
}

// topicClauses sets what the clauses of a topic say.
func (e *environment) topicClauses(x lang.TopicClauses, definition *topic.TopicDefinition) (err error) {
	if x.Retain != nil {
		if definition.Retain, err = e.durationClause("RETAIN", x.Retain); err != nil {
			return err
		}
	}
	if x.RetainBytes != nil {
		if definition.RetainBytes, err = e.countClause("RETAIN BYTES", x.RetainBytes); err != nil {
			return err
		}
	}
	if x.MaxBytes != nil {
		if definition.MaxBytes, err = e.countClause("MAX BYTES", x.MaxBytes); err != nil {
			return err
		}
	}
	if x.Deduplicate != nil {
		if len(x.Deduplicate.Field) != 1 {
			return fault.New(fault.InvalidClause, "DEDUPLICATE … ON takes a field of the message itself, not the path %s", x.Deduplicate.Field)
		}
		window, err := e.durationClause("DEDUPLICATE", x.Deduplicate.Window)
		if err != nil {
			return err
		}
		definition.Deduplicate = &topic.Deduplication{Window: window, Field: x.Deduplicate.Field[0]}
	}
	if x.Public != nil {
		rate, err := e.countClause("PUBLIC RATE", x.Public.Rate)
		if err != nil {
			return err
		}
		per, err := e.durationClause("PER", x.Public.Per)
		if err != nil {
			return err
		}
		definition.Public = &topic.Public{Rate: rate, Per: per}
	}
	return nil
}

// countClause computes a clause that takes a number from 1.
func (e *environment) countClause(clause string, expression lang.Expression) (int64, error) {
	n, err := e.clauseInt(clause, expression)
	if err == nil {
		err = topic.CheckCount(clause, n)
	}
	return n, err
}

// durationClause computes a clause that takes a duration above nothing.
func (e *environment) durationClause(clause string, expression lang.Expression) (time.Duration, error) {
	d, err := e.clauseDuration(clause, expression)
	if err == nil {
		err = topic.CheckDuration(clause, d)
	}
	return d, err
}

func (s *Session) alterTopic(e *environment, tx *store.Tx, x *lang.AlterTopic) error {
	return tx.AlterTopic(e.ctx, x.Name, func(d *topic.TopicDefinition) error {
		for _, clause := range x.Drops {
			switch clause {
			case lang.ClauseRetain:
				d.Retain = 0
			case lang.ClauseRetainBytes:
				d.RetainBytes = 0
			case lang.ClauseMaxBytes:
				d.MaxBytes = 0
			case lang.ClauseDeduplicate:
				d.Deduplicate = nil
			case lang.ClausePublic:
				d.Public = nil
			}
		}
		return e.topicClauses(x.TopicClauses, d)
	})
}

// groupClauses sets what the clauses of a group say.
func (e *environment) groupClauses(x lang.GroupClauses, definition *topic.GroupDefinition) (err error) {
	if x.AckDeadline != nil {
		if definition.AckDeadline, err = e.durationClause("ACK DEADLINE", x.AckDeadline); err != nil {
			return err
		}
	}
	if x.Deliveries != nil {
		n, err := e.countClause("DELIVERIES", x.Deliveries)
		if err != nil {
			return err
		}
		definition.Deliveries = int(n)
	}
	if x.InFlight != nil {
		n, err := e.countClause("IN FLIGHT", x.InFlight)
		if err != nil {
			return err
		}
		definition.InFlight = int(n)
	}
	if x.Backoff != nil {
		definition.Backoff = nil
		for _, expression := range x.Backoff {
			d, err := e.clauseDuration("BACKOFF", expression)
			if err != nil {
				return err
			}
			definition.Backoff = append(definition.Backoff, d)
		}
	}
	if x.DeadLetter != "" {
		definition.DeadLetter = x.DeadLetter
	}
	return nil
}

func (s *Session) defineGroup(e *environment, tx *store.Tx, x *lang.DefineGroup) error {
	name, err := e.clauseString("DEFINE GROUP", x.Name)
	if err != nil {
		return err
	}
	definition := topic.GroupDefinition{InFlight: topic.DefaultInFlight}
	if err := e.groupClauses(x.GroupClauses, &definition); err != nil {
		return err
	}
	return tx.DefineGroup(e.ctx, x.Topic, name, definition, x.KeyedBy, existing(x.IfNotExists, false))
}

func (s *Session) alterGroup(e *environment, tx *store.Tx, x *lang.AlterGroup) error {
	name, err := e.clauseString("ALTER GROUP", x.Name)
	if err != nil {
		return err
	}
	if changesDefinition(x) {
		err := tx.AlterGroup(e.ctx, x.Topic, name, func(d *topic.GroupDefinition) error {
			dropGroupClauses(x.Drops, d)
			if x.Pause || x.Resume {
				d.Paused = x.Pause
			}
			return e.groupClauses(x.GroupClauses, d)
		})
		if err != nil {
			return err
		}
	}
	if x.StartAt == nil {
		return nil
	}
	n, err := e.clausePosition("START AT", x.StartAt, 0)
	if err != nil {
		return err
	}
	return tx.StartAt(e.ctx, x.Topic, name, n)
}

// changesDefinition reports whether an ALTER GROUP changes more than the
// group's place.
func changesDefinition(x *lang.AlterGroup) bool {
	c := x.GroupClauses
	return x.Pause || x.Resume || len(x.Drops) > 0 || c.AckDeadline != nil || c.Deliveries != nil ||
		c.InFlight != nil || c.Backoff != nil || c.DeadLetter != ""
}

func dropGroupClauses(clauses []lang.GroupClause, d *topic.GroupDefinition) {
	for _, clause := range clauses {
		switch clause {
		case lang.ClauseDeliveries:
			d.Deliveries = 0
		case lang.ClauseInFlight:
			d.InFlight = topic.DefaultInFlight
		case lang.ClauseBackoff:
			d.Backoff = nil
		case lang.ClauseDeadLetter:
			d.DeadLetter = ""
		}
	}
}
