// Package meter is the module that bench measures: it publishes events as it is
// told, and its sinks record when each was handled.
package meter

import (
	"context"
	"strings"

	"github.com/tidemarkdb/tidemark/bench/load"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl"
)

// Event is as large as the messages of bench's other rows.
type Event struct {
	// Stamp is when it was published, in nanoseconds since 1970.
	Stamp   int64  `json:"stamp"`
	Padding string `json:"padding"`
}

// padding makes about 128 bytes of an event.
var padding = strings.Repeat("x", 90)

// The topics: one whose events are handled in parallel, one whose events are
// handled in order, and one for the many subscriptions that bench adds to the
// module.
var (
	parallel = ftl.RegisterTopic[Event]("parallel")
	ordered  = ftl.RegisterTopic[Event]("ordered")
	many     = ftl.RegisterTopic[Event]("many")

	ParallelTaking = ftl.RegisterSubscription(parallel, "parallelTaking", ftl.Parallel(1000))
	OrderedTaking  = ftl.RegisterSubscription(ordered, "orderedTaking")
)

var recorder load.Recorder

// Order is what to publish where.
type Order struct {
	Topic string    `json:"topic"`
	Plan  load.Plan `json:"plan"`
}

// Published is how many events an order has published.
type Published struct {
	Events int `json:"events"`
}

// Publish publishes events, and begins to record.
//
//ftl:verb
//ftl:ingress POST /publish
func Publish(ctx context.Context, order Order) (Published, error) {
	topics := map[string]*ftl.Topic[Event]{"parallel": parallel, "ordered": ordered, "many": many}
	topic := topics[order.Topic]
	if topic == nil {
		return Published{}, ftl.Refuse(fault.NotFound, "there is no topic %s", order.Topic)
	}
	events, err := order.Plan.Run(ctx, &recorder, func(ctx context.Context, stamp int64) error {
		return topic.Publish(ctx, Event{Stamp: stamp, Padding: padding})
	})
	return Published{events}, err
}

// Handled counts what was handled since the last order.
//
//ftl:verb
//ftl:ingress GET /handled
func Handled(context.Context) (Published, error) {
	return Published{recorder.HandledCount()}, nil
}

// Report tells what was recorded since the last order.
//
//ftl:verb
//ftl:ingress GET /report
func Report(context.Context) (load.Report, error) { return recorder.Report(), nil }

// TakeParallel takes the events of parallel.
//
//ftl:subscribe parallelTaking
func TakeParallel(_ context.Context, event Event) error { return take(event) }

// TakeOrdered takes the events of ordered.
//
//ftl:subscribe orderedTaking
func TakeOrdered(_ context.Context, event Event) error { return take(event) }

func take(event Event) error {
	recorder.Handled(event.Stamp)
	return nil
}
