package schema

// Type is the shape of a value as JSON: a Basic, Array, Map, Optional, Ref (to
// a Data) or CatchRequest.
type Type interface {
	// String returns the type as it stands in the text.
	String() string
	isType()
}

// Basic is a type without parts.
type Basic string

// The basic types, with how they stand in JSON.
const (
	Bool   Basic = "Bool"
	Int    Basic = "Int"    // a number without a fraction, of any of Go's sizes
	Float  Basic = "Float"  // a number
	String Basic = "String" // a string, also what a type writes that marshals itself as text
	Bytes  Basic = "Bytes"  // a string in base64
	Time   Basic = "Time"   // a string by RFC 3339
	Any    Basic = "Any"    // any value
)

// Array is a list of values of one type; nil stands as null.
type Array struct{ Element Type }

// Map is an object with any fields, whose names are the text of its keys.
type Map struct {
	// Key is String or Int.
	Key, Value Type
}

// Optional is a value that may be absent or null.
type Optional struct{ Of Type }

// CatchRequest is what a catch verb takes: the event of its type that was given
// up on, with what became of it. It stands only as a verb's request.
type CatchRequest struct{ Event Type }

// Data is a named object.
type Data struct {
	Name   string
	Fields []*Field
}

// Field is a field of a data type.
type Field struct {
	// Name is its name in JSON.
	Name string
	Type Type
}

// Field returns the field of a name in JSON, or nil.
func (d *Data) Field(name string) *Field { return find(d.Fields, name) }

func (b Basic) String() string { return string(b) }

func (a Array) String() string { return "[" + a.Element.String() + "]" }

func (m Map) String() string { return "{" + m.Key.String() + ": " + m.Value.String() + "}" }

func (o Optional) String() string { return o.Of.String() + "?" }

func (c CatchRequest) String() string { return catchRequest.String() + "<" + c.Event.String() + ">" }

// catchRequest is the name of CatchRequest in the text. The module's name is
// taken, so that nobody's type is called the same.
var catchRequest = Ref{Module: sdkModule, Name: "CatchRequest"}

func (Basic) isType()        {}
func (Array) isType()        {}
func (Map) isType()          {}
func (Optional) isType()     {}
func (Ref) isType()          {}
func (CatchRequest) isType() {}

func (d *Data) declared() string  { return d.Name }
func (f *Field) declared() string { return f.Name }

// basics are the basic types, by how they stand in the text.
var basics = map[string]Basic{}

func init() {
	for _, b := range []Basic{Bool, Int, Float, String, Bytes, Time, Any} {
		basics[string(b)] = b
	}
}

// Walk calls visit with t and every type that is a part of it, outermost first.
func Walk(t Type, visit func(Type)) {
	if t == nil {
		return
	}
	visit(t)
	switch t := t.(type) {
	case Array:
		Walk(t.Element, visit)
	case Map:
		Walk(t.Key, visit)
		Walk(t.Value, visit)
	case Optional:
		Walk(t.Of, visit)
	case CatchRequest:
		Walk(t.Event, visit)
	}
}
