package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// printer prints statements and answers for people: rows as an aligned table,
// errors in red where the terminal has colour.
type printer struct {
	out    io.Writer
	colour bool
}

// newPrinter prints to out, which ends at terminal if that is one.
func newPrinter(out, terminal io.Writer) *printer {
	file, ok := terminal.(*os.File)
	colour := ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &printer{out: out, colour: colour}
}

func (p *printer) paint(colours text.Colors, s string) string {
	if !p.colour {
		return s
	}
	return colours.Sprint(s)
}

// print prints a statement and its answer.
func (p *printer) print(statement string, answer session.Answer) {
	if statement != "" {
		fmt.Fprintf(p.out, "%s\n", p.paint(text.Colors{text.Bold}, statement+";"))
	}
	switch {
	case answer.Err != nil:
		fmt.Fprintf(p.out, "%s\n", p.paint(text.Colors{text.FgRed}, answer.Err.Error()))
	default:
		p.printValue(answer.Value)
	}
	if answer.Lapsed > 0 {
		fmt.Fprintf(p.out, "%s\n", p.paint(text.Colors{text.FgYellow}, fmt.Sprintf("lapsed: retention removed %d messages before these", answer.Lapsed)))
	}
	fmt.Fprintln(p.out)
}

func (p *printer) printValue(v value.Value) {
	rows, isRows := v.AsArray()
	switch {
	case v.IsNull() || v.IsNone():
		fmt.Fprintln(p.out, "ok")
	case isRows && len(rows) == 0:
		fmt.Fprintln(p.out, "(nothing)")
	case isRows:
		p.printRows(rows)
	default:
		p.printFields(v)
	}
}

// printFields prints an object a field a line, as INFO answers one.
func (p *printer) printFields(v value.Value) {
	fields, ok := v.AsObject()
	if !ok {
		fmt.Fprintln(p.out, v)
		return
	}
	t := newTable()
	for _, name := range sortedNames(fields) {
		t.AppendRow(table.Row{name, fields[name].String()})
	}
	fmt.Fprintln(p.out, t.Render())
}

// printRows prints rows under the names of their columns. What is beside a
// row's value comes first, and the fields of values that are objects have
// columns of their own.
func (p *printer) printRows(rows []value.Value) {
	flat := make([]value.Object, len(rows))
	for i, row := range rows {
		flat[i] = flatten(row)
	}
	columns := columnsOf(flat)
	t := newTable()
	header := make(table.Row, len(columns))
	for i, column := range columns {
		header[i] = column
	}
	t.AppendHeader(header)
	for _, row := range flat {
		cells := make(table.Row, len(columns))
		for i, column := range columns {
			cells[i] = cell(row[column])
		}
		t.AppendRow(cells)
	}
	fmt.Fprintln(p.out, t.Render())
}

func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.Options{SeparateColumns: true, SeparateHeader: true}
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	return t
}

func flatten(row value.Value) value.Object {
	fields, ok := row.AsObject()
	if !ok {
		return value.Object{"value": row}
	}
	content, ok := fields["value"].AsObject()
	if !ok {
		return fields
	}
	flat := value.Object{}
	for name, v := range content {
		flat[name] = v
	}
	for name, v := range fields {
		if name != "value" {
			flat[name] = v
		}
	}
	return flat
}

// leading are the columns that come first.
var leading = []string{"id", "position", "deliveries"}

func columnsOf(rows []value.Object) []string {
	seen := value.Object{}
	for _, row := range rows {
		for name := range row {
			seen[name] = value.Null()
		}
	}
	var columns []string
	for _, name := range leading {
		if _, ok := seen[name]; ok {
			columns = append(columns, name)
			delete(seen, name)
		}
	}
	return append(columns, sortedNames(seen)...)
}

func sortedNames(fields value.Object) []string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// cell is a value as a table shows it: strings without quotes, absent fields
// empty, and nothing that would break the line.
func cell(v value.Value) string {
	if v.IsNone() {
		return ""
	}
	if id, ok := v.AsRecord(); ok {
		return id.String()
	}
	if s, ok := v.AsString(); ok && !strings.ContainsFunc(s, isControl) {
		return s
	}
	return v.String()
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
