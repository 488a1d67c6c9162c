// Package shell is the interactive shell: it reads statements until they end
// with a semicolon, runs them one after another in one session, and prints the
// answers. It knows how people type and nothing of how a statement runs.
//
// Two ideas:
//
//   - Lines come from a terminal, with a prompt, editing, history and
//     completion, or from a pipe, with none of it; the rest is the same.
//   - The session may be lost, with a node. It is opened again for the next
//     statement, in the namespace and database that were in use; what was open
//     in it is said to be gone.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// Session runs scripts: a session.Session, or one on a node.
type Session interface {
	RunScript(ctx context.Context, script *lang.Script, params map[string]value.Value, tell func(lang.Statement, session.Answer))
	Close()
}

// Losable is a Session that may be lost.
type Losable interface {
	// Lost is why the session is of no use any more, nil while it is.
	Lost() error
}

// Options are a shell's settings.
type Options struct {
	// Open opens a session: at the start, and where the one before was lost.
	Open func(ctx context.Context) (Session, error)
	// Namespace and Database are in use in a session that Open opens.
	Namespace, Database string
	// Where names what the session is on, for the greeting.
	Where string
	// In is where statements come from; with Terminal set it is not read.
	In io.Reader
	// Terminal says that standard input and output are a terminal to edit on.
	Terminal bool
	// Out is printed to.
	Out io.Writer
	// Print prints an answer to Out, and PrintJSON as one line of JSON.
	Print, PrintJSON func(session.Answer)
	// Colour says that Out takes colours.
	Colour bool
	// HistoryFile keeps what was typed at a terminal, "" for nothing.
	HistoryFile string
	// Interrupted calls something at every Ctrl-C until stop is called.
	Interrupted func(call func()) (stop func())
}

// Shell is a shell at work.
type Shell struct {
	options Options
	session Session
	lines   lines
	names   *names

	// namespace and database are in use; they are used again in a new session.
	namespace, database string
	// inTransaction says that a transaction is open in the session.
	inTransaction bool
	timing, json  bool
	// last is the statement that \watch runs again.
	last string
	// failed says that something of a pipe failed.
	failed bool
}

// lines are where input comes from.
type lines interface {
	// read returns the next input: whole statements, or one command. It returns
	// io.EOF at the end and errInterrupted where the line was given up.
	read(ctx context.Context) (string, error)
}

var errInterrupted = errors.New("interrupted")

// ErrFailed is returned by Run where a statement that came by a pipe failed; its
// answer was printed.
var ErrFailed = errors.New("a statement failed")

// Run reads and runs until the end of the input, or \q.
func Run(ctx context.Context, options Options) error {
	s := &Shell{options: options, names: newNames(), namespace: options.Namespace, database: options.Database}
	opened, err := options.Open(ctx)
	if err != nil {
		return err
	}
	s.session = opened
	defer func() {
		if s.session != nil {
			s.session.Close()
		}
	}()
	if options.Terminal {
		fmt.Fprintf(options.Out, "Tidemark, %s. A statement ends with ; and \\help shows what else there is.\n", options.Where)
		s.lines = newTerminal(s)
	} else {
		s.lines = newPipe(options.In)
	}
	for ctx.Err() == nil {
		input, err := s.lines.read(ctx)
		switch {
		case errors.Is(err, errInterrupted):
			continue
		case errors.Is(err, io.EOF):
			if options.Terminal {
				fmt.Fprintln(options.Out)
			}
			return s.outcome()
		case err != nil:
			return err
		}
		if s.take(ctx, input) {
			return s.outcome()
		}
	}
	return s.outcome()
}

func (s *Shell) outcome() error {
	if s.failed && !s.options.Terminal {
		return ErrFailed
	}
	return nil
}

// take runs an input, and reports whether it ends the shell.
func (s *Shell) take(ctx context.Context, input string) (quit bool) {
	trimmed := strings.TrimSpace(input)
	switch {
	case trimmed == "":
		return false
	case strings.HasPrefix(trimmed, `\`):
		return s.command(ctx, strings.TrimSuffix(trimmed, ";"))
	}
	s.run(ctx, input)
	s.last = input
	return false
}

// run runs statements until one is interrupted.
func (s *Shell) run(ctx context.Context, input string) {
	script, err := lang.Parse(input)
	if err != nil {
		s.show(session.Answer{Err: fault.Of(err)})
		return
	}
	if !s.reopen(ctx) {
		return
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	defer s.options.Interrupted(done)()
	started := time.Now()
	s.session.RunScript(ctx, script, nil, func(statement lang.Statement, answer session.Answer) {
		s.note(statement, answer)
		if ctx.Err() != nil && answer.Err != nil {
			return // All that comes after the one that was interrupted.
		}
		s.show(answer)
		if s.timing {
			fmt.Fprintf(s.options.Out, "%s\n", time.Since(started).Round(10*time.Microsecond))
		}
		started = time.Now()
	})
	if ctx.Err() != nil {
		s.giveUp()
	}
	s.checkLost()
}

// giveUp ends what was interrupted. A node would go on with it, and have the
// session wait: so that is given up, too.
func (s *Shell) giveUp() {
	s.failed = true
	if _, ok := s.session.(Losable); !ok {
		fmt.Fprintln(s.options.Out, s.paint(red, "cancelled"))
		return
	}
	s.session.Close()
	s.session = nil
	fmt.Fprintln(s.options.Out, s.paint(red, "cancelled, with the session; what the node had begun it may have finished"+s.rolledBack()))
}

// rolledBack says what becomes of the transaction of a session that is gone.
func (s *Shell) rolledBack() string {
	if !s.inTransaction {
		return ""
	}
	s.inTransaction = false
	return "; the transaction that was open is rolled back"
}

// show prints an answer.
func (s *Shell) show(answer session.Answer) {
	s.failed = s.failed || answer.Err != nil
	if s.json {
		s.options.PrintJSON(answer)
		return
	}
	s.options.Print(answer)
}

// note keeps what the session would not have after it was lost.
func (s *Shell) note(statement lang.Statement, answer session.Answer) {
	switch statement.(type) {
	case *lang.Begin:
		s.inTransaction = s.inTransaction || answer.Err == nil
		return
	case *lang.Commit, *lang.Cancel:
		s.inTransaction = false
		return
	}
	if answer.Err != nil {
		return
	}
	switch x := statement.(type) {
	case *lang.Use:
		if x.Kind == lang.Namespace {
			s.namespace, s.database = x.Name, ""
		} else {
			s.database = x.Name
		}
		s.names.forget()
	case *lang.Define, *lang.DefineTable, *lang.DefineTopic, *lang.DefineGroup, *lang.Drop, *lang.DropGroup:
		s.names.forget()
	}
}

// checkLost closes a session that was lost, and says what was lost with it.
func (s *Shell) checkLost() {
	losable, ok := s.session.(Losable)
	if !ok || losable.Lost() == nil {
		return
	}
	s.session.Close()
	s.session = nil
	fmt.Fprintln(s.options.Out, s.paint(yellow, "the session on "+s.options.Where+" was lost"+s.rolledBack()+"; the next statement opens another"))
}

// reopen opens a session where there is none, and reports whether there is one.
func (s *Shell) reopen(ctx context.Context) bool {
	if s.session != nil {
		return true
	}
	opened, err := s.options.Open(ctx)
	if err != nil {
		s.show(session.Answer{Err: fault.Of(err)})
		return false
	}
	s.session = opened
	fmt.Fprintln(s.options.Out, s.paint(yellow, "a new session on "+s.options.Where))
	if use := s.useStatements(); use != "" {
		if failed := s.quietly(ctx, use, nil); failed != nil {
			s.show(session.Answer{Err: failed})
		}
	}
	return true
}

// useStatements use what is in use.
func (s *Shell) useStatements() string {
	use := ""
	if s.namespace != "" {
		use = "USE NAMESPACE " + value.QuoteIdentifier(s.namespace) + ";"
	}
	if s.database != "" {
		use += "USE DATABASE " + value.QuoteIdentifier(s.database) + ";"
	}
	return use
}

// quietly runs statements of the shell's own and takes the last one's answer.
func (s *Shell) quietly(ctx context.Context, statements string, take func(value.Value)) *fault.Error {
	script, err := lang.Parse(statements)
	if err != nil {
		return fault.Of(err)
	}
	var failure *fault.Error
	var last value.Value
	s.session.RunScript(ctx, script, nil, func(_ lang.Statement, answer session.Answer) {
		if failure == nil {
			failure, last = answer.Err, answer.Value
		}
	})
	if failure == nil && take != nil {
		take(last)
	}
	return failure
}

// readFile runs the statements of a file.
func (s *Shell) readFile(ctx context.Context, name string) {
	text, err := os.ReadFile(name)
	if err != nil {
		s.show(session.Answer{Err: fault.Of(fault.New(fault.NotFound, "the file cannot be read: %w", err))})
		return
	}
	s.run(ctx, string(text))
}
