package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
)

// runCommand is tidemark run.
type runCommand struct {
	anySource
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

  tidemark run script.tide                   in memory
  tidemark run --data ./store a.tide         in a folder that keeps what it wrote
  tidemark run --url ws://host:7420 a.tide   on a node
  echo "INFO FOR STORE;" | tidemark run -    from standard input`
}

// Run runs the scripts.
func (c *runCommand) Run(s *surroundings) error {
	log := slog.New(slog.NewTextHandler(s.errors, &slog.HandlerOptions{Level: slog.LevelWarn}))
	runner, closeAll, err := c.open(s, log)
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
