package schema

import (
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
)

// Compatible returns nil if the events that are in the topics of old can be
// read under the types of next: see the package's comment for what is allowed.
// Topics that are in one of the two only are not compared. The refusal, a
// fault.TypeMismatch, names topic and field and shows both shapes.
func Compatible(old, next *Schema) error {
	for _, module := range byName(next.Modules) {
		for _, topic := range byName(module.Topics) {
			ref := Ref{Module: module.Name, Name: topic.Name}
			was := old.Topic(ref)
			if was == nil {
				continue
			}
			c := comparison{old: old, next: next, topic: ref, compared: map[[2]Ref]bool{}}
			if err := c.types(c.topic.String(), was.Event, topic.Event); err != nil {
				return err
			}
		}
	}
	return nil
}

// comparison compares one topic's event types.
type comparison struct {
	old, next *Schema
	topic     Ref
	// compared are the pairs of data types that were compared, or are being:
	// types may hold themselves.
	compared map[[2]Ref]bool
	// inside are the data types whose field is being compared.
	inside [2]*Data
}

// types compares the types of what is at a path.
func (c *comparison) types(path string, was, is Type) error {
	if optional, ok := is.(Optional); ok {
		if already, ok := was.(Optional); ok {
			was = already.Of
		}
		is = optional.Of
	}
	switch is := is.(type) {
	case Ref:
		if was, ok := was.(Ref); ok {
			return c.refs(path, was, is)
		}
	case Array:
		if was, ok := was.(Array); ok {
			return c.types(path, was.Element, is.Element)
		}
	case Map:
		if was, ok := was.(Map); ok && was.Key == is.Key {
			return c.types(path, was.Value, is.Value)
		}
	default:
		if was == is {
			return nil
		}
	}
	return c.refuse("%s was of type %s and is now of type %s", path, was, is)
}

func (c *comparison) refs(path string, was, is Ref) error {
	pair := [2]Ref{was, is}
	if c.compared[pair] {
		return nil
	}
	c.compared[pair] = true
	oldData, nextData := c.old.DataOf(was), c.next.DataOf(is)
	if oldData == nil || nextData == nil {
		if was == is {
			return nil // A module that is not at hand; its own deployment compares it.
		}
		return c.refuse("%s was of type %s and is now of type %s", path, was, is)
	}
	outer := c.inside
	c.inside = [2]*Data{oldData, nextData}
	defer func() { c.inside = outer }()
	for _, field := range oldData.Fields {
		if nextData.Field(field.Name) == nil {
			return c.refuse("field %s, which events in the topic have, is gone", path+"."+field.Name)
		}
	}
	for _, field := range nextData.Fields {
		at := path + "." + field.Name
		before := oldData.Field(field.Name)
		if before == nil {
			if _, optional := field.Type.(Optional); !optional {
				return c.refuse("field %s, which events in the topic do not have, is not optional", at)
			}
			continue
		}
		if err := c.types(at, before.Type, field.Type); err != nil {
			return err
		}
	}
	return nil
}

// refuse says what does not fit, and shows the shapes around it.
func (c *comparison) refuse(problem string, args ...any) error {
	was, is := c.shapes()
	args = append(slices.Clone(args), c.topic, was, is)
	return fault.New(fault.TypeMismatch,
		problem+"; what is in topic %s could not be read. Keep its fields as they are and add only optional ones, or publish the new shape to a new topic.\nIt was:\n%s\nIt would be:\n%s",
		args...)
}

func (c *comparison) shapes() (was, is string) {
	if c.inside[0] == nil {
		return indent(c.old.Topic(c.topic).Event.String()), indent(c.next.Topic(c.topic).Event.String())
	}
	return indent(c.inside[0].String()), indent(c.inside[1].String())
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ")
}
