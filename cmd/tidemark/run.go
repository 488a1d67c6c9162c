package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// source says which store a command works on.
type source struct {
	Data     string `xor:"source" help:"Folder of the store, created where it is missing. Left out: a store in memory, which ends with the command." placeholder:"DIR"`
	Postgres string `xor:"source" help:"PostgreSQL that carries the store, shared by all nodes that are given it: postgres://user@host/database. Its password is better left to PGPASSWORD or a password file." placeholder:"URL"`
}

// opened is an open store, whose declared consumers run.
type opened struct {
	*store.Store
	consumers *ingest.Supervisor
}

// openStore opens the store of a source and runs its declared consumers.
func (s source) openStore(ctx context.Context, log *slog.Logger) (opened, error) {
	e, err := s.openEngine(ctx, log)
	if err != nil {
		return opened{}, err
	}
	st, err := store.Open(ctx, e, store.Options{Log: log})
	if err != nil {
		_ = e.Close()
		return opened{}, err
	}
	return opened{st, ingest.Start(st, ingest.Options{Log: log})}, nil
}

// newSession starts a session of the store.
func (o opened) newSession() *session.Session {
	return session.New(o.Store, session.Options{Running: o.consumers})
}

// Close lets the declared consumers finish their batches and closes the store.
func (o opened) Close() error {
	o.consumers.Stop()
	return o.Store.Close()
}

func (s source) openEngine(ctx context.Context, log *slog.Logger) (engine.Engine, error) {
	switch {
	case s.Postgres != "":
		return postgres.Open(ctx, postgres.Options{URL: s.Postgres, Logger: log})
	case s.Data == "":
		return pebble.OpenMemory(pebble.Options{Logger: log})
	}
	return pebble.Open(s.Data, pebble.Options{Logger: log})
}

// runCommand is tidemark run.
type runCommand struct {
	source
	URL   string   `name:"url" xor:"source" help:"Node to run them on: ws://host:port, or wss://host:port." placeholder:"URL"`
	JSON  bool     `help:"Print one answer a line, as JSON, and nothing else on standard output."`
	Files []string `arg:"" optional:"" name:"file" help:"Scripts to run, in order, in one session. - is standard input, also when none is given."`
}

// Help is the manual of the command.
func (runCommand) Help() string {
	return `Runs the statements of each FILE in order, in one session, and prints every
statement with its answer. It goes on after a statement that failed.

Exit status: 0 when every statement answered ok, 1 when any failed, 2 when a
script does not parse; nothing of such a script runs.

Examples:

  tidemark run script.tide              in memory
  tidemark run --data ./store a.tide    in a folder that keeps what it wrote
  tidemark run --url ws://host:7420 -   on a node
  echo "SELECT 1;" | tidemark run -     from standard input`
}

// Run runs the scripts.
func (c *runCommand) Run(s *surroundings) error {
	log := slog.New(slog.NewTextHandler(s.errors, &slog.HandlerOptions{Level: slog.LevelWarn}))
	runner, closeAll, err := c.open(s.ctx, log)
	if err != nil {
		return err
	}
	defer closeAll()
	out := bufio.NewWriter(s.out)
	defer func() { _ = out.Flush() }()

	files := c.Files
	if len(files) == 0 {
		files = []string{"-"}
	}
	status := exit(0)
	for _, file := range files {
		text, err := readScript(s, file)
		if err != nil {
			return err
		}
		status = max(status, c.runScript(s, runner, string(text), out))
	}
	if status != 0 {
		return status
	}
	return nil
}

// open opens what the scripts run on.
func (c *runCommand) open(ctx context.Context, log *slog.Logger) (runner caller, closeAll func(), err error) {
	if c.URL != "" {
		node, err := dial(ctx, c.URL)
		if err != nil {
			return nil, nil, err
		}
		return node, node.Close, nil
	}
	store, err := c.openStore(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	session := store.newSession()
	return session, func() {
		session.Close()
		_ = store.Close()
	}, nil
}

func readScript(s *surroundings, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(s.in)
	}
	return os.ReadFile(file)
}

// runScript runs one script and returns the exit status that it asks for.
func (c *runCommand) runScript(s *surroundings, runner caller, text string, out *bufio.Writer) exit {
	print := newPrinter(out, s.out).print
	if c.JSON {
		print = func(_ string, answer session.Answer) { printJSON(out, answer) }
	}
	script, err := lang.Parse(text)
	if err != nil {
		print("", session.Answer{Err: fault.Of(err)})
		_ = out.Flush()
		return 2
	}
	status := exit(0)
	runner.RunScript(s.ctx, script, nil, func(statement lang.Statement, answer session.Answer) {
		if answer.Err != nil {
			status = 1
		}
		print(script.Text(statement), answer)
		// A script may sleep or wait: what is known is shown.
		_ = out.Flush()
	})
	return status
}

// printJSON prints an answer as one line.
func printJSON(out io.Writer, answer session.Answer) {
	line, err := answer.AppendJSON(nil)
	if err != nil {
		line, err = session.Answer{Err: fault.Of(err)}.AppendJSON(nil)
	}
	if err != nil {
		line = fmt.Appendf(nil, `{"ok":false,"error":{"kind":"%s","message":"the answer cannot be written as JSON"}}`, fault.Internal)
	}
	_, _ = out.Write(append(line, '\n'))
}
