// Package schema is what a module declares, as a model and as text.
//
// A Module holds topics, subscriptions, data types, verbs, sinks and mappers.
// The extractor makes it from Go source, a deployment sends it as text, and the
// node provisions from it. It knows nothing of Go, of stores or of the wire.
//
// Three ideas carry it:
//
//   - The text parses back to itself. Parse(s.String()) is s, and String writes
//     one canonical form: declarations by kind and then by name, references
//     with their module. What is read may leave the module out inside it. The
//     text is therefore also the module's identity (Hash).
//   - Parse looks at the form alone, Validate at what the names mean: within a
//     module, and between the modules of a schema.
//   - A data type is the shape of its JSON, by the names that encoding/json
//     writes. So two Go types of one shape are one type to Compatible, which
//     decides whether what is in a topic can still be read.
//
// # Compatibility
//
// Events outlive the code that wrote them, so a topic's new event type must
// read every event that is there and lose nothing of it. A field may be added
// if it is optional, and a field may become optional. Everything else is
// refused: a field that is gone, renamed or of another type, one that is added
// or becomes required. Names of data types are free, and so is everything that
// is no event type: it concerns no stored data.
package schema

import (
	"crypto/sha256"
	"encoding/hex"
)

// Schema is the modules that are deployed, or looked at, together.
type Schema struct {
	Modules []*Module
}

// Module is what one module declares. Names are unique in it, over all kinds.
type Module struct {
	// Name is lowerCamel, as in ftl.toml.
	Name string

	Topics        []*Topic
	Subscriptions []*Subscription
	Data          []*Data
	Verbs         []*Verb
	Sinks         []*Sink
	Mappers       []*Mapper
}

// Ref names a declaration: a topic, a verb or a data type of a module. The zero
// Ref names nothing.
type Ref struct {
	Module, Name string
}

// String returns module.name.
func (r Ref) String() string { return r.Module + "." + r.Name }

// Module returns the module of a name, or nil.
func (s *Schema) Module(name string) *Module {
	for _, m := range s.Modules {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Topic returns the topic that r names, or nil.
func (s *Schema) Topic(r Ref) *Topic {
	if m := s.Module(r.Module); m != nil {
		return m.Topic(r.Name)
	}
	return nil
}

// DataOf returns the data type that r names, or nil.
func (s *Schema) DataOf(r Ref) *Data {
	if m := s.Module(r.Module); m != nil {
		return m.DataOf(r.Name)
	}
	return nil
}

// Topic returns the topic of a name, or nil.
func (m *Module) Topic(name string) *Topic { return find(m.Topics, name) }

// Subscription returns the subscription of a name, or nil.
func (m *Module) Subscription(name string) *Subscription { return find(m.Subscriptions, name) }

// DataOf returns the data type of a name, or nil.
func (m *Module) DataOf(name string) *Data { return find(m.Data, name) }

// Verb returns the verb of a name, or nil.
func (m *Module) Verb(name string) *Verb { return find(m.Verbs, name) }

// Sink returns the sink of a name, or nil.
func (m *Module) Sink(name string) *Sink { return find(m.Sinks, name) }

// Mapper returns the mapper of a name, or nil.
func (m *Module) Mapper(name string) *Mapper { return find(m.Mappers, name) }

// SinksOf returns the sinks of a subscription; each event goes to one of them.
func (m *Module) SinksOf(subscription string) []*Sink {
	var sinks []*Sink
	for _, sink := range m.Sinks {
		if sink.Subscription == subscription {
			sinks = append(sinks, sink)
		}
	}
	return sinks
}

// MapperOf returns the mapper of a subscription, or nil.
func (m *Module) MapperOf(subscription string) *Mapper {
	for _, mapper := range m.Mappers {
		if mapper.Subscription == subscription {
			return mapper
		}
	}
	return nil
}

// DeadLetterOf returns the topic that takes what a subscription's sinks or its
// mapper gave up on, or the zero Ref. All sinks of a subscription name the same.
func (m *Module) DeadLetterOf(subscription string) Ref {
	if mapper := m.MapperOf(subscription); mapper != nil {
		return mapper.DeadLetter
	}
	for _, sink := range m.SinksOf(subscription) {
		return sink.DeadLetter
	}
	return Ref{}
}

// Hash identifies what the module declares: 64 hexadecimal digits that are the
// same for the same declarations, in whatever order they stand.
func (m *Module) Hash() string {
	sum := sha256.Sum256([]byte(m.String()))
	return hex.EncodeToString(sum[:])
}

// declaration is what every kind of declaration has.
type declaration interface{ declared() string }

func find[D interface {
	comparable
	declaration
}](declarations []D, name string) D {
	for _, d := range declarations {
		if d.declared() == name {
			return d
		}
	}
	var none D
	return none
}
