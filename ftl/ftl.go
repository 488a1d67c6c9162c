// Package ftl is what a module's Go source imports: topics, subscriptions and
// what a verb may do while it runs.
//
// A module is a folder with an ftl.toml that names it. It declares topics and
// subscriptions as package variables, and verbs, sinks and mappers as functions
// under directives:
//
//	//ftl:export
//	var Payins = ftl.RegisterTopic[Payin]("payins")
//
//	var receiptWriting = ftl.RegisterSubscription(Payins, "receiptWriting")
//
//	//ftl:verb
//	//ftl:ingress POST /payment
//	func Pay(ctx context.Context, req Payment) (Paid, error) { … Payins.Publish(ctx, event) … }
//
//	//ftl:subscribe receiptWriting
//	func WriteReceipt(ctx context.Context, event Payin) error { … ftl.Tx(ctx).Put(…) … }
//
// Package ftl/extract turns the source into a schema, the node provisions from
// that, and one binary a module (ftl/generate, ftl/runner) takes the calls.
// Tests run sinks in process (ftl/ftltest).
//
// Three ideas:
//
//   - What a verb may do hangs on its context: publish, take part in a
//     transaction, call another verb. A context that is no verb's can do none of
//     it, so no event is without an owner.
//   - An event is stored as the JSON that encoding/json writes of it, as values:
//     statements, the console and other languages read the same fields. Who
//     published it (caller), for which request (request) and in which trace
//     (traceparent, tracestate) travels beside it, in the message's headers.
//   - Nothing here knows the transport: not where the store is, and not how a
//     topic is kept.
package ftl

import (
	"context"
	"log/slog"

	"github.com/tidemarkdb/tidemark/ftl/internal/call"
)

// CatchRequest is what a catch verb takes: an event that a sink or a mapper
// failed on at its last attempt.
type CatchRequest[Event any] struct {
	// Verb is the sink or mapper that failed, as payments.processPayin.
	Verb string `json:"verb"`
	// RequestType is the type of the event in the schema, as payments.Payin.
	RequestType string `json:"requestType"`
	// Request is the event.
	Request Event `json:"request"`
	// Error is what the last attempt failed with.
	Error string `json:"error"`
	// Attempts is how many attempts there were.
	Attempts int `json:"attempts"`
}

// Verb returns the verb that runs, as payments.payin, "" outside one.
func Verb(ctx context.Context) string {
	if c := call.From(ctx); c != nil {
		return c.Name()
	}
	return ""
}

// Caller returns the verb that caused the one that runs: the one that published
// the event or made the call. It is "" for a request from outside.
func Caller(ctx context.Context) string {
	if c := call.From(ctx); c != nil {
		return c.Caller
	}
	return ""
}

// RequestID returns the request that the running verb is part of: the one that
// came in from outside, through however many events and verbs.
func RequestID(ctx context.Context) string {
	if c := call.From(ctx); c != nil {
		return c.Request
	}
	return ""
}

// Attempt returns how often the event was tried, this time included; 1 where no
// event is handled.
func Attempt(ctx context.Context) int {
	if c := call.From(ctx); c != nil && c.Attempt > 0 {
		return c.Attempt
	}
	return 1
}

// Logger returns a logger whose lines name the verb and the request that they
// belong to.
func Logger(ctx context.Context) *slog.Logger {
	if c := call.From(ctx); c != nil {
		return c.Log().With("verb", c.Name(), "request", c.Request)
	}
	return slog.Default()
}
