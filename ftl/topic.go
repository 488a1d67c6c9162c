package ftl

import (
	"context"
	"reflect"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
	"github.com/tidemarkdb/tidemark/ftl/internal/event"
)

// Topic is a topic of a module, of events of one type. It is declared once, by
// a package variable that carries its name:
//
//	var payins = ftl.RegisterTopic[Payin]("payins")
type Topic[E any] struct{ declared call.Topic }

// TopicOption says more about a topic.
type TopicOption func(*call.Topic)

// Retain keeps a topic's events for a time. Without it they are kept for ever.
// A subscription that has not passed an event by then loses it, which is counted
// as lapsed.
func Retain(d time.Duration) TopicOption { return func(t *call.Topic) { t.Retain = d } }

// RetainBytes keeps as many bytes of a topic's newest events. Without it there
// is no bound.
func RetainBytes(n int64) TopicOption { return func(t *call.Topic) { t.RetainBytes = n } }

// RegisterTopic declares a topic of the module whose source calls it. E is a
// struct that encoding/json can encode. The name is a lowerCamel literal, and
// the variable's own; a topic that other modules subscribe to stands under
// //ftl:export, in a variable with a capital letter.
func RegisterTopic[E any](name string, options ...TopicOption) *Topic[E] {
	t := &Topic[E]{declared: call.Topic{Name: name, Place: call.Caller(1), Event: reflect.TypeFor[E]()}}
	for _, option := range options {
		option(&t.declared)
	}
	return t
}

// Name is the topic's name in its module.
func (t *Topic[E]) Name() string { return t.declared.Name }

// Declaration is what was declared, for the packages of ftl that run a module.
func (t *Topic[E]) Declaration() call.Topic { return t.declared }

// Publish appends an event to the topic, as encoding/json writes it. In a verb
// that has begun a transaction (Tx), the event is part of it: it is published
// when the verb returns nil, and not at all otherwise. In any other it is in the
// topic when Publish returns.
//
// Only the topic's own module publishes to it: fault.NotAllowed says that
// another tried, or that ctx is not a verb's. fault.Unavailable says that the
// event may have been published or not; publishing it again may publish it
// twice.
func (t *Topic[E]) Publish(ctx context.Context, e E) error {
	c := call.From(ctx)
	if c == nil {
		return fault.New(fault.NotAllowed, "an event of topic %s is published by a verb: pass Publish the context that the verb was given", t.declared.Name)
	}
	encoded, err := event.Encode(e)
	if err != nil {
		return err
	}
	return c.Publish(ctx, t.declared, encoded)
}
