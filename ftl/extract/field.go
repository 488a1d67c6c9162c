package extract

import (
	"cmp"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// candidate is a field of a struct, or of one that it embeds, under its name in
// JSON.
type candidate struct {
	name     string
	variable *types.Var
	shape    schema.Type
	// depth is how many embedded structs are around it, and tagged whether its
	// name is in a tag: of several under one name, the least deep is taken and,
	// among those, the one that is tagged.
	depth  int
	tagged bool
}

// structSource is the struct whose fields are looked at.
type structSource struct {
	// name is how it is written in Go, and module what it belongs to.
	name, module string
	// at is where it is used, if it is a library's: what is wrong with it is
	// mended there. For a module's own it is the zero span.
	at span
}

// place is where a problem of a field is reported.
func (ss *structSource) place(field *types.Var) span {
	if ss.at.pos.IsValid() {
		return ss.at
	}
	return nameSpan(field)
}

// fields are the fields of a struct as encoding/json writes them.
func (s *shapes) fields(owner *structSource, structure *types.Struct) []*schema.Field {
	candidates := s.candidates(owner, structure, 0, false, map[types.Type]bool{})
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.depth, b.depth), compareTagged(a, b))
	})
	var fields []*schema.Field
	for i, c := range candidates {
		if i > 0 && candidates[i-1].name == c.name {
			if previous := candidates[i-1]; previous.depth == c.depth && previous.tagged == c.tagged && (i == 1 || candidates[i-2].name != c.name) {
				s.refuse(owner.place(c.variable), "%s has two fields named %q in JSON, of which encoding/json writes neither; give one another name", owner.name, c.name)
			}
			continue
		}
		fields = append(fields, &schema.Field{Name: c.name, Type: c.shape})
	}
	return fields
}

func compareTagged(a, b candidate) int {
	switch {
	case a.tagged == b.tagged:
		return 0
	case a.tagged:
		return -1
	}
	return 1
}

// candidates are the fields of a struct and of those it embeds.
func (s *shapes) candidates(owner *structSource, structure *types.Struct, depth int, absent bool, inside map[types.Type]bool) []candidate {
	var found []candidate
	for i := range structure.NumFields() {
		field := structure.Field(i)
		at := owner.place(field)
		tag := parseTag(reflect.StructTag(structure.Tag(i)).Get("json"))
		if tag.leftOut || field.Name() == "_" {
			continue
		}
		if field.Embedded() && tag.name == "" {
			t := types.Unalias(field.Type())
			pointer, byPointer := t.(*types.Pointer)
			if byPointer {
				t = types.Unalias(pointer.Elem())
			}
			if embedded, ok := t.Underlying().(*types.Struct); ok {
				if !inside[t] {
					inside[t] = true
					found = append(found, s.candidates(owner, embedded, depth+1, absent || byPointer, inside)...)
					delete(inside, t)
				}
				continue
			}
		}
		if !field.Exported() {
			s.refuse(at, "field %s of %s is unexported, so encoding/json leaves it out; call it %s, or tag it `json:\"-\"` if it is no part of the event", field.Name(), owner.name, upperFirst(field.Name()))
			continue
		}
		c := candidate{name: field.Name(), variable: field, depth: depth}
		if tag.name != "" {
			c.name, c.tagged = tag.name, true
			if !isTagName(tag.name) {
				s.refuse(at, "encoding/json ignores the name %q in the tag of field %s; write letters, digits and underscores", tag.name, field.Name())
			}
		}
		c.shape = s.typeOf(field.Type(), owner.module, at)
		if tag.quoted && (c.shape == schema.Int || c.shape == schema.Float || c.shape == schema.Bool) {
			c.shape = schema.String
		}
		if tag.optional || absent {
			c.shape = optional(c.shape)
		}
		found = append(found, c)
	}
	return found
}

// jsonTag is what a field's json tag says.
type jsonTag struct {
	name string
	// leftOut is the tag "-", optional is omitempty or omitzero, and quoted is
	// string.
	leftOut, optional, quoted bool
}

func parseTag(text string) jsonTag {
	if text == "-" {
		return jsonTag{leftOut: true}
	}
	name, rest, _ := strings.Cut(text, ",")
	tag := jsonTag{name: name}
	for option := range strings.SplitSeq(rest, ",") {
		switch option {
		case "omitempty", "omitzero":
			tag.optional = true
		case "string":
			tag.quoted = true
		}
	}
	return tag
}

// isTagName reports whether encoding/json takes a name in a tag.
func isTagName(name string) bool {
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) {
			return false
		}
	}
	return true
}
