// Package ftlwire is what a node and the runner of a module say to each other.
// It knows the form of it and nothing of what either does with it.
//
// A runner is one process of a deployment of a module. It opens a WebSocket to
// the path /ftl of every node that it is given, says Hello, and is called from
// then on:
//
//	runner                                        node
//	Hello  database, module, deployment, credit ─►
//	                                            ◄─ Welcome, or Refused and the end
//	                                            ◄─ Call   a sink, mapper or catch verb with an event
//	Done   its result, or its error             ─►
//	                                            ◄─ Cancel of a call whose outcome is not awaited any more
//	                                            ◄─ Drain  nothing will be called any more
//	Draining                                    ─►
//
// Three ideas:
//
//   - A call names one delivery of one message (topic, subscription, position,
//     delivery). Whatever settles it names the same delivery, so what came too
//     late settles nothing.
//   - Credit is of a subscription: a runner takes so many calls of one
//     subscription at once, so that one which is slow uses up its own. A runner
//     therefore never waits before it reads on.
//   - Whoever goes away says so first. After Drain or Draining no call is sent;
//     the runner finishes what it holds and closes. A connection that ends
//     otherwise has lost what it held in the middle.
//
// A message of the WebSocket is a CBOR array of frames, as many as were waiting
// to be sent.
package ftlwire

import (
	"github.com/fxamacker/cbor/v2"

	"github.com/tidemarkdb/tidemark/value"
)

// Path is where a node takes runners.
const Path = "/ftl"

// Frame is one thing said; exactly one field is set.
type Frame struct {
	Hello    *Hello    `cbor:"1,keyasint,omitempty"`
	Welcome  *Welcome  `cbor:"2,keyasint,omitempty"`
	Refused  *Refused  `cbor:"3,keyasint,omitempty"`
	Call     *Call     `cbor:"4,keyasint,omitempty"`
	Cancel   *Cancel   `cbor:"5,keyasint,omitempty"`
	Done     *Done     `cbor:"6,keyasint,omitempty"`
	Drain    *Drain    `cbor:"7,keyasint,omitempty"`
	Draining *Draining `cbor:"8,keyasint,omitempty"`
}

// Hello begins a connection: who the runner is.
type Hello struct {
	// Database is the database of the namespace ftl that the module is deployed
	// in.
	Database string `cbor:"database"`
	// Module and Deployment say which build of which module it runs.
	Module     string `cbor:"module"`
	Deployment string `cbor:"deployment"`
	// Credit is how many calls of one subscription the runner takes at once, at
	// least 1.
	Credit int `cbor:"credit"`
	// Ingress is the URL under which the runner serves its verbs over HTTP, ""
	// where it serves none.
	Ingress string `cbor:"ingress,omitempty"`
}

// Welcome says that the runner is taken.
type Welcome struct {
	// Node is the node's name, for people.
	Node string `cbor:"node"`
}

// Refused says that it is not, and ends the connection.
type Refused struct {
	// Kind is that of package fault, Message what to do.
	Kind    string `cbor:"kind"`
	Message string `cbor:"message"`
	// Final says that the same runner will never be taken: its deployment was
	// superseded, or nobody provisioned it. Otherwise it may try again.
	Final bool `cbor:"final,omitempty"`
}

// Kind is what a call is of.
type Kind string

// The kinds of calls.
const (
	// Sink takes an event and answers nothing.
	Sink Kind = "sink"
	// Mapper takes an event and answers the event to append.
	Mapper Kind = "mapper"
	// Catch takes an event that was given up on (CatchRequest).
	Catch Kind = "catch"
)

// Call is one verb to run with one event.
type Call struct {
	// ID names the call on its connection; it is never used again there.
	ID   uint64 `cbor:"1,keyasint"`
	Kind Kind   `cbor:"2,keyasint"`
	// Verb is the verb's name in the runner's module.
	Verb string `cbor:"3,keyasint"`

	// Subscription is the name in the module, Group that of the store's group,
	// Topic that of the store's topic, Position and Delivery which hand-out of
	// which of its messages this is: what a sink's transaction acknowledges.
	Subscription string `cbor:"4,keyasint"`
	Group        string `cbor:"5,keyasint"`
	Topic        string `cbor:"6,keyasint"`
	Position     uint64 `cbor:"7,keyasint"`
	Delivery     uint32 `cbor:"8,keyasint"`
	// Attempt counts the attempts at the event, from 1; of a catch verb its
	// own.
	Attempt int `cbor:"9,keyasint"`

	// Event is the event in CBOR, as the store has it.
	Event cbor.RawMessage `cbor:"10,keyasint"`
	// Caught is what a catch verb is told beside the event, nil for others.
	Caught *Caught `cbor:"11,keyasint,omitempty"`
	// Headers are those of the event (caller, request, traceparent, tracestate)
	// in CBOR, as the store has them; nil for none.
	Headers cbor.RawMessage `cbor:"12,keyasint,omitempty"`
}

// Value decodes the event.
func (c *Call) Value() (value.Value, error) { return value.DecodeCBOR(c.Event) }

// EventHeaders decodes the event's headers. Those that do not decode are none, as
// for other readers: they are no reason to withhold an event.
func (c *Call) EventHeaders() (headers map[string]string) {
	if len(c.Headers) > 0 {
		_ = cbor.Unmarshal(c.Headers, &headers)
	}
	return headers
}

// Caught is how the event of a catch verb failed.
type Caught struct {
	// Verb is the sink or mapper that failed, as module.verb; RequestType is
	// its event's type in the schema.
	Verb        string `cbor:"1,keyasint"`
	RequestType string `cbor:"2,keyasint"`
	// Error is what the last of the Attempts failed with.
	Error    string `cbor:"3,keyasint"`
	Attempts int    `cbor:"4,keyasint"`
}

// Done is the outcome of a call.
type Done struct {
	ID uint64 `cbor:"1,keyasint"`
	// Result is what a mapper returned, in CBOR.
	Result cbor.RawMessage `cbor:"2,keyasint,omitempty"`
	// Headers are those of the event that Result is: caller, request,
	// traceparent, tracestate.
	Headers map[string]string `cbor:"3,keyasint,omitempty"`
	// Settled says that the acknowledgement is committed already, in the
	// transaction of the verb.
	Settled bool `cbor:"4,keyasint,omitempty"`
	// Error is nil for a verb that returned no error.
	Error *Error `cbor:"5,keyasint,omitempty"`
}

// Error is what a verb failed with.
type Error struct {
	Message string `cbor:"1,keyasint"`
	// Panic says that the verb did not return.
	Panic bool `cbor:"2,keyasint,omitempty"`
	// NotRun says that the runner did not begin the call, as when it drains:
	// that is no attempt.
	NotRun bool `cbor:"3,keyasint,omitempty"`
}

// Cancel says that the outcome of a call is not awaited any more: an operator
// moved the subscription on, or another holds the message. The runner cancels
// the verb's context; it may still answer Done.
type Cancel struct {
	ID uint64 `cbor:"id"`
}

// Drain says that the node calls no more.
type Drain struct {
	// Superseded says that another deployment has taken over; otherwise the
	// node goes away, and the runner connects again later.
	Superseded bool `cbor:"superseded,omitempty"`
}

// Draining says that the runner goes away: it takes no more calls, and closes
// when it has answered those that it holds.
type Draining struct{}
