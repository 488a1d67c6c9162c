package export

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/value"
)

// jsonReader imports lines of JSON.
type jsonReader struct {
	run     Run
	options ReadOptions
	// at is how many lines were read, and done how many of them are in the store
	// or were skipped.
	at, done int

	// table is the one that rows go to, and what is known of it.
	table   string
	isTopic bool
	fields  map[string]string
	// rows wait to be written.
	rows  []lineRow
	bytes int
}

// lineRow is a row and the number of its line.
type lineRow struct {
	newRow
	line int
}

func readJSON(ctx context.Context, in *bufio.Reader, run Run, options ReadOptions) (done int, err error) {
	r := &jsonReader{run: run, options: options}
	if err := r.read(ctx, in); err != nil {
		return r.done, &Stopped{Done: r.done, What: "line", cause: err}
	}
	return r.done, nil
}

func (r *jsonReader) read(ctx context.Context, in *bufio.Reader) error {
	for {
		line, err := readLine(in)
		switch {
		case errors.Is(err, io.EOF):
			if err := r.flush(ctx); err != nil {
				return err
			}
			r.finish(r.at)
			return nil
		case err != nil:
			return r.after(ctx, err)
		}
		r.at++
		if r.at <= r.options.Skip {
			r.done = r.at
			continue
		}
		if len(line) == 0 {
			continue
		}
		if err := r.take(ctx, line); err != nil {
			return err
		}
	}
}

// take takes a line.
func (r *jsonReader) take(ctx context.Context, line []byte) error {
	parsed, err := value.ParseJSON(line)
	fields, isObject := parsed.AsObject()
	if err == nil && !isObject {
		err = fault.New(fault.Syntax, "a line of an export is an object, not %s", parsed.Kind())
	}
	if err != nil {
		return r.after(ctx, err)
	}
	if definition, ok := fields["define"].AsString(); ok {
		if err := r.flush(ctx); err != nil {
			return err
		}
		r.table = "" // It may be another one now.
		if _, err := r.run(ctx, definition, nil); err != nil {
			return err
		}
		r.finish(r.at)
		return nil
	}
	table, ok := fields["table"].AsString()
	if !ok {
		return r.after(ctx, fault.New(fault.Syntax, "a line of an export has a table, or a define"))
	}
	if table != r.table {
		if err := r.flush(ctx); err != nil {
			return err
		}
		if err := r.begin(ctx, table); err != nil {
			return err
		}
	}
	row, err := r.rowOf(fields)
	if err != nil {
		return r.after(ctx, err)
	}
	r.rows = append(r.rows, lineRow{row, r.at})
	r.bytes += len(line)
	if len(r.rows) >= batchRows || r.bytes >= batchBytes {
		return r.flush(ctx)
	}
	return nil
}

// after writes what came before a line that is wrong, so that it is known where
// the import stopped.
func (r *jsonReader) after(ctx context.Context, wrong error) error {
	if err := r.flush(ctx); err != nil {
		return err
	}
	return wrong
}

// begin asks what a table is.
func (r *jsonReader) begin(ctx context.Context, table string) error {
	r.table, r.isTopic, r.fields = table, false, map[string]string{}
	database, err := r.run(ctx, "INFO FOR DATABASE;", nil)
	if err != nil {
		return err
	}
	info, _ := database.AsObject()
	topics, _ := info["topics"].AsArray()
	for _, topic := range topics {
		name, _ := topic.AsString()
		r.isTopic = r.isTopic || name == table
	}
	if r.isTopic {
		return nil
	}
	described, err := r.run(ctx, "INFO FOR TABLE "+value.QuoteIdentifier(table)+";", nil)
	if err != nil {
		return err
	}
	info, _ = described.AsObject()
	fields, _ := info["fields"].AsObject()
	for name, kind := range fields {
		text, _ := kind.AsString()
		r.fields[name] = strings.TrimSuffix(text, " | null")
	}
	return nil
}

// rowOf is the row of a line.
func (r *jsonReader) rowOf(line value.Object) (row newRow, err error) {
	row.content = line["value"]
	if generated, _ := line["generated"].AsBool(); !generated && !line["id"].IsNone() {
		if row.key, err = r.keyOf(line["id"]); err != nil {
			return row, err
		}
	}
	content, isObject := row.content.AsObject()
	if !isObject {
		return row, nil
	}
	for name, kind := range r.fields {
		text, isText := content[name].AsString()
		if !isText {
			continue
		}
		if content[name], err = typed(text, kind); err != nil {
			return row, fault.New(fault.TypeMismatch, "the field %s of table %s takes %s, and %q is none: %w", name, r.table, kind, text, err)
		}
	}
	return row, nil
}

// keyOf is the key of an identity, which is an int or canonical text.
func (r *jsonReader) keyOf(id value.Value) (value.Value, error) {
	text, ok := id.AsString()
	if !ok {
		return id, nil // The key itself.
	}
	expression, err := lang.ParseExpression(text)
	if err == nil {
		if literal, ok := expression.(*lang.Literal); ok {
			if record, ok := literal.Value.AsRecord(); ok && record.Table == r.table {
				return record.Key, nil
			}
		}
	}
	return value.None(), fault.New(fault.TypeMismatch, "the id %s is no identity of %s, as %s:1 or %s:'a' would be", text, r.table, r.table, r.table)
}

// typed is the value of a field's type that JSON writes as text.
func typed(text, kind string) (value.Value, error) {
	switch kind {
	case "uuid":
		id, err := uuid.Parse(text)
		return value.UUID(id), err
	case "datetime":
		t, err := time.Parse(time.RFC3339Nano, text)
		return value.Datetime(t), err
	case "bytes":
		b, err := base64.StdEncoding.DecodeString(text)
		return value.Bytes(b), err
	case "duration":
		d, err := time.ParseDuration(text)
		return value.Duration(d), err
	case "record":
		expression, err := lang.ParseExpression(text)
		if err != nil {
			return value.None(), err
		}
		if literal, ok := expression.(*lang.Literal); ok && literal.Value.Kind() == value.KindRecord {
			return literal.Value, nil
		}
		return value.None(), errors.New("an identity is written table:key")
	}
	return value.String(text), nil
}

// flush writes the rows that wait. Where they are refused they are written one
// by one, so that the line that is refused is known.
func (r *jsonReader) flush(ctx context.Context) error {
	rows := r.rows
	r.rows, r.bytes = nil, 0
	if len(rows) == 0 {
		return nil
	}
	err := r.write(ctx, rows)
	switch {
	case err == nil:
		r.finish(rows[len(rows)-1].line)
		return nil
	case len(rows) == 1 || errors.Is(err, fault.Unavailable) || ctx.Err() != nil:
		return err
	}
	for i, row := range rows {
		if err := r.write(ctx, rows[i:i+1]); err != nil {
			r.done = row.line - 1
			return err
		}
		r.finish(row.line)
	}
	return nil
}

// finish says that the lines up to one are done.
func (r *jsonReader) finish(line int) {
	r.done = line
	if r.options.Tell != nil {
		r.options.Tell(line)
	}
}

func (r *jsonReader) write(ctx context.Context, rows []lineRow) error {
	verb := create
	if r.options.Overwrite && !r.isTopic {
		verb = upsert
	}
	written := make([]newRow, len(rows))
	for i, row := range rows {
		written[i] = row.newRow
	}
	var b batch
	b.write(verb, r.table, written)
	_, err := r.run(ctx, b.text.String(), b.params)
	return err
}
