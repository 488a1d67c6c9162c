package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/tidemarkdb/tidemark/internal/remote"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/shell"
)

// shellCommand is tidemark shell.
type shellCommand struct {
	anySource
	JSON bool `help:"Print answers as JSON, one a line."`
}

// Help is the manual of the command.
func (shellCommand) Help() string {
	return `Reads statements, runs each when its semicolon comes, and shows the answer. At a
terminal it has editing, completion by Tab, and a history in
$XDG_STATE_HOME/tidemark/history (~/.local/state where that is not set), which
keeps nothing that has the word PASSWORD. \help shows its commands.

From a pipe it reads statements without a prompt, and exits with 1 if any failed.`
}

// Run runs the shell.
func (c *shellCommand) Run(s *surroundings) error {
	log := slog.New(slog.NewTextHandler(s.errors, &slog.HandlerOptions{Level: slog.LevelError}))
	terminal := isTerminal(s.in) && isTerminal(s.out)
	print := newPrinter(s.out, s.out)
	options := shell.Options{
		Where:       c.where(),
		In:          s.in,
		Terminal:    terminal,
		Out:         s.out,
		Print:       func(answer session.Answer) { print.print("", answer) },
		PrintJSON:   func(answer session.Answer) { printJSON(s.out, answer) },
		Colour:      print.colour,
		Interrupted: s.interrupts.on,
		HistoryFile: historyFile(),
	}
	if c.JSON {
		options.Print = options.PrintJSON
	}
	if terminal {
		s.interrupts.take()
	}
	options.Namespace, options.Database, _ = strings.Cut(c.Use, "/")
	if c.URL != "" {
		// Asked for once: a session that is lost is opened again with it.
		signIn, err := c.signIn(s)
		if err != nil {
			return err
		}
		options.Open = func(ctx context.Context) (shell.Session, error) { return remote.Dial(ctx, c.URL, signIn) }
	} else {
		// The store stays open for as long as the shell is.
		opened, closeAll, err := c.open(s, log)
		if err != nil {
			return err
		}
		defer closeAll()
		options.Open = func(context.Context) (shell.Session, error) { return keptOpen{opened}, nil }
	}
	err := shell.Run(s.ctx, options)
	if errors.Is(err, shell.ErrFailed) {
		return exit(1)
	}
	return err
}

// keptOpen is a session that is closed with its store.
type keptOpen struct{ caller }

func (keptOpen) Close() {}

// where names what the shell is on.
func (c *shellCommand) where() string {
	switch {
	case c.URL != "":
		if u, err := url.Parse(c.URL); err == nil {
			return u.Redacted()
		}
		return "a node"
	case c.Postgres != "":
		return "PostgreSQL"
	case c.Data != "":
		return "the store in " + c.Data
	}
	return "a store in memory, which ends with the shell"
}

// historyFile is where what was typed is kept, "" where the user has no place
// for it.
func historyFile() string {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "tidemark", "history")
}

// isTerminal reports whether a stream ends at a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
