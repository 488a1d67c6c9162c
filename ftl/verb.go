package ftl

import (
	"context"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
)

// Call calls a verb of the same module from another. It differs from calling
// the function in what the call is seen as: ftl.Verb and ftl.Caller name it, as
// do the events that it publishes, and a test puts a fake in its place
// (ftltest.WhenVerb). It takes part in the caller's transaction. A test calls
// with it a verb that uses a transaction (Tx), which is then the call's own.
func Call[Request, Response any](ctx context.Context, verb func(context.Context, Request) (Response, error), request Request) (Response, error) {
	var none Response
	c := call.From(ctx)
	if c == nil {
		return none, fault.New(fault.NotAllowed, "a verb is called by a verb: pass ftl.Call the context that the verb was given")
	}
	inner, err := c.Inner(call.FunctionOf(verb))
	if err != nil {
		return none, err
	}
	if fake, ok := inner.Fake().(func(context.Context, Request) (Response, error)); ok {
		verb = fake
	}
	if !c.Test {
		return verb(call.With(ctx, inner), request)
	}
	response, _, err := call.Run(ctx, inner, func(ctx context.Context) (Response, error) { return verb(ctx, request) }, nil)
	return response, err
}

// Refuse returns an error that a verb means for its caller. Over HTTP its kind
// decides the status (fault.NotFound is 404, fault.InvalidClause 400) and the
// sentence is the answer's; of all other errors a caller learns only that there
// was one.
func Refuse(kind fault.Kind, format string, args ...any) error {
	return RefuseField(kind, "", format, args...)
}

// RefuseField is Refuse of a request for one of its fields, which is named as in
// JSON: customer, or lines[2].price. Over HTTP the answer names it too, as it does
// where a request does not fit its verb.
func RefuseField(kind fault.Kind, field, format string, args ...any) error {
	return &call.Refusal{Fault: fault.Of(fault.New(kind, format, args...)), Field: field}
}
