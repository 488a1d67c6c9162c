package ftltest

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/value"
)

// readDirectives reads from the source how a sink or mapper is retried, and what
// takes the events that it gives up on. (That they are right is the extractor's
// to say.)
func (h *handler) readDirectives(ctx context.Context, m *module) error {
	h.retry = schema.DefaultRetry
	comments, err := commentsOver(h.function)
	if err != nil {
		return err
	}
	name := m.ModuleOf(h.function.Place)
	for _, comment := range comments {
		words := strings.Fields(comment)
		switch words[0] {
		case "//ftl:retry":
			if h.retry, err = schema.ParseRetry(words[1:], name); err != nil {
				return fault.New(fault.InvalidClause, "the directive %s over %s: %w", comment, h.function, err)
			}
		case "//ftl:deadletter":
			if len(words) == 2 {
				h.deadLetter = ftlwire.StoreTopic(name, words[1])
			}
		}
	}
	if _, provided := m.catches[h.retry.Catch.String()]; h.retry.Catch != (schema.Ref{}) && !provided {
		return errNoCatch(*h, h.retry.Catch)
	}
	if h.deadLetter == "" {
		return nil
	}
	_, err = m.database.Exec(ctx, "DEFINE TOPIC IF NOT EXISTS "+value.QuoteIdentifier(h.deadLetter), nil)
	return err
}

// commentsOver are the lines of comment over a function; none over a function
// literal.
func commentsOver(f call.Function) ([]string, error) {
	file := f.File
	if _, err := os.Stat(file); err != nil {
		// A binary built with -trimpath has the file's path without its root; a
		// test runs in its package's folder.
		file = filepath.Base(file)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fault.New(fault.NotFound, "the source of %s, whose directives say how it is retried, cannot be read: %w", f, err)
	}
	for _, declaration := range parsed.Decls {
		declared, ok := declaration.(*ast.FuncDecl)
		if !ok || declared.Recv != nil || declared.Name.Name != f.Name || declared.Doc == nil {
			continue
		}
		var lines []string
		for _, comment := range declared.Doc.List {
			lines = append(lines, comment.Text)
		}
		return lines, nil
	}
	return nil, nil
}
