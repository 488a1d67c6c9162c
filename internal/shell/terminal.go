package shell

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/reeflective/readline"
)

// terminal reads what is typed, with editing, history and completion.
type terminal struct {
	shell  *Shell
	editor *readline.Shell
}

func newTerminal(s *Shell) *terminal {
	editor := readline.NewShell()
	// The terminal is not asked where its cursor is: one that does not answer
	// would hold the shell up.
	_ = editor.Config.Set("cursor-position-probe", false)
	t := &terminal{shell: s, editor: editor}
	editor.Prompt.Primary(t.prompt)
	editor.Prompt.Secondary(func() string { return strings.Repeat(" ", max(len(t.place())-1, 0)) + "…> " })
	editor.AcceptMultiline = func(line []rune) bool { return isWhole(string(line)) }
	if s.options.Colour {
		editor.SyntaxHighlighter = func(line []rune) string { return highlight(string(line)) }
	}
	editor.History.Delete()
	editor.History.Add("statements", openHistory(s.options.HistoryFile))
	editor.Completer = t.complete
	return t
}

// place is what is in use, as the prompt shows it.
func (t *terminal) place() string {
	s := t.shell
	place := s.namespace
	if s.database != "" {
		place += "/" + s.database
	}
	if place == "" {
		place = "tidemark"
	}
	if s.inTransaction {
		place += "*"
	}
	return place
}

func (t *terminal) prompt() string { return t.shell.paint(blue, t.place()) + "> " }

func (t *terminal) read(context.Context) (string, error) {
	input, err := t.editor.Readline()
	switch {
	case errors.Is(err, readline.ErrInterrupt):
		return "", errInterrupted
	case errors.Is(err, io.EOF) && strings.TrimSpace(input) != "":
		return input, nil
	}
	return input, err
}

func (t *terminal) complete(line []rune, cursor int) readline.Completions {
	before := string(line[:min(cursor, len(line))])
	candidates, from := t.shell.complete(before)
	raw := make([]readline.Completion, len(candidates))
	for i, c := range candidates {
		raw[i] = readline.Completion{Value: c.text, Display: c.text, Description: c.what, Tag: c.what + "s"}
	}
	completions := readline.CompleteRaw(raw)
	completions.PREFIX = before[from:]
	return completions
}
