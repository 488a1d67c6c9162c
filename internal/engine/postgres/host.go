package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// PgxHost is a transaction of pgx as a Host.
func PgxHost(tx pgx.Tx) Host { return pgxHost{tx} }

type pgxHost struct{ tx pgx.Tx }

func (h pgxHost) Query(ctx context.Context, statement string, arguments []any, row func(scan func(into ...any) error) error) error {
	return eachRow(ctx, h.tx, statement, arguments, row)
}

// queryAll makes it a pipeline.
func (h pgxHost) queryAll(ctx context.Context, statements []hostStatement) error {
	batch := &pgx.Batch{}
	for _, statement := range statements {
		queued := batch.Queue(statement.text, statement.arguments...)
		if statement.row != nil {
			queued.Query(func(rows pgx.Rows) error { return visit(rows, statement.row) })
		}
	}
	return h.tx.SendBatch(ctx, batch).Close()
}

// SQLHost is a transaction of database/sql as a Host, of any driver that speaks
// to PostgreSQL.
func SQLHost(tx *sql.Tx) Host { return sqlHost{tx} }

type sqlHost struct{ tx *sql.Tx }

func (h sqlHost) Query(ctx context.Context, statement string, arguments []any, row func(scan func(into ...any) error) error) (err error) {
	plain := make([]any, len(arguments))
	for i, argument := range arguments {
		if array, ok := argument.([][]byte); ok {
			argument = arrayText(array)
		}
		plain[i] = argument
	}
	rows, err := h.tx.QueryContext(ctx, statement, plain...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if row == nil {
			continue
		}
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// arrayText is an array of bytea as text, which every driver can send.
func arrayText(array [][]byte) string {
	size := 2
	for _, element := range array {
		size += 2*len(element) + len(`"\\x",`)
	}
	var text strings.Builder
	text.Grow(size)
	text.WriteByte('{')
	for i, element := range array {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(`"\\x`)
		_, _ = hex.NewEncoder(&text).Write(element) // A Builder takes everything.
		text.WriteByte('"')
	}
	text.WriteByte('}')
	return text.String()
}
