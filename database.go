package tidemark

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// Params are the values of a statement's parameters, by name without the $.
// They may be any Go values that value.Of takes.
type Params map[string]any

func (p Params) values() (map[string]value.Value, error) {
	values := make(map[string]value.Value, len(p))
	for name, param := range p {
		v, err := value.Of(param)
		if err != nil {
			return nil, fmt.Errorf("parameter $%s: %w", name, err)
		}
		values[name] = v
	}
	return values, nil
}

// Database is one database of an open store. It is safe for concurrent use.
type Database struct {
	owner    *Store
	database *store.Database
}

// Answer is what one statement answered.
type Answer struct {
	// Value is what it answered, as the reference of the language says.
	Value value.Value
	// Lapsed is how many messages retention removed before the first one that
	// a READ answered.
	Lapsed uint64
	// Err is the statement's error, of one of the kinds of package fault.
	Err error
}

// Exec runs a script and returns one answer a statement. A failed statement
// does not stop those after it; the returned error is that of the first one
// that failed, or fault.Syntax where nothing ran.
//
// A transaction that a script leaves open is cancelled.
func (db *Database) Exec(ctx context.Context, script string, params Params) ([]Answer, error) {
	s := db.owner.newSession(db.database)
	defer s.Close()
	return exec(ctx, s, script, params)
}

func exec(ctx context.Context, s *session.Session, script string, params Params) ([]Answer, error) {
	values, err := params.values()
	if err != nil {
		return nil, err
	}
	results, err := s.Run(ctx, script, values)
	if err != nil {
		return nil, err
	}
	answers := make([]Answer, len(results))
	for i, result := range results {
		answers[i] = Answer{Value: result.Value, Lapsed: result.Lapsed}
		if result.Err != nil {
			answers[i].Err = result.Err
			if err == nil {
				err = result.Err
			}
		}
	}
	return answers, err
}

// Query runs a script of one statement and returns the rows it answers.
func (db *Database) Query(ctx context.Context, statement string, params Params) (Rows, error) {
	return query(func() ([]Answer, error) { return db.Exec(ctx, statement, params) })
}

func query(exec func() ([]Answer, error)) (Rows, error) {
	answers, err := exec()
	if err != nil {
		return Rows{}, err
	}
	if len(answers) != 1 {
		return Rows{}, fault.New(fault.InvalidClause, "Query takes one statement, not %d; Exec takes a script", len(answers))
	}
	rows := Rows{Lapsed: answers[0].Lapsed}
	elements, ok := answers[0].Value.AsArray()
	if !ok {
		elements = []value.Value{answers[0].Value}
	}
	for _, element := range elements {
		rows.rows = append(rows.rows, rowOf(element))
	}
	return rows, nil
}

// Rows are the rows that a statement answered.
type Rows struct {
	rows []Row
	// Lapsed is how many messages retention removed before the first one that
	// a READ answered.
	Lapsed uint64
}

// Row is one row of an answer.
type Row struct {
	// ID is the row's identity, the zero RecordID for a row that has none,
	// such as a count.
	ID value.RecordID
	// Position is a message's position, 0 for a record.
	Position uint64
	// Value is what the row holds.
	Value value.Value
}

func rowOf(element value.Value) Row {
	fields, _ := element.AsObject()
	content, isRow := fields["value"]
	if !isRow {
		return Row{Value: element}
	}
	row := Row{Value: content}
	row.ID, _ = fields["id"].AsRecord()
	position, _ := fields["position"].AsInt()
	row.Position = uint64(position)
	return row
}

// All returns the rows.
func (r Rows) All() []Row { return r.rows }

// Len is the number of rows.
func (r Rows) Len() int { return len(r.rows) }

// Scan decodes the rows' values into a slice that dst points to, or the only
// row into anything else that dst points to: fault.NotFound where there is
// none. Struct fields are named by their json tags.
func (r Rows) Scan(dst any) error {
	target := reflect.ValueOf(dst)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fault.New(fault.TypeMismatch, "Scan takes a pointer, not %T", dst)
	}
	if slice := target.Elem(); slice.Kind() == reflect.Slice && slice.Type().Elem().Kind() != reflect.Uint8 {
		scanned := reflect.MakeSlice(slice.Type(), len(r.rows), len(r.rows))
		for i, row := range r.rows {
			if err := row.Value.Scan(scanned.Index(i).Addr().Interface()); err != nil {
				return fmt.Errorf("row %d: %w", i+1, err)
			}
		}
		slice.Set(scanned)
		return nil
	}
	switch len(r.rows) {
	case 0:
		return fault.New(fault.NotFound, "the statement answered no row")
	case 1:
		return r.rows[0].Value.Scan(dst)
	}
	return fault.New(fault.TypeMismatch, "the statement answered %d rows, and %T holds one", len(r.rows), dst)
}

// Begin starts a transaction, which must be ended by Commit or Cancel. Prefer
// Transact, which runs a transaction again that lost to another.
func (db *Database) Begin(ctx context.Context) (*Tx, error) {
	s := db.owner.newSession(db.database)
	if err := s.Begin(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return &Tx{session: s}, nil
}

// Transact runs work in a transaction and commits it. When another transaction
// committed first what this one wrote or read as a consumer, work runs again,
// on the newest state, until it commits or ctx ends. When work returns an
// error the transaction is cancelled and Transact returns that error.
func (db *Database) Transact(ctx context.Context, work func(tx *Tx) error) error {
	return session.Rerun(ctx, func() error {
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Cancel()
		if err := work(tx); err != nil {
			return err
		}
		_, err = tx.Commit(ctx)
		return err
	})
}

// Tx is a transaction of one database. It is used by one goroutine at a time.
type Tx struct{ session *session.Session }

// Appended are the first and last position that a commit gave in a topic.
type Appended struct{ First, Last uint64 }

// Exec runs statements in the transaction, as Database.Exec does. After one
// that failed, the transaction can only be cancelled.
func (tx *Tx) Exec(ctx context.Context, script string, params Params) ([]Answer, error) {
	return exec(ctx, tx.session, script, params)
}

// Query runs one statement in the transaction and returns its rows.
func (tx *Tx) Query(ctx context.Context, statement string, params Params) (Rows, error) {
	return query(func() ([]Answer, error) { return tx.Exec(ctx, statement, params) })
}

// Append adds a message to a topic when the transaction commits.
func (tx *Tx) Append(ctx context.Context, topic string, message any, options ...AppendOption) error {
	v, key, err := prepare(message, options)
	if err != nil {
		return err
	}
	return tx.session.Append(ctx, topic, key, v)
}

// Put writes a record, whether or not one of its identity exists. The key is
// an int, a string or a uuid.
func (tx *Tx) Put(ctx context.Context, table string, key, record any) error {
	k, err := value.Of(key)
	if err != nil {
		return err
	}
	v, err := value.Of(record)
	if err != nil {
		return err
	}
	return tx.session.Put(ctx, table, k, v)
}

// Commit makes what the transaction wrote durable, whole or not at all, and
// returns the positions of what was appended, by topic. fault.Conflict says
// that another transaction committed first what this one wrote or read as a
// consumer; nothing of it is written, and it can be run again.
func (tx *Tx) Commit(ctx context.Context) (map[string]Appended, error) {
	defer tx.session.Close()
	positions, err := tx.session.Commit(ctx)
	if err != nil {
		return nil, err
	}
	appended := make(map[string]Appended, len(positions))
	for topic, p := range positions {
		appended[topic] = Appended{First: uint64(p.First), Last: uint64(p.Last)}
	}
	return appended, nil
}

// Cancel ends the transaction; nothing of it is written. After Commit it does
// nothing.
func (tx *Tx) Cancel() { tx.session.Close() }

// IsConflict reports whether an error is that of a transaction that lost to
// another and can be run again.
func IsConflict(err error) bool { return errors.Is(err, fault.Conflict) }
