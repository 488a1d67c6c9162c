package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

var _ engine.Roll = (*Engine)(nil)

// Enter writes this process's row of the table nodes, in a statement of its
// own.
func (e *Engine) Enter(ctx context.Context, p engine.Process) (time.Time, error) {
	seen, err := e.Now(ctx)
	if err != nil {
		return seen, err
	}
	return seen, e.onRoll(ctx, "tell the other nodes of this one", func(ctx context.Context, conn *pgxpool.Conn) error {
		started := p.Started
		if started.IsZero() {
			started = seen
		}
		_, err := conn.Exec(ctx, e.sql.enter, uuidOf(p.ID), storable(p.Name), storable(p.Address), started, seen)
		return err
	})
}

// Entries reads the table nodes.
func (e *Engine) Entries(ctx context.Context) (entries []engine.Process, now time.Time, err error) {
	err = e.onRoll(ctx, "look for the other nodes", func(ctx context.Context, conn *pgxpool.Conn) error {
		entries = nil
		rows, err := conn.Query(ctx, e.sql.entered)
		if err != nil {
			return err
		}
		var id pgtype.UUID
		var p engine.Process
		_, err = pgx.ForEachRow(rows, []any{&id, &p.Name, &p.Address, &p.Started, &p.Seen}, func() error {
			p.ID, p.Started, p.Seen = id.Bytes, p.Started.UTC(), p.Seen.UTC()
			entries = append(entries, p)
			return nil
		})
		return err
	})
	if err == nil {
		// Asked after the rows were read, so that none is of later.
		now, err = e.Now(ctx)
	}
	return entries, now, err
}

// Strike removes rows of the table nodes.
func (e *Engine) Strike(ctx context.Context, ids ...uuid.UUID) error {
	return e.onRoll(ctx, "tell the other nodes that one is gone", func(ctx context.Context, conn *pgxpool.Conn) error {
		for _, id := range ids {
			if _, err := conn.Exec(ctx, e.sql.strike, uuidOf(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *Engine) onRoll(ctx context.Context, doing string, do func(context.Context, *pgxpool.Conn) error) error {
	if !e.gate.enter() {
		return errClosed()
	}
	defer e.gate.leave()
	return e.persist(ctx, doing, func(ctx context.Context) error {
		return e.onConnection(ctx, func(conn *pgxpool.Conn) error { return do(ctx, conn) })
	})
}

func uuidOf(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// storable is a text as PostgreSQL takes one: UTF-8 and without NUL.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}
