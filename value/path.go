package value

import "strings"

// Path names a field within nested objects: each part is a field of the object
// that the part before it holds.
type Path []string

// String writes the path as statements do, a.b, with parts that are no
// identifiers in backquotes.
func (p Path) String() string {
	parts := make([]string, len(p))
	for i, name := range p {
		parts[i] = QuoteIdentifier(name)
	}
	return strings.Join(parts, ".")
}

// Of returns what v holds at the path, none where a part is absent or is
// looked for in something that is no object.
func (p Path) Of(v Value) Value {
	for _, name := range p {
		fields, ok := v.AsObject()
		if !ok {
			return None()
		}
		v = fields[name]
	}
	return v
}
