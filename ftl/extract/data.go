package extract

import (
	"go/token"
	"go/types"
	"reflect"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// dataAnalyzer turns the types of all declarations into the shapes of their
// JSON, and refuses what encoding/json cannot write and read back.
var dataAnalyzer = &analysis.Analyzer{
	Name:       "ftldata",
	Doc:        "find the data types of topics, verbs, sinks and mappers",
	Requires:   []*analysis.Analyzer{configAnalyzer, topicAnalyzer, subscriptionAnalyzer, verbAnalyzer, sinkAnalyzer, mapperAnalyzer},
	Run:        func(pass *analysis.Pass) (any, error) { return findData(pass), nil },
	ResultType: reflect.TypeFor[*shapes](),
}

// shapes are the types of a module's declarations as they stand in the schema.
type shapes struct {
	pass   *analysis.Pass
	owners *owners
	own    string
	// found are the shapes of types as seen from the module.
	found typeutil.Map
	// modules hold the data types that were met, by the module they belong to.
	modules map[string]*schema.Module
	// fields are where the data types of the module stand.
	places map[*schema.Data]places
	// met are the data types by Go type and module.
	met map[dataKey]*schema.Data
	// open are the named types that are being looked at and are no structs.
	open map[*types.Named]bool
}

// dataKey tells data types apart: a struct that belongs to no module is a data
// type of each that uses it.
type dataKey struct {
	name   *types.TypeName
	module string
}

func findData(pass *analysis.Pass) *shapes {
	here := configOf(pass)
	s := &shapes{
		pass:    pass,
		owners:  here.owners,
		own:     here.config.Module,
		modules: map[string]*schema.Module{},
		places:  map[*schema.Data]places{},
		met:     map[dataKey]*schema.Data{},
		open:    map[*types.Named]bool{},
	}
	for _, t := range pass.ResultOf[topicAnalyzer].(*topics).list {
		s.look(t.event, t.where[schema.PartEvent])
	}
	for _, v := range pass.ResultOf[verbAnalyzer].([]*verbSource) {
		s.look(v.request, v.where[schema.PartRequest])
		s.look(v.response, v.where[schema.PartResponse])
	}
	for _, k := range pass.ResultOf[sinkAnalyzer].([]*sinkSource) {
		s.look(k.event, k.where[schema.PartEvent])
	}
	for _, m := range pass.ResultOf[mapperAnalyzer].([]*mapperSource) {
		s.look(m.event, m.where[schema.PartEvent])
		s.look(m.result, m.where[schema.PartResponse])
	}
	for _, remote := range pass.ResultOf[subscriptionAnalyzer].(*subscriptions).remote {
		s.remote(remote)
	}
	return s
}

// look takes up the type of a declaration, and reports what cannot be encoded
// of it: where it stands in its struct, or at the declaration.
func (s *shapes) look(t types.Type, at span) {
	if t != nil && s.found.At(t) == nil {
		s.found.Set(t, s.typeOf(t, s.own, at))
	}
}

// of returns the shape of a declaration's type, nil for no type.
func (s *shapes) of(t types.Type) schema.Type {
	if t == nil {
		return nil
	}
	return s.found.At(t).(schema.Type)
}

// remote takes up a topic of another module.
func (s *shapes) remote(r *remoteTopic) {
	m := s.module(r.ref.Module)
	if m.Topic(r.ref.Name) == nil {
		event := s.typeOf(r.event, r.ref.Module, span{})
		m.Topics = append(m.Topics, &schema.Topic{Name: r.ref.Name, Exported: r.exported, Event: event})
	}
}

// module is what is known of a module.
func (s *shapes) module(name string) *schema.Module {
	if s.modules[name] == nil {
		s.modules[name] = &schema.Module{Name: name}
	}
	return s.modules[name]
}

// refuse reports a type that cannot be encoded, and stands in for it.
func (s *shapes) refuse(at span, problem string, args ...any) schema.Type {
	if at.pos.IsValid() {
		report(s.pass, at, problem, args...)
	}
	return schema.Any
}

// typeOf is the shape of a type that is used inside a module.
func (s *shapes) typeOf(t types.Type, module string, at span) schema.Type {
	t = types.Unalias(t)
	switch {
	case isNamed(t, "time", "Time"):
		return schema.Time
	case isNamed(t, "encoding/json", "RawMessage"):
		return schema.Any
	case isNamed(t, "encoding/json", "Number"):
		return schema.Float
	case isNamed(t, sdk, "CatchRequest"):
		return schema.CatchRequest{Event: s.typeOf(t.(*types.Named).TypeArgs().At(0), module, at)}
	}
	if shape, marshals := s.marshalled(t, false, at); marshals {
		return shape
	}
	if named, ok := t.(*types.Named); ok {
		if structure, ok := named.Underlying().(*types.Struct); ok {
			return s.data(named, structure, module, at)
		}
		if s.open[named] {
			return s.refuse(at, "%s holds itself without a struct between; wrap it in a struct", s.goType(named))
		}
		s.open[named] = true
		defer delete(s.open, named)
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return s.basic(t, u, at)
	case *types.Pointer:
		if shape, marshals := s.marshalled(types.Unalias(u.Elem()), true, at); marshals {
			return optional(shape)
		}
		return optional(s.typeOf(u.Elem(), module, at))
	case *types.Slice:
		if element, ok := u.Elem().Underlying().(*types.Basic); ok && element.Kind() == types.Byte {
			return schema.Bytes
		}
		return schema.Array{Element: s.typeOf(u.Elem(), module, at)}
	case *types.Array:
		return schema.Array{Element: s.typeOf(u.Elem(), module, at)}
	case *types.Map:
		return schema.Map{Key: s.key(u.Key(), at), Value: s.typeOf(u.Elem(), module, at)}
	case *types.Interface:
		if u.Empty() {
			return schema.Any
		}
		return s.refuse(at, "%s is an interface, which JSON cannot be read back into; write a struct, or any", s.goType(t))
	case *types.Struct:
		return s.refuse(at, "a struct without a name cannot stand in the schema; declare it as a type")
	}
	return s.refuse(at, "%s cannot be encoded as JSON; events and requests are of structs, strings, numbers, booleans, times, slices and maps", s.goType(t))
}

func (s *shapes) basic(t types.Type, basic *types.Basic, at span) schema.Type {
	switch info := basic.Info(); {
	case info&types.IsBoolean != 0:
		return schema.Bool
	case info&types.IsInteger != 0 && basic.Kind() != types.Uintptr:
		return schema.Int
	case info&types.IsFloat != 0:
		return schema.Float
	case info&types.IsString != 0:
		return schema.String
	}
	return s.refuse(at, "%s cannot be encoded as JSON; events and requests are of structs, strings, numbers, booleans, times, slices and maps", s.goType(t))
}

// key is the shape of a map's keys, which JSON writes as text.
func (s *shapes) key(t types.Type, at span) schema.Type {
	if shape, marshals := s.marshalled(types.Unalias(t), false, at); marshals && shape == schema.String {
		return schema.String
	}
	if basic, ok := t.Underlying().(*types.Basic); ok {
		switch info := basic.Info(); {
		case info&types.IsString != 0:
			return schema.String
		case info&types.IsInteger != 0 && basic.Kind() != types.Uintptr:
			return schema.Int
		}
	}
	s.refuse(at, "the keys of a map are %s, which JSON has no text for; they may be strings or whole numbers", s.goType(t))
	return schema.String
}

// marshalled is the shape of a type that writes its own JSON. Where encoding/json
// has a pointer to it, methods of the pointer count.
func (s *shapes) marshalled(t types.Type, pointed bool, at span) (schema.Type, bool) {
	if _, isPointer := t.(*types.Pointer); isPointer || types.IsInterface(t) {
		return nil, false // What it points to decides.
	}
	for _, way := range []struct {
		marshal, unmarshal string
		shape              schema.Type
	}{
		{"MarshalJSON", "UnmarshalJSON", schema.Any},
		{"MarshalText", "UnmarshalText", schema.String},
	} {
		writes, writesByPointer, path := method(t, way.marshal)
		reads, readsByPointer, _ := method(t, way.unmarshal)
		writes = writes || pointed && writesByPointer
		switch {
		case writesByPointer && !pointed:
			return s.refuse(at, "%s has the method %s on its pointer, where encoding/json does not find it in an event; declare it on %s", s.goType(t), way.marshal, s.goType(t)), true
		case writes && !reads && !readsByPointer:
			return s.refuse(at, "%s writes its JSON with %s and cannot read it back; add %s", s.goType(t), way.marshal, way.unmarshal), true
		case writes && path > 1 && fieldCount(t) > 1:
			return s.refuse(at, "%s has the method %s of a type it embeds, so its other fields are not written; give that field a name", s.goType(t), way.marshal), true
		case writes:
			return way.shape, true
		}
	}
	return nil, false
}

// method reports whether a type has a method by value, or by its pointer alone,
// and how many steps of embedding lead to it.
func method(t types.Type, name string) (byValue, byPointer bool, steps int) {
	object, path, indirect := types.LookupFieldOrMethod(t, false, nil, name)
	if _, ok := object.(*types.Func); ok {
		return true, false, len(path)
	}
	return false, indirect && object == nil && path == nil, 0
}

func fieldCount(t types.Type) int {
	if structure, ok := t.Underlying().(*types.Struct); ok {
		return structure.NumFields()
	}
	return 0
}

// data is the data type of a named struct.
func (s *shapes) data(named *types.Named, structure *types.Struct, module string, at span) schema.Type {
	if named.TypeArgs().Len() > 0 {
		return s.refuse(at, "%s has type parameters, which the schema has none of; declare a struct without", s.goType(named))
	}
	name := named.Obj()
	if owner := s.owners.ownerOf(written(s.pass.Fset, name.Pos()).Filename); owner != nil {
		module, at = owner.Module, span{}
	}
	ref := schema.Ref{Module: module, Name: name.Name()}
	key := dataKey{name, module}
	if s.met[key] != nil {
		return ref
	}
	d := &schema.Data{Name: ref.Name}
	s.met[key] = d
	m := s.module(module)
	m.Data = append(m.Data, d)
	s.places[d] = places{schema.PartName: nameSpan(name)}
	d.Fields = s.fields(&structSource{s.goType(named), module, at}, structure)
	return ref
}

// goType is how a type is written in the module's source.
func (s *shapes) goType(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == s.pass.Pkg {
			return ""
		}
		return p.Name()
	})
}

func optional(t schema.Type) schema.Type {
	if _, already := t.(schema.Optional); already {
		return t
	}
	return schema.Optional{Of: t}
}

// nameSpan is where an object is named.
func nameSpan(object types.Object) span {
	return span{object.Pos(), object.Pos() + token.Pos(len(object.Name()))}
}
