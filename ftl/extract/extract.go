// Package extract reads what a module declares from its Go source, and says
// where in the source something is wrong.
//
// A module is the Go package in a folder with an ftl.toml that names it;
// packages in folders below may hold types and functions, but no declarations.
// Each construct has a file and an analyser of its own (golang.org/x/tools/go/
// analysis): directives, topics, subscriptions, verbs, sinks, mappers, what is
// published, data types. They find declarations and check what only the source
// can show. The last one, module, puts them together and asks package schema
// for its Problems, so each rule is written once; a part of a declaration leads
// a problem back to its place.
//
// # Directives
//
// A directive is a comment line right above a declaration, without a space
// after the slashes, as Go's own are:
//
//	//ftl:export                            over a topic: other modules may subscribe to it
//	//ftl:verb                              over a function: a verb
//	//ftl:ingress METHOD /path/{parameter}  over a function: a verb that is served over HTTP
//	//ftl:subscribe subscription            over a function: a sink
//	//ftl:map subscription topic            over a function: a mapper
//	//ftl:retry [retries] minBackoff [maxBackoff] [catch verb]
//	//ftl:deadletter topic                  over a sink or a mapper
//
// //ftl:verb may stand beside any of them.
//
// # What is published
//
// A verb publishes to each topic that its body mentions, or that of a function
// it can reach in the package. Reaching follows calls, functions that are taken
// as values, and methods behind an interface; it may find more than happens, and
// misses only what reflection calls.
//
// # Speed
//
// Only the modules' packages are read from source; what they import comes from
// the build cache as export data. A topic of another module is found through
// the position of its variable, in that one file.
package extract

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// Module is a module as it was found in source.
type Module struct {
	Schema *schema.Module
	// Dir is the absolute folder of ftl.toml.
	Dir string
	// ImportPath and Package are the path and the name of the Go package.
	ImportPath, Package string
	// Functions are the Go functions of the verbs, sinks and mappers, by the
	// names in the schema.
	Functions map[string]string

	// served is where the directives stand that have verbs served.
	served map[*schema.Verb]Diagnostic
}

// Extract reads the modules in folders, each of which holds an ftl.toml. The
// modules are in the order of the folders. What is wrong with the source is
// returned as Diagnostics; any other error is of the surroundings: a folder or
// the go command.
func Extract(ctx context.Context, dirs ...string) ([]*Module, error) {
	sources, err := load(ctx, dirs)
	if err != nil {
		return nil, err
	}
	return extract(sources)
}

// extract analyses what was loaded. What does not compile is not analysed.
func extract(sources []*source) ([]*Module, error) {
	var found Diagnostics
	for _, s := range sources {
		found = append(found, s.goErrors()...)
	}
	if len(found) > 0 {
		return nil, found.sorted()
	}
	var modules []*Module
	first := map[string]*source{}
	for _, s := range sources {
		if earlier, taken := first[s.config.Module]; taken {
			found = append(found, s.sameName(earlier))
			continue
		}
		first[s.config.Module] = s
		module, diagnostics := s.analyse()
		found = append(found, diagnostics...)
		if module != nil {
			modules = append(modules, module)
		}
	}
	found = append(found, overlaps(modules)...)
	if len(found) > 0 {
		return nil, found.sorted()
	}
	return modules, nil
}

// overlaps says of verbs of different modules that one request fits, at both.
func overlaps(modules []*Module) (found Diagnostics) {
	for _, o := range SchemaOf(modules).Overlaps() {
		for _, m := range modules {
			for _, verb := range []*schema.Verb{o.FirstVerb, o.SecondVerb} {
				if at, served := m.served[verb]; served {
					at.Message = fault.Of(o.Err()).Message
					found = append(found, at)
				}
			}
		}
	}
	return found
}

// sameName says that another module has the name of s.
func (s *source) sameName(earlier *source) Diagnostic {
	where, err := filepath.Rel(s.dir, earlier.dir)
	if err != nil {
		where = earlier.dir
	}
	return Diagnostic{
		Position: s.config.position(),
		Message:  fmt.Sprintf("a module in %s is called %s too; give one of them another name", where, s.config.Module),
	}
}

// SchemaOf returns the schema of modules together.
func SchemaOf(modules []*Module) *schema.Schema {
	s := &schema.Schema{}
	for _, m := range modules {
		s.Modules = append(s.Modules, m.Schema)
	}
	return s
}

// Find returns the folders of the modules in the given ones: each that has an
// ftl.toml, and otherwise those below it that do. Folders that Go leaves out
// (testdata, vendor, those that begin with . or _) are not looked into.
func Find(dirs ...string) ([]string, error) {
	var found []string
	for _, dir := range dirs {
		absolute, err := resolve(dir)
		if err != nil {
			return nil, err
		}
		below, err := findBelow(absolute)
		if err != nil {
			return nil, err
		}
		if len(below) == 0 {
			return nil, noModule(dir)
		}
		found = append(found, below...)
	}
	return unique(found), nil
}
