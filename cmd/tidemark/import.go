package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tidemarkdb/tidemark/internal/export"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// importCommand is tidemark import.
type importCommand struct {
	anySource
	Database  string `help:"Database to import into, as namespace/database, made where it is missing. What a script of statements says of namespaces and databases is then passed over; left out, it says." placeholder:"NAME"`
	Skip      int    `help:"Lines of JSON, or statements, to pass over: what an import that stopped has done." placeholder:"N"`
	Overwrite bool   `help:"Of JSON, and of that alone: replace records that are there. They are refused otherwise."`
	Quiet     bool   `help:"Show no progress."`
	From      string `arg:"" help:"Export to import, or - for standard input."`
}

// Help is the manual of the command.
func (importCommand) Help() string {
	return `Imports what export wrote, or what another program wrote in its forms: a script
of statements, or JSON a line, where rows are

  {"table":"orders","id":"orders:1001","value":{"total":5}}

and id may be left out. A string in a typed table becomes what its field takes
(datetime, uuid, bytes, duration, record).

Rows are committed in batches. Where something is refused the import stops and
says at which line or statement; all before it is in the store, and --skip goes
on from there.`
}

// Run imports.
func (c *importCommand) Run(s *surroundings) error {
	if c.Data == "" && c.Postgres == "" && c.URL == "" {
		return errors.New("import into what? Name the store: --url, --data or --postgres")
	}
	from, err := openInput(s, c.From)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	runner, closeAll, err := c.open(s, slog.New(slog.NewTextHandler(s.errors, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	defer closeAll()
	run := func(ctx context.Context, statements string, params map[string]value.Value) (value.Value, error) {
		return runAll(ctx, runner, statements, params)
	}
	if c.Database != "" {
		if err := useDatabase(s.ctx, run, c.Database); err != nil {
			return err
		}
	}
	shown := newProgress(s.errors, "imported", c.Quiet)
	done, err := export.Read(s.ctx, from, run, export.ReadOptions{Skip: c.Skip, Overwrite: c.Overwrite, Into: c.Database != "", Tell: shown.count})
	shown.end()
	if err != nil {
		return err
	}
	skipped := min(c.Skip, done)
	fmt.Fprintf(s.out, "imported: %d lines or statements", done-skipped)
	if skipped > 0 {
		fmt.Fprintf(s.out, ", after %d that were skipped", skipped)
	}
	fmt.Fprintln(s.out)
	return nil
}

// useDatabase uses a database, and makes it where it is missing.
func useDatabase(ctx context.Context, run export.Run, name string) error {
	namespace, database, err := splitDatabase(name)
	if err != nil {
		return err
	}
	n, d := value.QuoteIdentifier(namespace), value.QuoteIdentifier(database)
	_, err = run(ctx, fmt.Sprintf(`DEFINE NAMESPACE IF NOT EXISTS %s; USE NAMESPACE %s; DEFINE DATABASE IF NOT EXISTS %s; USE DATABASE %s;`, n, n, d, d), nil)
	return err
}

// runAll runs statements and returns the last answer, or the first error.
func runAll(ctx context.Context, runner caller, statements string, params map[string]value.Value) (last value.Value, err error) {
	script, err := lang.Parse(statements)
	if err != nil {
		return value.None(), err
	}
	runner.RunScript(ctx, script, params, func(_ lang.Statement, answer session.Answer) {
		if answer.Err != nil && err == nil {
			err = answer.Err
		}
		last = answer.Value
	})
	return last, err
}
