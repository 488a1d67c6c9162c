package store

import (
	"maps"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// FieldType is what a field of a typed table holds.
type FieldType string

// The types of fields.
const (
	TypeBool     FieldType = "bool"
	TypeInt      FieldType = "int"
	TypeFloat    FieldType = "float"
	TypeString   FieldType = "string"
	TypeBytes    FieldType = "bytes"
	TypeUUID     FieldType = "uuid"
	TypeDatetime FieldType = "datetime"
	TypeDuration FieldType = "duration"
	TypeArray    FieldType = "array"
	TypeObject   FieldType = "object"
	TypeAny      FieldType = "any"
	TypeRecord   FieldType = "record"
)

var kindOfType = map[FieldType]value.Kind{
	TypeBool: value.KindBool, TypeInt: value.KindInt, TypeFloat: value.KindFloat,
	TypeString: value.KindString, TypeBytes: value.KindBytes, TypeUUID: value.KindUUID,
	TypeDatetime: value.KindDatetime, TypeDuration: value.KindDuration,
	TypeArray: value.KindArray, TypeObject: value.KindObject, TypeRecord: value.KindRecord,
}

// Field is one field of a typed table. A field that a record does not carry is
// absent, unless it is required.
type Field struct {
	Name     string
	Type     FieldType
	Nullable bool
	Required bool
	// Default and Assert are expressions, as text; whoever writes records
	// evaluates them, since the store knows no text.
	Default string
	Assert  string
}

// Describe is the field's type as its definition writes it.
func (f Field) Describe() string {
	if f.Nullable {
		return string(f.Type) + " | null"
	}
	return string(f.Type)
}

// check returns v as the field keeps it: an int that a float field can hold
// exactly becomes a float, anything else is of the type or refused.
func (f Field) check(table string, v value.Value) (value.Value, error) {
	switch {
	case v.IsNull() && (f.Nullable || f.Type == TypeAny):
		return v, nil
	case f.Type == TypeAny || v.Kind() == kindOfType[f.Type]:
		return v, nil
	case f.Type == TypeFloat && v.Kind() == value.KindInt:
		i, _ := v.AsInt()
		if float := value.Float(float64(i)); value.Equal(float, v) {
			return float, nil
		}
	}
	return v, fault.New(fault.TypeMismatch, "field %s of table %s takes %s, not %s", f.Name, table, f.Describe(), v)
}

// CheckFields returns a record as the table keeps it, or what is wrong with
// it: fault.UnknownField, fault.TypeMismatch for a value of another type or a
// required field that is absent. Collections take any object.
func (t *Table) CheckFields(record value.Value) (value.Value, error) {
	if t.Kind != TypedTable && t.Kind != Collection {
		return record, nil
	}
	fields, ok := record.AsObject()
	if !ok {
		return record, fault.New(fault.TypeMismatch, "a record of %s %s is an object, not %s", t.Kind, t.Name, record)
	}
	if t.Kind == Collection {
		return record, nil
	}
	if err := t.refuseUnknown(fields); err != nil {
		return record, err
	}
	kept := make(value.Object, len(fields))
	for _, field := range t.Fields {
		v := fields[field.Name]
		if v.IsNone() {
			if field.Required {
				return record, fault.New(fault.TypeMismatch, "field %s of table %s is required and absent", field.Name, t.Name)
			}
			continue
		}
		checked, err := field.check(t.Name, v)
		if err != nil {
			return record, err
		}
		kept[field.Name] = checked
	}
	return value.Fields(kept), nil
}

func (t *Table) refuseUnknown(fields value.Object) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		known := slices.ContainsFunc(t.Fields, func(f Field) bool { return f.Name == name })
		if !known && !fields[name].IsNone() {
			return fault.New(fault.UnknownField, "table %s has no field %s; it has %s", t.Name, name, t.fieldNames())
		}
	}
	return nil
}

func (t *Table) fieldNames() string {
	if len(t.Fields) == 0 {
		return "no fields"
	}
	names := make([]string, len(t.Fields))
	for i, field := range t.Fields {
		names[i] = field.Name
	}
	return strings.Join(names, ", ")
}

// CheckKey refuses what cannot be the key of an identity.
func CheckKey(table string, key value.Value) error {
	switch key.Kind() {
	case value.KindInt, value.KindUUID:
		return nil
	case value.KindString:
		text, _ := key.AsString()
		switch {
		case text == "":
			return fault.New(fault.TypeMismatch, "the key of an identity of %s is an empty string; name it or leave it out", table)
		case len(text) > MaxKeyBytes:
			return fault.New(fault.TooLarge, "the key of an identity of %s has %d bytes; %d are the limit", table, len(text), MaxKeyBytes)
		}
		return nil
	}
	return fault.New(fault.TypeMismatch, "the key of an identity of %s is an int, a string or a uuid, not %s", table, key)
}

// MaxKeyBytes bounds an identity's key, so that every engine can carry it: an
// entry of a PostgreSQL index holds about 2,600 bytes, and encoding a key may
// double it.
const MaxKeyBytes = 1024

// MaxNameBytes bounds the name of a definition, a reader or a group.
const MaxNameBytes = 255

// CheckName refuses a name that nothing could be found under again.
func CheckName(what, name string) error {
	if name == "" {
		return fault.New(fault.InvalidClause, "the name of a %s is empty", what)
	}
	if len(name) > MaxNameBytes {
		return fault.New(fault.InvalidClause, "the name of a %s has %d bytes; %d are the limit", what, len(name), MaxNameBytes)
	}
	return nil
}
