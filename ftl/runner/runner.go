// Package runner is what a module's binary does: it takes calls from the nodes
// it is connected to, serves the module's ingress over HTTP, and runs the verbs.
// The generated main (ftl/generate) hands it the module's functions and calls
// Main; nothing else imports it.
//
// Three ideas:
//
//   - A node hands the runner an event and decides what becomes of it; the
//     runner says how the verb ended. What a verb writes through ftl.Tx commits
//     here, with the acknowledgement in it, and the node is told that it has.
//   - A connection that is lost takes its calls with it: their contexts end, and
//     the node counts the attempts. The runner connects again on its own.
//   - A runner that is told to stop takes nothing new, finishes what it holds,
//     and leaves. A second signal ends it at once.
package runner

import (
	"context"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/internal/event"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/value"
)

// Module is a module as its generated main knows it.
type Module struct {
	// Name is the module's, as in ftl.toml.
	Name string
	// Schema is the module's text.
	Schema string
	// Package is the import path of the Go package that declares it.
	Package string
	// Functions are the module's verbs, sinks and mappers.
	Functions []Function
}

// Function is a function of the module, under its name in the schema.
type Function struct {
	name string
	call func(ctx context.Context, request value.Value) (value.Value, error)
}

// Verb is a function that takes a request and answers: a verb or a mapper.
func Verb[Request, Response any](name string, f func(context.Context, Request) (Response, error)) Function {
	return Function{name, func(ctx context.Context, v value.Value) (value.Value, error) {
		var request Request
		if err := event.Decode(v, &request); err != nil {
			return value.Value{}, err
		}
		response, err := f(ctx, request)
		if err != nil {
			return value.Value{}, err
		}
		return event.Encode(response)
	}}
}

// Sink is a function that takes a request and answers nothing.
func Sink[Request any](name string, f func(context.Context, Request) error) Function {
	return Function{name, func(ctx context.Context, v value.Value) (value.Value, error) {
		var request Request
		if err := event.Decode(v, &request); err != nil {
			return value.Value{}, err
		}
		return value.None(), f(ctx, request)
	}}
}

// Source is a function that takes nothing and answers.
func Source[Response any](name string, f func(context.Context) (Response, error)) Function {
	return Function{name, func(ctx context.Context, _ value.Value) (value.Value, error) {
		response, err := f(ctx)
		if err != nil {
			return value.Value{}, err
		}
		return event.Encode(response)
	}}
}

// Empty is a function that takes nothing and answers nothing.
func Empty(name string, f func(context.Context) error) Function {
	return Function{name, func(ctx context.Context, _ value.Value) (value.Value, error) {
		return value.None(), f(ctx)
	}}
}

// module is a Module that was looked at.
type module struct {
	Module
	schema    *schema.Schema
	declared  *schema.Module
	functions map[string]Function
}

// check looks at what the generated main says. An error is the generator's, or
// a main's that was not generated again.
func (m Module) check() (*module, error) {
	s, err := schema.Parse(m.Schema)
	if err != nil {
		return nil, err
	}
	checked := &module{Module: m, schema: s, declared: s.Module(m.Name), functions: map[string]Function{}}
	if checked.declared == nil {
		return nil, fault.New(fault.NotFound, "the schema does not have the module %s: generate its main again", m.Name)
	}
	for _, f := range m.Functions {
		checked.functions[f.name] = f
	}
	for _, name := range checked.names() {
		if _, ok := checked.functions[name]; !ok {
			return nil, fault.New(fault.NotFound, "the schema has %s.%s and the binary does not: generate its main again", m.Name, name)
		}
	}
	return checked, nil
}

// names are all functions that the schema has.
func (m *module) names() []string {
	var names []string
	for _, verb := range m.declared.Verbs {
		names = append(names, verb.Name)
	}
	for _, sink := range m.declared.Sinks {
		names = append(names, sink.Name)
	}
	for _, mapper := range m.declared.Mappers {
		names = append(names, mapper.Name)
	}
	return names
}
