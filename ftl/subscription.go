package ftl

import "github.com/tidemarkdb/tidemark/ftl/internal/call"

// Subscription is a place in a topic, from which each event goes to one of the
// subscription's sinks, or to its mapper. Its package variable carries its name.
type Subscription[E any] struct{ declared call.Subscription }

// SubscriptionOption says more about a subscription.
type SubscriptionOption func(*call.Subscription)

// FromLatest starts a subscription at the topic's end when it is first
// deployed. Without it, it starts with the topic's first event.
var FromLatest SubscriptionOption = func(s *call.Subscription) { s.FromLatest = true }

// Parallel lets n events of a subscription be handled at once, in no order: 2 to
// 10,000. Without it one is handled after the other, in the topic's order.
func Parallel(n int) SubscriptionOption { return func(s *call.Subscription) { s.Parallel = n } }

// RegisterSubscription declares a subscription to a topic of the module, or to
// an exported one of another.
func RegisterSubscription[E any](topic *Topic[E], name string, options ...SubscriptionOption) *Subscription[E] {
	s := &Subscription[E]{declared: call.Subscription{Name: name, Place: call.Caller(1), Topic: topic.declared}}
	for _, option := range options {
		option(&s.declared)
	}
	return s
}

// Name is the subscription's name in its module.
func (s *Subscription[E]) Name() string { return s.declared.Name }

// Declaration is what was declared, for the packages of ftl that run a module.
func (s *Subscription[E]) Declaration() call.Subscription { return s.declared }
