package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
)

// walkThrough is the script of the demo.
//
//go:embed demo.tide
var walkThrough string

// demoCommand is tidemark demo.
type demoCommand struct{}

// Help is the manual of the command.
func (demoCommand) Help() string {
	return `Runs a walk-through of topics on an embedded store in a temporary folder, and
prints every statement with its answer. Nothing is left behind. Some of the
statements are refused on purpose, to show what a refusal looks like.`
}

// Run runs the walk-through.
func (demoCommand) Run(s *surroundings) error {
	dir, err := os.MkdirTemp("", "tidemark-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := source{Data: dir}.openStore(s.ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	script, err := lang.Parse(walkThrough)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.out)
	print := newPrinter(out, s.out)
	fmt.Fprintf(out, "A store in %s, with fsync before every answer.\n\n", dir)
	caller := store.newSession()
	defer caller.Close()
	told := 0
	caller.RunScript(s.ctx, script, nil, func(statement lang.Statement, answer session.Answer) {
		printProse(out, walkThrough[told:statement.Span().Start])
		told = statement.Span().End
		print.print(script.Text(statement), answer)
		_ = out.Flush()
	})
	fmt.Fprintf(out, "That was the walk-through. \"tidemark run FILE\" runs a script of yours.\n")
	return out.Flush()
}

// printProse prints the comments that stand between two statements.
func printProse(out io.Writer, between string) {
	for line := range strings.Lines(between) {
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "-- "); ok {
			fmt.Fprintf(out, "%s\n\n", comment)
		}
	}
}
