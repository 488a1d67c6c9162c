package export

import (
	"fmt"
	"maps"
	"strings"

	"github.com/tidemarkdb/tidemark/value"
)

// The bounds of a batch: rows of one table that are one commit.
const (
	batchRows  = 500
	batchBytes = 256 << 10
)

// newRow is a row to write: its key, none for one that the store generates, and
// what it holds.
type newRow struct{ key, content value.Value }

// insertable reports whether an INSERT carries the row: its key goes into the
// field id, so there must be room for that.
func (r newRow) insertable() bool {
	fields, isObject := r.content.AsObject()
	if !isObject {
		return r.key.IsNone()
	}
	_, taken := fields["id"]
	return !taken
}

// inserted is the row as an INSERT has it.
func (r newRow) inserted() value.Value {
	if r.key.IsNone() {
		return r.content
	}
	fields, _ := r.content.AsObject()
	keyed := maps.Clone(fields)
	if keyed == nil {
		keyed = value.Object{}
	}
	keyed["id"] = r.key
	return value.Fields(keyed)
}

// batch is the statements that write rows in one commit.
type batch struct {
	text   strings.Builder
	params map[string]value.Value
	// literal says that values stand in the text, not beside it.
	literal bool
}

// write appends statements that write the rows; verb is CREATE or UPSERT.
func (b *batch) write(verb, table string, rows []newRow) {
	insertable := verb == create
	for _, row := range rows {
		insertable = insertable && row.insertable()
	}
	if insertable {
		b.insert(table, rows)
		return
	}
	if len(rows) > 1 {
		b.text.WriteString("BEGIN;\n")
	}
	for _, row := range rows {
		b.text.WriteString(verb + " " + value.QuoteIdentifier(table))
		if !row.key.IsNone() {
			b.text.WriteString(":" + b.place(row.key))
		}
		b.text.WriteString(" = " + b.place(row.content) + ";\n")
	}
	if len(rows) > 1 {
		b.text.WriteString("COMMIT;\n")
	}
}

// The statements that write one row.
const (
	create = "CREATE"
	upsert = "UPSERT"
)

func (b *batch) insert(table string, rows []newRow) {
	b.text.WriteString("INSERT INTO " + value.QuoteIdentifier(table) + " [")
	for i, row := range rows {
		if i > 0 {
			b.text.WriteByte(',')
		}
		b.text.WriteString("\n  " + b.place(row.inserted()))
	}
	b.text.WriteString("\n];\n")
}

// place is what stands in the text for a value.
func (b *batch) place(v value.Value) string {
	if b.literal {
		return v.String()
	}
	if b.params == nil {
		b.params = map[string]value.Value{}
	}
	name := fmt.Sprintf("p%d", len(b.params))
	b.params[name] = v
	return "$" + name
}
