// Package generate makes a module's binary: it writes the main that hands the
// module's functions to ftl/runner, and has the go command build it.
//
// The main stands in the folder .ftl of the module, which git ignores, so it
// imports what the module's own packages may. Generating again what is there
// already touches nothing.
package generate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	_ "embed"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/extract"
)

// Folder is the folder of a module that holds what is generated.
const Folder = ".ftl"

// Main returns the source of a module's main.
func Main(m *extract.Module) ([]byte, error) {
	data := mainData{Module: m, Schema: literal(m.Schema.String()), Bindings: bindings(m)}
	var text bytes.Buffer
	if err := mainTemplate.Execute(&text, data); err != nil {
		return nil, err
	}
	return format.Source(text.Bytes())
}

//go:embed main.go.tmpl
var mainText string

var mainTemplate = template.Must(template.New("main").Parse(mainText))

type mainData struct {
	*extract.Module
	// Schema is the module's text as Go source.
	Schema   string
	Bindings []binding
}

// binding hands a function to the runner, under its name in the schema and by
// its shape: Verb, Sink, Source or Empty.
type binding struct{ Shape, Verb, Function string }

// bindings are those of all functions of a module.
func bindings(m *extract.Module) (bound []binding) {
	bind := func(shape, verb string) { bound = append(bound, binding{shape, verb, m.Functions[verb]}) }
	for _, verb := range m.Schema.Verbs {
		switch {
		case verb.Request != nil && verb.Response != nil:
			bind("Verb", verb.Name)
		case verb.Request != nil:
			bind("Sink", verb.Name)
		case verb.Response != nil:
			bind("Source", verb.Name)
		default:
			bind("Empty", verb.Name)
		}
	}
	for _, sink := range m.Schema.Sinks {
		bind("Sink", sink.Name)
	}
	for _, mapper := range m.Schema.Mappers {
		bind("Verb", mapper.Name)
	}
	return bound
}

// literal is a text as Go source, with its lines where it can be.
func literal(text string) string {
	if strings.Contains(text, "`") {
		return strconv.Quote(text)
	}
	return "`" + text + "`"
}

// Write writes the main into the folder .ftl of the module's folder, where it is
// not there already.
func Write(m *extract.Module) error {
	source, err := Main(m)
	if err != nil {
		return err
	}
	folder := filepath.Join(m.Dir, Folder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	// What is in the folder, and this file, git ignores.
	if err := writeChanged(filepath.Join(folder, ".gitignore"), []byte("*\n")); err != nil {
		return err
	}
	return writeChanged(filepath.Join(folder, "main.go"), source)
}

func writeChanged(file string, content []byte) error {
	there, err := os.ReadFile(file)
	if err == nil && bytes.Equal(there, content) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// Build writes the main, has the go command build it, and returns the binary's
// path, which is in the same folder. What the compiler found is in the error, a
// fault.InvalidClause. flags are more flags of go build.
func Build(ctx context.Context, m *extract.Module, flags ...string) (binary string, err error) {
	if err := Write(m); err != nil {
		return "", err
	}
	binary = filepath.Join(m.Dir, Folder, m.Schema.Name)
	arguments := append([]string{"build", "-buildvcs=false", "-o", binary}, flags...)
	build := exec.CommandContext(ctx, "go", append(arguments, "./"+Folder)...)
	build.Dir = m.Dir
	output, err := build.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.As(err, &failed):
		return "", fault.New(fault.InvalidClause, "module %s does not build:\n%s", m.Schema.Name, bytes.TrimSpace(output))
	case err != nil:
		return "", fmt.Errorf("the go command, which builds modules, cannot be run: %w", err)
	}
	return binary, nil
}
