package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tidemarkdb/tidemark/ftl/extract"
)

// ftlSchemaCommand is tidemark ftl schema.
type ftlSchemaCommand struct {
	Dirs []string `arg:"" optional:"" default:"." name:"dir" help:"Folders of modules, each with an ftl.toml, or folders above them."`
}

// Help is the manual of the command.
func (ftlSchemaCommand) Help() string {
	return `Prints what the modules declare, as text that parses back to itself. What is
wrong with the source is printed instead, as ftl check does.

Exit status: 0, or 1 when something is wrong.`
}

// Run extracts the modules and prints their schema.
func (c *ftlSchemaCommand) Run(s *surroundings) error {
	modules, err := extractModules(s, c.Dirs)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(s.out, extract.SchemaOf(modules))
	return err
}

// ftlCheckCommand is tidemark ftl check.
type ftlCheckCommand struct {
	Dirs []string `arg:"" optional:"" default:"." name:"dir" help:"Folders of modules, each with an ftl.toml, or folders above them."`
}

// Help is the manual of the command.
func (ftlCheckCommand) Help() string {
	return `Prints what is wrong with the modules' source, each with file, line, what would
have been accepted, and the line underlined.

Exit status: 0, or 1 when something is wrong.`
}

// Run extracts the modules and prints what is wrong, or what was checked.
func (c *ftlCheckCommand) Run(s *surroundings) error {
	modules, err := extractModules(s, c.Dirs)
	if err != nil {
		return err
	}
	var names []string
	for _, m := range modules {
		names = append(names, m.Schema.Name)
	}
	_, err = fmt.Fprintf(s.out, "nothing is wrong with %s\n", strings.Join(names, ", "))
	return err
}

// extractModules extracts the modules in folders. What is wrong with their
// source it prints, and returns the status to exit with.
func extractModules(s *surroundings, dirs []string) ([]*extract.Module, error) {
	found, err := extract.Find(dirs...)
	if err != nil {
		return nil, err
	}
	modules, err := extract.Extract(s.ctx, found...)
	var wrong extract.Diagnostics
	if !errors.As(err, &wrong) {
		return modules, err
	}
	base, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	fmt.Fprint(s.errors, wrong.Render(base))
	return nil, exit(1)
}
