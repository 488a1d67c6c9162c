// Package export writes a database for people and other programs, and reads it
// back: as a script of statements, which carries every type, or as JSON, a row
// a line. It knows definitions and rows and nothing of files and nodes.
//
// An export is one point of the database's commit order: definitions first, so
// that rows have somewhere to go, then rows, then what would keep rows out or
// act on them (DEDUPLICATE, declared consumers). It is not a backup. Positions
// and times of messages are given anew where it is imported, in the same order;
// places of readers and groups, headers, and users are not in it.
package export

import (
	"context"
	"fmt"
	"io"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// Format is the form of an export.
type Format string

// The formats.
const (
	// Statements is a script that tidemark run takes.
	Statements Format = "statements"
	// JSON is an object a line: {"define":…}, or a row.
	JSON Format = "json"
)

// CheckFormat returns fault.InvalidClause for what is no format.
func CheckFormat(f Format) error {
	if f != Statements && f != JSON {
		return fault.New(fault.InvalidClause, "the format of an export is %s or %s, not %q", Statements, JSON, f)
	}
	return nil
}

// sink takes an export, piece by piece.
type sink interface {
	begin(namespace, database string) error
	define(definition lang.Statement) error
	row(table *store.Table, row store.Row) error
	// flush writes what is held of the table whose rows were given.
	flush() error
}

// Write writes a database.
func Write(ctx context.Context, s *store.Store, namespace, database string, format Format, to io.Writer) error {
	if err := CheckFormat(format); err != nil {
		return err
	}
	db, err := s.Database(ctx, namespace, database)
	if err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Cancel()
	var out sink = &statementSink{to: to}
	if format == JSON {
		out = &jsonSink{to: to}
	}
	if err := out.begin(namespace, database); err != nil {
		return err
	}
	before, after, err := definitions(tx.Catalog())
	if err != nil {
		return err
	}
	for _, definition := range before {
		if err := out.define(definition); err != nil {
			return err
		}
	}
	for _, table := range tx.Catalog().Tables() {
		if err := writeRows(ctx, tx, table, out); err != nil {
			return err
		}
	}
	for _, definition := range after {
		if err := out.define(definition); err != nil {
			return err
		}
	}
	return nil
}

func writeRows(ctx context.Context, tx *store.Tx, table *store.Table, out sink) error {
	rows := tx.Scan(ctx, table, store.ScanOptions{})
	for rows.Next() {
		if err := out.row(table, rows.Row()); err != nil {
			_ = rows.Close() // The first error is the one to tell.
			return err
		}
	}
	if err := rows.Close(); err != nil {
		return fmt.Errorf("read %s: %w", table.Name, err)
	}
	return out.flush()
}
