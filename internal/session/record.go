package session

import (
	"context"
	"maps"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// writer writes a record: store.Tx.Create or store.Tx.Put.
type writer func(ctx context.Context, table *store.Table, key, v value.Value) (store.Row, error)

// newRow is a row that a statement writes: its key, none for one that the
// store generates, and what it holds.
type newRow struct {
	key, content value.Value
	// encoded is what a row of a topic holds, where the client encoded it; see
	// Passed.
	encoded []byte
}

func (s *Session) create(e *environment, x *lang.Create) (Answer, error) {
	row, err := e.createdRow(x)
	if err != nil {
		return Answer{}, err
	}
	return s.write(e, x.Target.Table, []newRow{row})
}

// createdRow is the row that a CREATE writes.
func (e *environment) createdRow(x *lang.Create) (row newRow, err error) {
	if row.key, err = e.key(x.Target); err != nil {
		return row, err
	}
	if p, ok := x.Value.(*lang.Parameter); ok && e.passed.is(p.Name) {
		row.encoded = e.passed.Encoded
		return row, nil
	}
	row.content, err = e.evaluate(x.Value)
	return row, err
}

func (s *Session) insert(e *environment, x *lang.Insert) (Answer, error) {
	rows, err := e.insertedRows(x)
	if err != nil {
		return Answer{}, err
	}
	return s.write(e, x.Table, rows)
}

// insertedRows are the rows that an INSERT writes.
func (e *environment) insertedRows(x *lang.Insert) ([]newRow, error) {
	content, err := e.evaluate(x.Rows)
	if err != nil {
		return nil, err
	}
	contents, ok := content.AsArray()
	if !ok {
		contents = []value.Value{content}
	}
	rows := make([]newRow, len(contents))
	for i, content := range contents {
		if rows[i], err = keyed(x.Table, content); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// keyed takes the key of a row out of its field id.
func keyed(table string, content value.Value) (newRow, error) {
	fields, ok := content.AsObject()
	if !ok || fields["id"].IsNone() {
		return newRow{content: content}, nil
	}
	key := fields["id"]
	if id, ok := key.AsRecord(); ok {
		if id.Table != table {
			return newRow{}, fault.New(fault.TypeMismatch, "the row's id is %s, and it is inserted into %s", id, table)
		}
		key = id.Key
	}
	if err := store.CheckKey(table, key); err != nil {
		return newRow{}, err
	}
	rest := maps.Clone(fields)
	delete(rest, "id")
	return newRow{key: key, content: value.Fields(rest)}, nil
}

// key is the key that a target names, none where it names none.
func (e *environment) key(target *lang.Target) (value.Value, error) {
	if target.Key == nil {
		return value.None(), nil
	}
	key, err := e.evaluate(target.Key)
	if err != nil {
		return value.None(), err
	}
	return key, store.CheckKey(target.Table, key)
}

// write creates records, or appends messages where the table is a topic.
func (s *Session) write(e *environment, tableName string, rows []newRow) (Answer, error) {
	if s.tx == nil {
		isTopic, err := s.isTopic(e.ctx, tableName)
		if err != nil {
			return Answer{}, err
		}
		if isTopic {
			return s.append(e.ctx, tableName, rows)
		}
	}
	return s.inTransaction(e.ctx, func(tx *store.Tx) (Answer, error) {
		table, err := tx.Catalog().Table(tableName)
		if err != nil {
			return Answer{}, err
		}
		written := collector{limits: e.limits}
		for _, row := range rows {
			if table.Kind == store.Topic {
				message, appended, err := tx.Append(e.ctx, table, row.key, row.content)
				if err != nil {
					return Answer{}, err
				}
				if !appended {
					continue
				}
				if err := written.add(messageAnswer(message, row.content, s.times), len(message.Encoded())); err != nil {
					return Answer{}, err
				}
				continue
			}
			record, err := s.writeRecord(e, table, row.key, row.content, tx.Create)
			if err != nil {
				return Answer{}, err
			}
			if err := written.addRow(record); err != nil {
				return Answer{}, err
			}
		}
		return written.answer(), nil
	})
}

func (s *Session) isTopic(ctx context.Context, name string) (bool, error) {
	db, err := s.inDatabase()
	if err != nil {
		return false, err
	}
	return db.IsTopic(ctx, name)
}

// append appends messages in one commit of their own.
func (s *Session) append(ctx context.Context, topicName string, rows []newRow) (Answer, error) {
	appended, err := s.database.Append(ctx, topicName, messagesOf(rows)...)
	if err != nil {
		return Answer{}, err
	}
	return s.messagesAnswer(appended)
}

// message is a row as a message to append.
func (r newRow) message() store.NewMessage {
	return store.NewMessage{Key: r.key, Value: r.content, Encoded: r.encoded}
}

// messagesOf are rows as messages to append.
func messagesOf(rows []newRow) []store.NewMessage {
	messages := make([]store.NewMessage, len(rows))
	for i, row := range rows {
		messages[i] = row.message()
	}
	return messages
}

func (s *Session) upsert(e *environment, x *lang.Upsert) (Answer, error) {
	key, err := e.key(x.Target)
	if err != nil {
		return Answer{}, err
	}
	content, err := e.evaluate(x.Value)
	if err != nil {
		return Answer{}, err
	}
	return s.inTransaction(e.ctx, func(tx *store.Tx) (Answer, error) {
		table, err := tx.Catalog().Table(x.Target.Table)
		if err != nil {
			return Answer{}, err
		}
		written := collector{limits: e.limits}
		record, err := s.writeRecord(e, table, key, content, tx.Put)
		if err != nil {
			return Answer{}, err
		}
		if err := written.addRow(record); err != nil {
			return Answer{}, err
		}
		return written.answer(), nil
	})
}

// writeRecord writes a record as its table keeps it: with defaults for what is
// absent, and only where every assertion is true.
func (s *Session) writeRecord(e *environment, table *store.Table, key, content value.Value, write writer) (store.Row, error) {
	if table.Kind == store.Collection || table.Kind == store.TypedTable {
		row, err := identified(table, key, content)
		if err != nil {
			return store.Row{}, err
		}
		key, content = row.key, row.content
	}
	if table.Kind == store.TypedTable {
		filled, err := s.withDefaults(e, table, content)
		if err != nil {
			return store.Row{}, err
		}
		if content, err = table.CheckFields(filled); err != nil {
			return store.Row{}, err
		}
		if err := s.assert(e, table, key, content); err != nil {
			return store.Row{}, err
		}
	}
	return write(e.ctx, table, key, content)
}

// identified takes a record's identity out of its field id; where the
// statement names one too, they must agree.
func identified(table *store.Table, key, content value.Value) (newRow, error) {
	row, err := keyed(table.Name, content)
	if err != nil || row.key.IsNone() {
		row.key = key
		return row, err
	}
	if !key.IsNone() && !value.Equal(key, row.key) {
		return row, fault.New(fault.TypeMismatch, "the record is written as %s and its id says %s",
			value.RecordID{Table: table.Name, Key: key}, value.RecordID{Table: table.Name, Key: row.key})
	}
	return row, nil
}

func (s *Session) withDefaults(e *environment, table *store.Table, content value.Value) (value.Value, error) {
	fields, ok := content.AsObject()
	if !ok {
		return content, nil
	}
	filled := fields
	for _, field := range table.Fields {
		if field.Default == "" || !fields[field.Name].IsNone() {
			continue
		}
		expression, err := s.parsed(field.Default)
		if err != nil {
			return content, err
		}
		v, err := e.evaluate(expression)
		if err != nil {
			return content, err
		}
		if len(filled) == len(fields) {
			filled = maps.Clone(fields)
		}
		filled[field.Name] = v
	}
	return value.Fields(filled), nil
}

func (s *Session) assert(e *environment, table *store.Table, key, content value.Value) error {
	fields, _ := content.AsObject()
	record := *e
	record.row, record.content = &store.Row{ID: value.RecordID{Table: table.Name, Key: key}}, content
	for _, field := range table.Fields {
		if field.Assert == "" || fields[field.Name].IsNone() {
			continue
		}
		expression, err := s.parsed(field.Assert)
		if err != nil {
			return err
		}
		v, err := record.evaluate(expression)
		if err != nil {
			return err
		}
		if holds, _ := v.AsBool(); !holds {
			return fault.New(fault.AssertionFailed, "field %s of table %s is %s, which its ASSERT %s refuses", field.Name, table.Name, fields[field.Name], field.Assert)
		}
	}
	return nil
}

// parsed parses the text of an expression that a definition keeps, once a
// session.
func (s *Session) parsed(text string) (lang.Expression, error) {
	if expression, ok := s.expressions[text]; ok {
		return expression, nil
	}
	expression, err := lang.ParseExpression(text)
	if err != nil {
		return nil, fault.New(fault.Internal, "the expression %s of a definition does not parse: %w", text, err)
	}
	if s.expressions == nil {
		s.expressions = map[string]lang.Expression{}
	}
	s.expressions[text] = expression
	return expression, nil
}

func (s *Session) update(e *environment, x *lang.Update) (Answer, error) {
	return s.change(e, x.Target, x.Where, func(tx *store.Tx, table *store.Table, row store.Row) (store.Row, error) {
		if err := e.at(row); err != nil {
			return store.Row{}, err
		}
		changed := e.content
		for _, assignment := range x.Set {
			v, err := e.evaluate(assignment.Value)
			if err != nil {
				return store.Row{}, err
			}
			if changed, err = assign(table.Name, changed, assignment.Field, assignment.Field, v); err != nil {
				return store.Row{}, err
			}
		}
		return s.writeRecord(e, table, row.ID.Key, changed, tx.Put)
	})
}

// assign returns whole with v at a path; objects on the way are made where
// they are absent.
func assign(table string, whole value.Value, path, rest value.Path, v value.Value) (value.Value, error) {
	if len(rest) == 0 {
		return v, nil
	}
	if len(path) == len(rest) && rest[0] == "id" {
		return whole, fault.New(fault.InvalidClause, "id is the record's identity and cannot be SET; CREATE another record and DELETE this one")
	}
	fields, ok := whole.AsObject()
	if !ok && !whole.IsNone() {
		return whole, fault.New(fault.TypeMismatch, "SET %s: %s in %s is no object", path, whole, table)
	}
	part, err := assign(table, fields[rest[0]], path, rest[1:], v)
	if err != nil {
		return whole, err
	}
	changed := make(value.Object, len(fields)+1)
	maps.Copy(changed, fields)
	if part.IsNone() {
		delete(changed, rest[0])
	} else {
		changed[rest[0]] = part
	}
	return value.Fields(changed), nil
}

func (s *Session) delete(e *environment, x *lang.Delete) (Answer, error) {
	return s.change(e, x.Target, x.Where, func(tx *store.Tx, table *store.Table, row store.Row) (store.Row, error) {
		return row, tx.Delete(e.ctx, table, row.ID.Key)
	})
}

// change runs a change on every record of a target for which a condition is
// true, and answers the records that the change returns.
func (s *Session) change(e *environment, target *lang.Target, where lang.Expression,
	change func(tx *store.Tx, table *store.Table, row store.Row) (store.Row, error),
) (Answer, error) {
	return s.inTransaction(e.ctx, func(tx *store.Tx) (Answer, error) {
		table, err := tx.Catalog().Table(target.Table)
		if err != nil {
			return Answer{}, err
		}
		if table.Kind == store.Topic {
			return Answer{}, store.AppendOnly(table.Name)
		}
		// All records are found before the first is changed, so that a change
		// does not meet its own work.
		var found []store.Row
		err = s.eachRow(e, tx, table, target, where, func(row store.Row) (bool, error) {
			found = append(found, row)
			if len(found) > e.limits.AnswerRows {
				return false, fault.New(fault.TooLarge, "the statement changes more than %d records; narrow its WHERE and run it again", e.limits.AnswerRows)
			}
			return true, nil
		})
		if err != nil {
			return Answer{}, err
		}
		changed := collector{limits: e.limits}
		for _, row := range found {
			result, err := change(tx, table, row)
			if err != nil {
				return Answer{}, err
			}
			if err := changed.addRow(result); err != nil {
				return Answer{}, err
			}
		}
		return changed.answer(), nil
	})
}

// eachRow visits the rows of a target for which a condition is true, until
// visit returns false. While it is called the row is the one at hand.
func (s *Session) eachRow(e *environment, tx *store.Tx, table *store.Table, target *lang.Target, where lang.Expression,
	visit func(row store.Row) (more bool, err error),
) (err error) {
	keep := func(row store.Row) (bool, error) {
		if err := e.at(row); err != nil {
			return false, err
		}
		if where == nil {
			return true, nil
		}
		v, err := e.evaluate(where)
		if err != nil {
			return false, err
		}
		holds, ok := v.AsBool()
		if !ok && !v.IsNone() && !v.IsNull() {
			return false, fault.New(fault.TypeMismatch, "WHERE takes true or false, not %s", v)
		}
		return holds, nil
	}
	defer func() { e.row = nil }()
	lookup, err := e.lookup(table, target, where)
	if err != nil {
		return err
	}
	if lookup.single {
		row, found, err := tx.Get(e.ctx, table, lookup.key)
		if err != nil || !found {
			return err
		}
		if kept, err := keep(row); !kept || err != nil {
			return err
		}
		_, err = visit(row)
		return err
	}
	rows := tx.Scan(e.ctx, table, lookup.scan)
	defer func() {
		if closing := rows.Close(); err == nil {
			err = closing
		}
	}()
	for rows.Next() {
		kept, err := keep(rows.Row())
		if err != nil {
			return err
		}
		if !kept {
			continue
		}
		if more, err := visit(rows.Row()); !more || err != nil {
			return err
		}
	}
	return e.ctx.Err()
}
