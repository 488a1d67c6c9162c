package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemarkdb/tidemark/fault"
)

// CheckVacant refuses a schema that holds something, with fault.AlreadyExists.
// One that is not there is vacant.
func CheckVacant(ctx context.Context, options Options) error {
	return options.apart(ctx, "look at the schema", func(ctx context.Context, conn *pgx.Conn, schema string) error {
		var held *string
		err := conn.QueryRow(ctx, `SELECT min(c.relname) FROM pg_catalog.pg_class AS c
			JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1`, schema).Scan(&held)
		if err == nil && held != nil {
			return fault.New(fault.AlreadyExists, "the schema %s holds %s; it must be empty, or not there (DROP SCHEMA %s CASCADE removes it and all it holds)",
				schema, *held, pgx.Identifier{schema}.Sanitize())
		}
		return err
	})
}

// RenameSchema gives the schema of a store that is not open the name of the
// options, which must be vacant, in one transaction.
func RenameSchema(ctx context.Context, options Options, from string) error {
	return options.apart(ctx, "rename the schema", func(ctx context.Context, conn *pgx.Conn, schema string) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			// Without CASCADE it fails where something was put there meanwhile.
			if _, err := tx.Exec(ctx, `DROP SCHEMA IF EXISTS `+pgx.Identifier{schema}.Sanitize()); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `ALTER SCHEMA `+pgx.Identifier{from}.Sanitize()+` RENAME TO `+pgx.Identifier{schema}.Sanitize())
			return err
		})
	})
}

// RemoveSchema removes a schema with all that it holds, if it is there.
func RemoveSchema(ctx context.Context, options Options, name string) error {
	return options.apart(ctx, "remove the schema", func(ctx context.Context, conn *pgx.Conn, _ string) error {
		_, err := conn.Exec(ctx, `DROP SCHEMA IF EXISTS `+pgx.Identifier{name}.Sanitize()+` CASCADE`)
		return err
	})
}

// apart does something to the schema of the options, on a connection of its
// own, outside an open store.
func (o Options) apart(ctx context.Context, doing string, do func(context.Context, *pgx.Conn, string) error) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	config, err := poolConfig(o)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return unavailable("connect to PostgreSQL", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // What was to be done is done, or has failed.
	}()
	if err := do(ctx, conn, o.Schema); err != nil {
		return unavailable(doing, err)
	}
	return nil
}
