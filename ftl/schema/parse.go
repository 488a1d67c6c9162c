package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
)

// The bounds of a text.
const (
	// MaxTextBytes is far more than the largest module takes.
	MaxTextBytes = 4 << 20
	// maxTypeDepth is how deep types nest.
	maxTypeDepth = 32
)

// Parse reads the text of any number of modules. It looks at the form alone;
// Validate checks what the names mean. A mistake is a *SyntaxError.
//
//	schema       = { "module" name "{" { declaration } "}" }
//	declaration  = [ "export" ] "topic" name type [ "{" { "+retain" duration | "+retainBytes" count } "}" ]
//	             | "subscription" name ref [ "{" { "+fromLatest" | "+parallel" count } "}" ]
//	             | "data" identifier "{" { ( identifier | quoted ) type } "}"
//	             | "verb" name "(" [ type ] ")" [ type ] [ "{" { ingress | publish } "}" ]
//	             | "sink" name "(" type ")" "{" { "+subscribe" name | failure | publish } "}"
//	             | "mapper" name "(" type ")" type "{" { "+map" name ref | failure | publish } "}"
//	ingress      = "+ingress" "http" method path
//	publish      = "+publish" ref
//	failure      = "+retry" … (see ParseRetry) | "+deadletter" ref
//	ref          = [ name "." ] identifier
//	type         = ( basic | ref | "[" type "]" | "{" type ":" type "}" | "ftl.CatchRequest" "<" type ">" ) [ "?" ]
//
// Comments run from // to the end of the line.
func Parse(text string) (schema *Schema, err error) {
	if len(text) > MaxTextBytes {
		return nil, fault.New(fault.TooLarge, "the schema's text takes %d bytes; it may take %d", len(text), MaxTextBytes)
	}
	p := &parser{scanner: scanner{text: text}}
	defer func() {
		thrown := recover()
		if thrown == nil {
			return
		}
		mistake, ok := thrown.(*SyntaxError)
		if !ok {
			panic(thrown)
		}
		schema, err = nil, mistake
	}()
	schema = &Schema{}
	for !p.end() {
		schema.Modules = append(schema.Modules, p.module())
	}
	return schema, nil
}

// ParseModule reads the text of one module, as Parse does.
func ParseModule(text string) (*Module, error) {
	s, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if len(s.Modules) != 1 {
		return nil, fault.New(fault.Syntax, "the text holds %d modules; one is wanted", len(s.Modules))
	}
	return s.Modules[0], nil
}

// parser reads one declaration a method.
type parser struct {
	scanner
	// inside is the module that references without one belong to.
	inside string
	// depth is how many types are open.
	depth int
}

func (p *parser) module() *Module {
	if !p.keyword("module") {
		p.expected("module and its name")
	}
	p.skip()
	at := p.offset
	m := &Module{Name: p.name("the module's name")}
	if m.Name == sdkModule {
		p.fail(at, "a module cannot be called "+m.Name+", where the SDK's own types stand")
	}
	p.inside = m.Name
	p.sign('{')
	for !p.accept('}') {
		p.declaration(m)
	}
	return m
}

func (p *parser) declaration(m *Module) {
	switch {
	case p.keyword("export"):
		if !p.keyword("topic") {
			p.expected("topic; nothing else is exported")
		}
		m.Topics = append(m.Topics, p.topic(true))
	case p.keyword("topic"):
		m.Topics = append(m.Topics, p.topic(false))
	case p.keyword("subscription"):
		m.Subscriptions = append(m.Subscriptions, p.subscription())
	case p.keyword("data"):
		m.Data = append(m.Data, p.data())
	case p.keyword("verb"):
		m.Verbs = append(m.Verbs, p.verb())
	case p.keyword("sink"):
		m.Sinks = append(m.Sinks, p.sink())
	case p.keyword("mapper"):
		m.Mappers = append(m.Mappers, p.mapper())
	default:
		p.expected("topic, export topic, subscription, data, verb, sink, mapper or '}'")
	}
}

func (p *parser) topic(exported bool) *Topic {
	t := &Topic{Name: p.name("the topic's name"), Exported: exported, Event: p.typeOf("the type of the topic's events")}
	p.metadata(map[string]func(){
		"retain": func() {
			p.option(func(word string) (err error) { t.Retain, err = ParseDuration(word); return err })
		},
		"retainBytes": func() {
			p.option(func(word string) (err error) { t.RetainBytes, err = parseBytes(word); return err })
		},
	})
	return t
}

func (p *parser) subscription() *Subscription {
	s := &Subscription{Name: p.name("the subscription's name"), Topic: p.ref("the topic")}
	p.metadata(map[string]func(){
		"fromLatest": func() { s.FromLatest = true },
		"parallel": func() {
			p.option(func(word string) (err error) { s.Parallel, err = parseParallel(word); return err })
		},
	})
	return s
}

func (p *parser) data() *Data {
	d := &Data{Name: p.identifier("the data type's name")}
	p.sign('{')
	for !p.accept('}') {
		f := &Field{}
		if p.at('"') {
			f.Name = p.quoted()
		} else {
			f.Name = p.identifier("a field's name or '}'")
		}
		f.Type = p.typeOf("the field's type")
		d.Fields = append(d.Fields, f)
	}
	return d
}

func (p *parser) verb() *Verb {
	v := &Verb{Name: p.name("the verb's name")}
	p.sign('(')
	if !p.at(')') {
		v.Request = p.typeOf("the request's type")
	}
	p.sign(')')
	if p.atType() {
		v.Response = p.typeOf("the response's type")
	}
	p.metadata(map[string]func(){
		"ingress": func() { v.Ingress = p.ingress() },
		"publish": func() { v.Publish = append(v.Publish, p.ref("the topic")) },
	})
	return v
}

// atType reports whether a type stands here, and not the braces of metadata or
// what follows the verb.
func (p *parser) atType() bool {
	if p.at('[') {
		return true
	}
	here := p.offset
	defer func() { p.offset = here }()
	if p.accept('{') {
		return !p.at('+') && !p.at('}')
	}
	word := p.peekWhile(isIdentifierByte)
	p.offset += len(word)
	return word != "" && (p.at('.') || !slices.Contains([]string{"topic", "export", "subscription", "data", "verb", "sink", "mapper"}, word))
}

func (p *parser) ingress() *Ingress {
	if !p.keyword("http") {
		p.expected("http")
	}
	p.skip()
	at := p.offset
	i := &Ingress{Method: p.identifier("a method of HTTP"), Path: p.path()}
	if err := i.Check(); err != nil {
		p.fail(at, fault.Of(err).Message)
	}
	return i
}

func (p *parser) sink() *Sink {
	p.skip()
	at := p.offset
	s := &Sink{Name: p.name("the sink's name")}
	p.sign('(')
	s.Event = p.typeOf("the event's type")
	p.sign(')')
	p.metadata(map[string]func(){
		"subscribe":  func() { s.Subscription = p.name("the subscription") },
		"retry":      func() { s.Retry = p.retry() },
		"deadletter": func() { s.DeadLetter = p.ref("the topic of dead letters") },
		"publish":    func() { s.Publish = append(s.Publish, p.ref("the topic")) },
	})
	if s.Subscription == "" {
		p.fail(at, "sink "+s.Name+" needs +subscribe and a subscription")
	}
	return s
}

func (p *parser) mapper() *Mapper {
	p.skip()
	at := p.offset
	m := &Mapper{Name: p.name("the mapper's name")}
	p.sign('(')
	m.Event = p.typeOf("the event's type")
	p.sign(')')
	m.Result = p.typeOf("the result's type")
	p.metadata(map[string]func(){
		"map": func() {
			m.Subscription = p.name("the subscription")
			m.Topic = p.ref("the topic of the results")
		},
		"retry":      func() { m.Retry = p.retry() },
		"deadletter": func() { m.DeadLetter = p.ref("the topic of dead letters") },
		"publish":    func() { m.Publish = append(m.Publish, p.ref("the topic")) },
	})
	if m.Subscription == "" {
		p.fail(at, "mapper "+m.Name+" needs +map, a subscription and a topic")
	}
	return m
}

func (p *parser) retry() *Retry {
	words, at := p.words()
	r, err := ParseRetry(words, p.inside)
	if err != nil {
		p.fail(at, fault.Of(err).Message)
	}
	return &r
}

// metadata reads the + lines in a declaration's braces, if it has any. Each
// stands once, but +publish.
func (p *parser) metadata(lines map[string]func()) {
	if !p.accept('{') {
		return
	}
	seen := map[string]bool{}
	for !p.accept('}') {
		at := p.offset
		p.sign('+')
		word := p.peekWhile(isIdentifierByte)
		read, known := lines[word]
		if !known {
			p.fail(at, fmt.Sprintf("+%s does not stand here; expected %s", word, alternatives(lines)))
		}
		if seen[word] && word != "publish" {
			p.fail(at, "+"+word+" stands twice")
		}
		seen[word] = true
		p.offset += len(word)
		read()
	}
}

// alternatives lists the names of the + lines.
func alternatives[V any](lines map[string]V) string {
	var names []string
	for name := range lines {
		names = append(names, "+"+name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ") + " or '}'"
}

// option reads the one word that a + line has.
func (p *parser) option(read func(word string) error) {
	p.skip()
	at := p.offset
	word := p.peekWhile(isIdentifierByte)
	if err := read(word); err != nil {
		p.fail(at, fault.Of(err).Message)
	}
	p.offset += len(word)
}

// ref reads a reference; without a module it is to the one it stands in.
func (p *parser) ref(what string) Ref {
	r, _ := p.reference(what)
	return r
}

func (p *parser) reference(what string) (r Ref, qualified bool) {
	r = Ref{Module: p.inside, Name: p.identifier(what)}
	if !p.accept('.') {
		return r, false
	}
	return Ref{Module: r.Name, Name: p.identifier("a name of module " + r.Name)}, true
}

func (p *parser) typeOf(what string) Type {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxTypeDepth {
		p.fail(p.offset, fmt.Sprintf("types nest more than %d deep here", maxTypeDepth))
	}
	t := p.plainType(what)
	if p.accept('?') {
		return Optional{Of: t}
	}
	return t
}

func (p *parser) plainType(what string) Type {
	switch {
	case p.accept('['):
		element := p.typeOf("the type of the elements")
		p.sign(']')
		return Array{Element: element}
	case p.accept('{'):
		key := p.typeOf("the type of the keys")
		p.sign(':')
		value := p.typeOf("the type of the values")
		p.sign('}')
		return Map{Key: key, Value: value}
	}
	r, qualified := p.reference(what)
	if basic, ok := basics[r.Name]; ok && !qualified {
		return basic
	}
	if r == catchRequest {
		p.sign('<')
		event := p.typeOf("the event's type")
		p.sign('>')
		return CatchRequest{Event: event}
	}
	return r
}

func parseBytes(word string) (int64, error) {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 1 {
		return 0, fault.New(fault.InvalidClause, "%q is no number of bytes; write a whole number from 1", word)
	}
	return n, nil
}

func parseParallel(word string) (int, error) {
	n, ok := parseCount(word, MaxParallel)
	if !ok || n < 1 {
		return 0, fault.New(fault.InvalidClause, "%q is no number of events; write a whole number from 1 to %d", word, MaxParallel)
	}
	return n, nil
}
