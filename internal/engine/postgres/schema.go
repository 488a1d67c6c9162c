package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemarkdb/tidemark/fault"
)

//go:embed schema.sql
var tablesSQL string

//go:embed views.sql
var viewsSQL string

//go:embed nodes.sql
var nodesSQL string

//go:embed modules.sql
var modulesSQL string

// schemaVersion is the version of the tables and views that this engine makes
// and works with. A later one adds a migration; a node of an earlier version
// refuses to work with it.
const schemaVersion = 3

// migrations make each version of the one before. Their statements may be run
// again, for where DDL is not undone with its transaction.
var migrations = [schemaVersion]string{tablesSQL + viewsSQL, nodesSQL, modulesSQL}

// migrate makes the tables, or brings them to this engine's version. One node
// does that while it holds the version's row; the others wait for the row.
func (e *Engine) migrate(ctx context.Context) error {
	return e.persist(ctx, "make or migrate the tables", func(ctx context.Context) error {
		version, err := e.readVersion(ctx)
		if err != nil {
			return err
		}
		if version == schemaVersion {
			return nil
		}
		if version == 0 {
			if err := e.makeVersionTable(ctx); err != nil {
				return err
			}
		}
		return e.migrateLocked(ctx)
	})
}

func (e *Engine) versionTable() string {
	return pgx.Identifier{e.options.Schema, "schema_version"}.Sanitize()
}

func (e *Engine) checkVersion(version int) error {
	if version > schemaVersion {
		return fault.New(fault.Unavailable, "the tables in the schema %s are of version %d, and this node works with version %d; run a newer one",
			e.options.Schema, version, schemaVersion)
	}
	return nil
}

// readVersion returns the version of the tables, 0 where there are none.
func (e *Engine) readVersion(ctx context.Context) (int, error) {
	var version int
	err := e.queryRow(ctx, `SELECT version FROM `+e.versionTable()+` WHERE singleton = 1`, &version)
	switch state := sqlState(err); {
	case state == stateUndefinedTable, state == stateInvalidSchema, errors.Is(err, pgx.ErrNoRows):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return version, e.checkVersion(version)
}

// makeVersionTable makes the table whose row nodes take to migrate. Several may
// do this at once, over which the server may stumble: IF NOT EXISTS does not
// look at what another transaction is making.
func (e *Engine) makeVersionTable(ctx context.Context) error {
	return e.onConnection(ctx, func(conn *pgxpool.Conn) error {
		for _, statement := range []string{
			`CREATE SCHEMA IF NOT EXISTS ` + pgx.Identifier{e.options.Schema}.Sanitize(),
			`CREATE TABLE IF NOT EXISTS ` + e.versionTable() + ` (singleton int PRIMARY KEY, version int NOT NULL)`,
			`INSERT INTO ` + e.versionTable() + ` (singleton, version) VALUES (1, 0) ON CONFLICT (singleton) DO NOTHING`,
		} {
			_, err := conn.Exec(ctx, statement)
			switch sqlState(err) {
			case stateUniqueViolation, stateDuplicateSchema, stateDuplicateTable, stateDuplicateObject, stateInternal:
				// Without the state, so that it is tried again.
				return errors.New("another node makes the tables too: " + err.Error())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *Engine) migrateLocked(ctx context.Context) error {
	session, err := e.begin(ctx, beginCommit, &pgx.Batch{})
	if err != nil {
		return err
	}
	defer session.end()
	return session.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var version int
		err := conn.QueryRow(ctx, `SELECT version FROM `+e.versionTable()+` WHERE singleton = 1 FOR UPDATE`).Scan(&version)
		if err == nil {
			err = e.checkVersion(version)
		}
		if err != nil || version == schemaVersion {
			return err
		}
		e.log.Info("migrating the tables", "schema", e.options.Schema, "from", version, "to", schemaVersion)
		for _, migration := range migrations[version:] {
			statements, err := render(migration, e.options.Schema)
			if err != nil {
				return err
			}
			if _, err := conn.Conn().PgConn().Exec(ctx, statements).ReadAll(); err != nil {
				return err
			}
		}
		_, err = conn.Exec(ctx, `UPDATE `+e.versionTable()+` SET version = $1 WHERE singleton = 1`, schemaVersion)
		if err == nil {
			_, err = conn.Exec(ctx, `COMMIT`)
		}
		return err
	})
}

// render fills in a migration's schema and the expressions that decode numbers.
func render(migration, schema string) (string, error) {
	functions := template.FuncMap{
		"schema": func() string { return pgx.Identifier{schema}.Sanitize() },
		"number": bigEndian,
		"cbor":   cborNumber,
	}
	parsed, err := template.New("migration").Funcs(functions).Parse(migration)
	if err != nil {
		return "", fault.New(fault.Internal, "a migration does not parse: %w", err)
	}
	var text strings.Builder
	if err := parsed.Execute(&text, nil); err != nil {
		return "", fault.New(fault.Internal, "a migration does not render: %w", err)
	}
	return text.String(), nil
}

// bigEndian is an expression of the number in some bytes, from an offset.
func bigEndian(bytes, offset string, size int) string {
	var sum []string
	for i := range size {
		sum = append(sum, fmt.Sprintf("(get_byte(%s, %s + %d)::bigint << %d)", bytes, offset, i, 8*(size-1-i)))
	}
	return "(" + strings.Join(sum, " | ") + ")"
}

// cborNumber is an expression of an unsigned number in CBOR of up to 32 bits.
func cborNumber(bytes, offset string) string {
	head := fmt.Sprintf("get_byte(%s, %s)", bytes, offset)
	rest := offset + " + 1"
	return fmt.Sprintf("CASE %s WHEN 24 THEN %s WHEN 25 THEN %s WHEN 26 THEN %s ELSE %s::bigint END",
		head, bigEndian(bytes, rest, 1), bigEndian(bytes, rest, 2), bigEndian(bytes, rest, 4), head)
}
