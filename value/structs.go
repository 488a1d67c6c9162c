package value

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// structField is a field of a Go struct that has a name in documents.
type structField struct {
	name      string // in the document
	goName    string // with the names of the embedded structs it is promoted from left out
	index     []int  // for reflect.Value.FieldByIndex
	tagged    bool   // its name comes from a tag
	omitEmpty bool
	omitZero  bool
}

// structFields returns the fields that Of and Scan see in a struct, by the
// rules of encoding/json: exported fields, under the names in their json tags;
// the fields of an embedded struct as if they were the outer one's. Of several
// with one name the one nested least counts, then the one with a tag; where
// that leaves more than one, none does.
func structFields(t reflect.Type) []structField {
	if known, ok := structFieldsByType.Load(t); ok {
		return known.([]structField)
	}
	fields := dominant(collectFields(nil, t, nil, nil))
	structFieldsByType.Store(t, fields)
	return fields
}

// structFieldsByType remembers what reflection finds, by reflect.Type. It is
// no larger than the program has struct types.
var structFieldsByType sync.Map

func collectFields(fields []structField, t reflect.Type, path []int, outer []reflect.Type) []structField {
	if slices.Contains(outer, t) {
		return fields // a struct that embeds itself, by a pointer, adds nothing
	}
	outer = append(slices.Clip(outer), t)
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		index := append(slices.Clip(path), i)
		if inner, ok := embeddedStruct(field); ok && name == "" {
			fields = collectFields(fields, inner, index, outer)
			continue
		}
		if !field.IsExported() {
			continue
		}
		found := structField{name: name, goName: field.Name, index: index, tagged: name != ""}
		if !found.tagged {
			found.name = field.Name
		}
		for option := range strings.SplitSeq(options, ",") {
			found.omitEmpty = found.omitEmpty || option == "omitempty"
			found.omitZero = found.omitZero || option == "omitzero"
		}
		fields = append(fields, found)
	}
	return fields
}

// embeddedStruct returns the struct whose fields are promoted to the one that
// embeds it. A pointer to an unexported struct is none: reflection cannot set it.
func embeddedStruct(field reflect.StructField) (inner reflect.Type, ok bool) {
	if !field.Anonymous {
		return nil, false
	}
	inner = field.Type
	if inner.Kind() == reflect.Pointer {
		if !field.IsExported() {
			return nil, false
		}
		inner = inner.Elem()
	}
	if inner.Kind() != reflect.Struct || isOwnKind(inner) || reflect.PointerTo(inner).Implements(textMarshaler) {
		return nil, false
	}
	return inner, true
}

// dominant returns one field a name, in the order of the struct.
func dominant(fields []structField) []structField {
	byName := make(map[string][]structField)
	for _, field := range fields {
		byName[field.name] = append(byName[field.name], field)
	}
	return slices.DeleteFunc(fields, func(field structField) bool {
		for _, other := range byName[field.name] {
			same := slices.Equal(other.index, field.index)
			if !same && !hides(field, other) {
				return true
			}
		}
		return false
	})
}

// hides reports whether a is seen where b has the same name.
func hides(a, b structField) bool {
	if len(a.index) != len(b.index) {
		return len(a.index) < len(b.index)
	}
	return a.tagged && !b.tagged
}
