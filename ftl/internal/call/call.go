// Package call is what hangs on the context of a verb that runs: which verb it
// is, for which request, and what it may reach. Package ftl hands it to module
// code, and who runs verbs (ftl/runner in a process, ftl/ftltest in a test)
// makes one for each and runs the verb with Run.
package call

import (
	"context"
	"log/slog"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/value"
)

// Call is one verb that runs, or a test that calls verbs.
type Call struct {
	// Module and Verb name the verb.
	Module, Verb string
	// Caller is the verb that caused the call, as module.verb; "" for a request
	// from outside.
	Caller string
	// Request is the request from outside that the call is part of.
	Request string
	// Attempt counts the attempts at the event, from 1; 0 without an event.
	Attempt int
	// Test lets a test publish to every topic and call every verb.
	Test bool
	// Surroundings are the process or the test that it runs in.
	Surroundings Surroundings

	// transaction is shared with the calls that the call makes; nil in a test.
	transaction *transaction
	// fake stands in for the verb, nil for none.
	fake any
}

// Surroundings are what runs a module: a process of it, or a test.
type Surroundings interface {
	// ModuleOf is the module that a place in Go source belongs to, "" for none.
	ModuleOf(p Place) string
	// Database is where the module's topics are.
	Database() *client.Database
	// StoreTopic is the name of a topic in the store.
	StoreTopic(ctx context.Context, t Topic) (string, error)
	// Fake is the function that stands in for a verb, nil for none.
	Fake(f Function) any
	// Log is the logger that the module's lines go to.
	Log() *slog.Logger
}

// key is the key of a context's call.
type key struct{}

// With returns a context in which the call runs.
func With(ctx context.Context, c *Call) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the call that runs in a context, nil for none.
func From(ctx context.Context) *Call {
	c, _ := ctx.Value(key{}).(*Call)
	return c
}

// Name is the verb's name as others see it: module.verb.
func (c *Call) Name() string { return schema.Ref{Module: c.Module, Name: c.Verb}.String() }

// Log is where lines about the call go.
func (c *Call) Log() *slog.Logger { return c.Surroundings.Log() }

// Fake is the function that stands in for the verb in a test, nil for none.
func (c *Call) Fake() any { return c.fake }

// Publish appends an event to a topic: in the call's transaction where one was
// wanted, otherwise in a commit of its own.
func (c *Call) Publish(ctx context.Context, t Topic, event value.Value) error {
	owner := c.Surroundings.ModuleOf(t.Place)
	if owner != c.Module && !c.Test {
		return fault.New(fault.NotAllowed, "topic %s is declared by the package %s; module %s publishes to its own topics only: call a verb of that module, or publish to a topic of this one", t.Name, t.Package, c.Module)
	}
	if _, isObject := event.AsObject(); !isObject {
		return fault.New(fault.TypeMismatch, "an event of topic %s encodes as %s; an event is a struct, which encodes as an object", t.Name, event.Kind())
	}
	topic, err := c.Surroundings.StoreTopic(ctx, t)
	if err != nil {
		return err
	}
	if c.transaction.isWanted() {
		return c.Transact(ctx, func(ctx context.Context, tx *client.Tx) error { return tx.Append(ctx, topic, event) })
	}
	_, _, err = c.Surroundings.Database().Topic(topic).Append(client.WithHeaders(ctx, c.Headers(ctx)), event)
	return err
}

// Inner is the call of another verb by this one.
func (c *Call) Inner(f Function) (*Call, error) {
	module := c.Surroundings.ModuleOf(f.Place)
	if module != c.Module && !c.Test {
		return nil, fault.New(fault.NotAllowed, "%s is no verb of module %s: a verb calls verbs of its own module only; publish an event for the other", f, c.Module)
	}
	inner := *c
	inner.Module, inner.Verb, inner.Caller, inner.Test = module, f.Verb(), c.Name(), false
	inner.fake = c.Surroundings.Fake(f)
	return &inner, nil
}
