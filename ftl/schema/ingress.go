package schema

import (
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
)

// Methods are the methods of HTTP that a verb may be served under.
var Methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

// MaxPathBytes bounds the path of an ingress.
const MaxPathBytes = 1024

// String returns the method and the path.
func (i *Ingress) String() string { return i.Method + " " + i.Path }

// Parameters are the names in braces of the path, in order.
func (i *Ingress) Parameters() []string {
	var names []string
	for _, segment := range i.segments() {
		if name, ok := parameter(segment); ok {
			names = append(names, name)
		}
	}
	return names
}

// Check returns fault.InvalidClause, saying what would be accepted, for a
// method or path that cannot be served.
func (i *Ingress) Check() error {
	if !slices.Contains(Methods, i.Method) {
		if upper := strings.ToUpper(i.Method); slices.Contains(Methods, upper) {
			return fault.New(fault.InvalidClause, "%s is no method; write %s", i.Method, upper)
		}
		return fault.New(fault.InvalidClause, "%s is no method that a verb is served under; those are %s", i.Method, strings.Join(Methods, ", "))
	}
	if !strings.HasPrefix(i.Path, "/") {
		return fault.New(fault.InvalidClause, "the path %q does not begin with /; write /%s", i.Path, i.Path)
	}
	if len(i.Path) > MaxPathBytes {
		return fault.New(fault.InvalidClause, "the path takes %d bytes; it may take %d", len(i.Path), MaxPathBytes)
	}
	if i.Path == "/" {
		return nil
	}
	var seen []string
	for _, segment := range i.segments() {
		name, isParameter := parameter(segment)
		switch {
		case segment == "":
			return fault.New(fault.InvalidClause, "the path %s has an empty part; write one / between parts and none at the end", i.Path)
		case segment == "." || segment == "..":
			return fault.New(fault.InvalidClause, "the path %s has the part %s, which clients resolve before they call; write the path out", i.Path, segment)
		case isParameter && slices.Contains(seen, name):
			return fault.New(fault.InvalidClause, "the path %s has {%s} twice; give each its own name", i.Path, name)
		case isParameter && !isIdentifier(name):
			return fault.New(fault.InvalidClause, "{%s} is no parameter; write the JSON name of a field of the request, as in {id}", name)
		case !isParameter && strings.Trim(segment, pathCharacters) != "":
			return fault.New(fault.InvalidClause, "the part %s of the path is no plain text; write letters, digits, -, ., _ and ~, or one {parameter} as the whole part", segment)
		}
		if isParameter {
			seen = append(seen, name)
		}
	}
	return nil
}

// pathCharacters are those that a path holds as themselves (RFC 3986, section
// 2.3).
const pathCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"

// Overlaps reports whether some request fits both, and neither is the more
// exact one that would take it: the same path up to the names of parameters, or
// paths such as /a/{x} and /{y}/b.
func (i *Ingress) Overlaps(other *Ingress) bool {
	mine, theirs := i.segments(), other.segments()
	if i.Method != other.Method || len(mine) != len(theirs) {
		return false
	}
	iAmExact, theyAreExact := false, false
	for n := range mine {
		_, wide := parameter(mine[n])
		_, theirWide := parameter(theirs[n])
		switch {
		case !wide && !theirWide && mine[n] != theirs[n]:
			return false
		case !wide && theirWide:
			iAmExact = true
		case wide && !theirWide:
			theyAreExact = true
		}
	}
	return iAmExact == theyAreExact
}

// acceptedPath is what is to be done about two verbs that one request fits.
const acceptedPath = "give one of them another path"

// Overlap is two verbs of different modules that would both serve a request.
type Overlap struct {
	First, Second         *Module
	FirstVerb, SecondVerb *Verb
}

// Err returns the overlap as fault.InvalidClause, with what would be accepted.
func (o Overlap) Err() error {
	return fault.New(fault.InvalidClause, "verbs %s.%s and %s.%s would both serve a request: %s and %s; %s",
		o.First.Name, o.FirstVerb.Name, o.Second.Name, o.SecondVerb.Name, o.FirstVerb.Ingress, o.SecondVerb.Ingress, acceptedPath)
}

// Overlaps returns the verbs of different modules that would both serve a
// request, each later one with the first that it overlaps. They are in the way
// of modules that are served at one address, those that one command deploys;
// so they are none of the Problems, but for those within a module.
func (s *Schema) Overlaps() []Overlap {
	var found []Overlap
	for n, module := range s.Modules {
		for _, verb := range module.Verbs {
			if first, other := servedBefore(s.Modules[:n], verb.Ingress); other != nil {
				found = append(found, Overlap{first, module, other, verb})
			}
		}
	}
	return found
}

// servedBefore returns the verb of some modules that an ingress overlaps, or nil.
func servedBefore(modules []*Module, ingress *Ingress) (*Module, *Verb) {
	for _, m := range modules {
		for _, verb := range m.Verbs {
			if ingress != nil && verb.Ingress != nil && verb.Ingress.Overlaps(ingress) {
				return m, verb
			}
		}
	}
	return nil, nil
}

func (i *Ingress) segments() []string {
	return strings.Split(strings.TrimPrefix(i.Path, "/"), "/")
}

// parameter returns the name in the braces that are a whole segment.
func parameter(segment string) (name string, ok bool) {
	if !strings.HasPrefix(segment, "{") || !strings.HasSuffix(segment, "}") || len(segment) < 2 {
		return "", false
	}
	return segment[1 : len(segment)-1], true
}
