package session

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// execute runs a statement that does not open or end a transaction.
func (s *Session) execute(ctx context.Context, statement lang.Statement) (Answer, error) {
	e := &environment{ctx: ctx, store: s.store, params: s.params, limits: s.limits}
	if s.authority.isStranger() {
		return s.throughDoor(e, statement)
	}
	switch x := statement.(type) {
	case *lang.Create:
		return s.create(e, x)
	case *lang.Insert:
		return s.insert(e, x)
	case *lang.Upsert:
		return s.upsert(e, x)
	case *lang.Update:
		return s.update(e, x)
	case *lang.Delete:
		return s.delete(e, x)
	case *lang.Select:
		return s.selectRows(e, x)
	case *lang.Read:
		return s.read(e, x)
	case *lang.Settle:
		return s.settle(e, x)
	case *lang.Use:
		return null, s.use(ctx, x)
	case *lang.Info:
		return s.info(e, x)
	case *lang.Sleep:
		return null, s.sleep(e, x)
	}
	return null, s.define(e, statement)
}

// null is the answer of statements that answer nothing.
var null = Answer{Value: value.Null()}

func (s *Session) use(ctx context.Context, x *lang.Use) error {
	if s.tx != nil {
		return fault.New(fault.InvalidClause, "USE %s cannot stand in a transaction, which is one database's; COMMIT or CANCEL first", x.Kind)
	}
	if x.Kind == lang.Namespace {
		if err := s.store.CheckNamespace(ctx, x.Name); err != nil {
			return err
		}
		s.namespace, s.database, s.unseen = x.Name, nil, ""
		return nil
	}
	if s.namespace == "" {
		return errNoNamespace()
	}
	database, err := s.store.Database(ctx, s.namespace, x.Name)
	if err != nil {
		return err
	}
	s.database, s.unseen = database, ""
	return nil
}

func (s *Session) sleep(e *environment, x *lang.Sleep) error {
	d, err := e.clauseDuration("SLEEP", x.Duration)
	if err != nil {
		return err
	}
	if d < 0 || d > MaxWait {
		return fault.New(fault.InvalidClause, "SLEEP takes 0s to %s, not %s", MaxWait, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-e.ctx.Done():
		return fault.New(fault.Cancelled, "the caller gave up during SLEEP: %w", e.ctx.Err())
	}
}

// rowAnswer is a record or message as an answer has it.
func rowAnswer(row store.Row, content value.Value) value.Value {
	fields := value.Object{"id": value.Record(row.ID), "value": content}
	if row.Position != 0 {
		fields["position"] = value.Int(int64(row.Position))
	}
	if row.Headers != nil {
		fields["headers"] = row.Headers.Value()
	}
	return value.Fields(fields)
}

// collector gathers the rows that a statement writes and answers, within the
// limits of an answer.
type collector struct {
	limits Limits
	rows   []value.Value
	bytes  int
}

// add adds a row that takes about a number of bytes.
func (c *collector) add(row value.Value, bytes int) error {
	c.bytes += bytes
	switch {
	case len(c.rows) >= c.limits.AnswerRows:
		return fault.New(fault.TooLarge, "the statement writes, and answers, more than %d rows; nothing of it is written, do it in parts", c.limits.AnswerRows)
	case c.bytes > c.limits.AnswerBytes:
		return fault.New(fault.TooLarge, "the statement writes, and answers, more than %d bytes; nothing of it is written, do it in parts", c.limits.AnswerBytes)
	}
	c.rows = append(c.rows, row)
	return nil
}

// addRow adds a record or message.
func (c *collector) addRow(row store.Row) error {
	content, err := row.Value()
	if err != nil {
		return err
	}
	return c.add(rowAnswer(row, content), len(row.Encoded()))
}

func (c *collector) answer() Answer { return Answer{Value: value.Array(c.rows...)} }
