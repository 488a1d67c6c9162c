package schema

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// Problems returns what is wrong with the modules and between them, module by
// module, nil for a schema that may be deployed. The rules are FTL's, whatever
// language a module is written in.
func (s *Schema) Problems() []Problem {
	v := &validation{schema: s}
	seen := map[string]bool{}
	for _, m := range s.Modules {
		v.module = m
		if seen[m.Name] {
			v.report(m, PartName, "", "two modules are called %s", m.Name)
			continue
		}
		seen[m.Name] = true
		if err := CheckModuleName(m.Name); err != nil {
			v.report(m, PartName, "", "%s", fault.Of(err).Message)
		}
		v.names()
		each(m.Topics, v.topic)
		each(m.Subscriptions, v.subscription)
		each(m.Data, v.data)
		each(m.Verbs, v.verb)
		v.ingresses()
		each(m.Sinks, v.sink)
		each(m.Mappers, v.mapper)
		v.receivers()
	}
	return v.problems
}

// validation checks one module after the other.
type validation struct {
	schema   *Schema
	module   *Module
	problems []Problem
}

func (v *validation) report(declaration any, part Part, accepted, sentence string, args ...any) {
	v.problems = append(v.problems, Problem{
		Module: v.module.Name, Declaration: declaration, Part: part,
		Sentence: fmt.Sprintf(sentence, args...), Accepted: accepted,
	})
}

func each[D any](declarations []D, check func(D)) {
	for _, d := range declarations {
		check(d)
	}
}

// names checks that each name is one, and is given once.
func (v *validation) names() {
	kinds := map[string]string{}
	check := func(kind string, d declaration) {
		name := d.declared()
		if _, isData := d.(*Data); isData {
			if !isIdentifier(name) || len(name) > MaxNameBytes {
				v.report(d, PartName, "", "%q is no name of a data type", name)
			}
		} else if !IsName(name) {
			v.report(d, PartName, acceptedName(name), "%q is no name of a %s", name, kind)
		}
		if earlier, taken := kinds[name]; taken {
			v.report(d, PartName, "give one of them another name", "%s %s has the name of a %s: names are unique in a module", kind, name, earlier)
			return
		}
		kinds[name] = kind
	}
	m := v.module
	each(m.Topics, func(d *Topic) { check("topic", d) })
	each(m.Subscriptions, func(d *Subscription) { check("subscription", d) })
	each(m.Data, func(d *Data) { check("data type", d) })
	each(m.Verbs, func(d *Verb) { check("verb", d) })
	each(m.Sinks, func(d *Sink) { check("sink", d) })
	each(m.Mappers, func(d *Mapper) { check("mapper", d) })
}

func (v *validation) topic(t *Topic) {
	v.typeOf(t, PartEvent, "the event of topic "+t.Name, t.Event)
	if t.Retain < 0 || t.Retain > MaxDuration || t.Retain%time.Millisecond != 0 {
		v.report(t, PartRetain, "leave it out to keep events for ever", "topic %s retains events for %s; it may be from 1ms to %s, in whole milliseconds", t.Name, t.Retain, FormatDuration(MaxDuration))
	}
	if t.RetainBytes < 0 {
		v.report(t, PartRetain, "leave it out to keep all events", "topic %s retains %d bytes of events; it may be from 1", t.Name, t.RetainBytes)
	}
}

func (v *validation) subscription(s *Subscription) {
	if s.Parallel < 0 || s.Parallel > MaxParallel {
		v.report(s, PartParallel, "", "subscription %s has %d events with its sinks at once; it may be from 1 to %d", s.Name, s.Parallel, MaxParallel)
	}
	owner := v.schema.Module(s.Topic.Module)
	switch topic := v.schema.Topic(s.Topic); {
	case owner == nil:
		v.report(s, PartTopic, didYouMean("module", s.Topic.Module, namesOf(v.schema.Modules)), "subscription %s is to topic %s, of a module that does not exist", s.Name, s.Topic)
	case topic == nil:
		v.report(s, PartTopic, didYouMean("topic", s.Topic.Name, namesOf(owner.Topics)), "subscription %s is to topic %s, which does not exist", s.Name, s.Topic)
	case owner != v.module && !topic.Exported:
		v.report(s, PartTopic, "export it there with //ftl:export", "subscription %s is to topic %s of another module, which does not export it", s.Name, s.Topic)
	}
}

func (v *validation) data(d *Data) {
	seen := map[string]bool{}
	for _, f := range d.Fields {
		if seen[f.Name] {
			v.report(d, PartName, "", "data type %s has two fields named %q", d.Name, f.Name)
		}
		seen[f.Name] = true
		v.typeOf(d, PartName, "field "+f.Name+" of "+d.Name, f.Type)
	}
}

func (v *validation) verb(verb *Verb) {
	request := verb.Request
	if caught, ok := request.(CatchRequest); ok {
		request = caught.Event
	}
	v.typeOf(verb, PartRequest, "the request of verb "+verb.Name, request)
	v.typeOf(verb, PartResponse, "the response of verb "+verb.Name, verb.Response)
	v.publishes(verb, "verb "+verb.Name, verb.Publish)
}

func (v *validation) sink(s *Sink) {
	v.typeOf(s, PartEvent, "the event of sink "+s.Name, s.Event)
	v.receiver(receiver{s, "sink " + s.Name, s.Event, s.Subscription, s.Retry, s.DeadLetter})
	v.publishes(s, "sink "+s.Name, s.Publish)
}

func (v *validation) mapper(m *Mapper) {
	v.typeOf(m, PartEvent, "the event of mapper "+m.Name, m.Event)
	v.typeOf(m, PartResponse, "the result of mapper "+m.Name, m.Result)
	v.receiver(receiver{m, "mapper " + m.Name, m.Event, m.Subscription, m.Retry, m.DeadLetter})
	v.publishes(m, "mapper "+m.Name, m.Publish)
	topic := v.ownTopic(m, PartMap, "mapper "+m.Name+" fills", m.Topic)
	if topic == nil {
		return
	}
	if topic.Event != m.Result {
		v.report(m, PartResponse, "return "+topic.Event.String(), "mapper %s returns %s, but the events of topic %s are %s", m.Name, m.Result, m.Topic, topic.Event)
	}
	if s := v.module.Subscription(m.Subscription); s != nil && s.Topic == m.Topic {
		v.report(m, PartMap, "fill another topic", "mapper %s fills topic %s, which it reads: that never ends", m.Name, m.Topic)
	}
}

// receiver is what sinks and mappers have in common.
type receiver struct {
	declaration  declaration
	called       string
	event        Type
	subscription string
	retry        *Retry
	deadLetter   Ref
}

func (v *validation) receiver(r receiver) {
	subscription := v.module.Subscription(r.subscription)
	if subscription == nil {
		v.report(r.declaration, PartSubscribe, didYouMean("subscription", r.subscription, namesOf(v.module.Subscriptions)), "%s is for subscription %s, which does not exist", r.called, r.subscription)
	}
	var topic *Topic
	if subscription != nil {
		topic = v.schema.Topic(subscription.Topic)
	}
	if topic != nil && topic.Event != r.event {
		v.report(r.declaration, PartEvent, "take "+topic.Event.String(), "%s takes %s, but the events of topic %s are %s", r.called, r.event, subscription.Topic, topic.Event)
	}
	v.retry(r)
	if r.deadLetter == (Ref{}) {
		return
	}
	letters := v.ownTopic(r.declaration, PartDeadLetter, r.called+" gives up to", r.deadLetter)
	if letters == nil || topic == nil {
		return
	}
	switch {
	case subscription.Topic == r.deadLetter:
		v.report(r.declaration, PartDeadLetter, "name another topic", "%s gives up to topic %s, which it reads: that never ends", r.called, r.deadLetter)
	case letters.Event != topic.Event:
		v.report(r.declaration, PartDeadLetter, "name a topic of "+topic.Event.String(), "%s gives events of %s up to topic %s, whose events are %s", r.called, topic.Event, r.deadLetter, letters.Event)
	}
}

func (v *validation) retry(r receiver) {
	if r.retry == nil {
		return
	}
	if err := r.retry.Check(); err != nil {
		v.report(r.declaration, PartRetry, "", "%s: %s", r.called, fault.Of(err).Message)
	}
	if r.retry.Catch == (Ref{}) {
		return
	}
	wanted := CatchRequest{Event: r.event}
	verb := v.module.Verb(r.retry.Catch.Name)
	switch {
	case r.retry.Catch.Module != v.module.Name:
		v.report(r.declaration, PartCatch, "name a verb of module "+v.module.Name, "%s has the catch verb %s, of another module", r.called, r.retry.Catch)
	case verb == nil:
		v.report(r.declaration, PartCatch, didYouMean("verb", r.retry.Catch.Name, namesOf(v.module.Verbs)), "%s has the catch verb %s, which does not exist", r.called, r.retry.Catch.Name)
	case verb.Request != wanted:
		v.report(r.declaration, PartCatch, "let it take "+wanted.String(), "%s has the catch verb %s, which takes %s", r.called, verb.Name, orNothing(verb.Request))
	case verb.Response != nil:
		v.report(r.declaration, PartCatch, "let it return nothing", "%s has the catch verb %s, which returns %s that nobody takes", r.called, verb.Name, verb.Response)
	}
}

// receivers checks the subscriptions with what receives from them: sinks or one
// mapper, and one topic for what they give up.
func (v *validation) receivers() {
	m := v.module
	for _, s := range m.Subscriptions {
		var first *Mapper
		for _, mapper := range m.Mappers {
			switch {
			case mapper.Subscription != s.Name:
			case first == nil:
				first = mapper
			default:
				v.report(mapper, PartSubscribe, "declare another subscription to the topic", "mapper %s is for subscription %s, which has the mapper %s", mapper.Name, s.Name, first.Name)
			}
		}
		sinks := m.SinksOf(s.Name)
		for _, sink := range sinks {
			if first != nil {
				v.report(sink, PartSubscribe, "declare another subscription to the topic", "sink %s is for subscription %s, which has the mapper %s: a subscription has sinks or one mapper", sink.Name, s.Name, first.Name)
			}
			if sink.DeadLetter != sinks[0].DeadLetter {
				v.report(sink, PartDeadLetter, "name one topic in both, or none", "sinks %s and %s of subscription %s give up to different topics", sinks[0].Name, sink.Name, s.Name)
			}
		}
	}
}

// ingresses checks where verbs are served.
func (v *validation) ingresses() {
	for i, verb := range v.module.Verbs {
		if verb.Ingress == nil {
			continue
		}
		if err := verb.Ingress.Check(); err != nil {
			v.report(verb, PartIngress, "", "%s", fault.Of(err).Message)
			continue
		}
		v.parameters(verb)
		for _, other := range v.module.Verbs[:i] {
			if other.Ingress != nil && other.Ingress.Overlaps(verb.Ingress) {
				v.report(verb, PartIngress, acceptedPath, "verbs %s and %s would both serve a request: %s and %s", other.Name, verb.Name, other.Ingress, verb.Ingress)
				break
			}
		}
	}
}

// parameters checks that the path's parameters are fields of the request that a
// part of a path can fill.
func (v *validation) parameters(verb *Verb) {
	for _, name := range verb.Ingress.Parameters() {
		var request *Data
		if ref, ok := verb.Request.(Ref); ok {
			request = v.schema.DataOf(ref)
		}
		if request == nil {
			v.report(verb, PartIngress, "", "the path has the parameter {%s}, but verb %s takes no data type with fields", name, verb.Name)
			return
		}
		field := request.Field(name)
		if field == nil {
			v.report(verb, PartIngress, didYouMean("field", name, namesOf(request.Fields)), "the path has the parameter {%s}, but %s has no field of that JSON name", name, request.Name)
			continue
		}
		t := field.Type
		if optional, ok := t.(Optional); ok {
			t = optional.Of
		}
		if t != String && t != Int && t != Float && t != Bool {
			v.report(verb, PartIngress, "", "the path has the parameter {%s}, but the field is of type %s; it may be String, Int, Float or Bool", name, field.Type)
		}
	}
}

func (v *validation) publishes(declaration any, called string, topics []Ref) {
	for _, ref := range topics {
		v.ownTopic(declaration, PartPublish, called+" publishes to", ref)
	}
}

// ownTopic returns a topic of the module, which alone may write to it.
func (v *validation) ownTopic(declaration any, part Part, does string, ref Ref) *Topic {
	if ref.Module != v.module.Name {
		v.report(declaration, part, "let that module publish, or publish to a topic of "+v.module.Name, "%s topic %s of another module; a topic has one owner", does, ref)
		return nil
	}
	topic := v.module.Topic(ref.Name)
	if topic == nil {
		v.report(declaration, part, didYouMean("topic", ref.Name, namesOf(v.module.Topics)), "%s topic %s, which does not exist", does, ref.Name)
	}
	return topic
}

// typeOf checks that a type's parts exist and stand where they may. What says
// of what it is the type.
func (v *validation) typeOf(declaration any, part Part, what string, t Type) {
	Walk(t, func(t Type) {
		switch t := t.(type) {
		case Ref:
			if v.schema.DataOf(t) == nil {
				v.report(declaration, part, "", "%s is of data type %s, which does not exist", what, t)
			}
		case Map:
			if t.Key != String && t.Key != Int {
				v.report(declaration, part, "", "%s has a map whose keys are %s; they may be String or Int", what, t.Key)
			}
		case CatchRequest:
			v.report(declaration, part, "", "%s is of type %s, which may only be the request of a verb", what, t)
		}
	})
}

func orNothing(t Type) string {
	if t == nil {
		return "nothing"
	}
	return t.String()
}
