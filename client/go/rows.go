package client

import (
	"fmt"
	"reflect"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// Answer is what one statement answered.
type Answer struct {
	// Value is what it answered, as the reference of the language says.
	Value value.Value
	// Lapsed is how many messages retention removed before the first one that
	// a READ answered.
	Lapsed uint64
	// Err is why the statement failed, nil where it did not.
	Err *fault.Error

	// messages are the answer where a page was asked for; Value is none then.
	messages []Message
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

// rowsOf are the rows of a script of one statement.
func rowsOf(answers []Answer, err error) (Rows, error) {
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
