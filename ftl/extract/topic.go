package extract

import (
	"go/ast"
	"go/constant"
	"go/types"
	"reflect"
	"strconv"
	"strings"
	"time"

	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// sdk is the package that modules import.
const sdk = "github.com/tidemarkdb/tidemark/ftl"

// topicAnalyzer finds topics: package variables of what RegisterTopic returns.
// A topic's name is a string literal, and its variable is called as the topic,
// with the first letter up where it is exported.
var topicAnalyzer = &analysis.Analyzer{
	Name:       "ftltopic",
	Doc:        "find topics, which are variables of ftl.RegisterTopic",
	Requires:   []*analysis.Analyzer{directiveAnalyzer},
	Run:        func(pass *analysis.Pass) (any, error) { return findTopics(pass), nil },
	ResultType: reflect.TypeFor[*topics](),
}

// topicSource is a topic in the source. Its schema.Topic has no event type yet.
type topicSource struct {
	topic    *schema.Topic
	variable types.Object
	event    types.Type
	where    places
}

// topics are a package's, in the order of the source.
type topics struct{ list []*topicSource }

// of returns the topic of a variable, or nil.
func (ts *topics) of(variable types.Object) *topicSource {
	for _, t := range ts.list {
		if t.variable == variable {
			return t
		}
	}
	return nil
}

func findTopics(pass *analysis.Pass) *topics {
	over := pass.ResultOf[directiveAnalyzer].(*carriers).variables
	found := &topics{}
	isTopic := map[*ast.ValueSpec]bool{}
	for _, r := range registrations(pass, "RegisterTopic") {
		isTopic[r.spec] = true
		if t := readTopic(pass, r, over[r.spec]); t != nil {
			found.list = append(found.list, t)
		}
	}
	for spec, ds := range over {
		if export, ok := ds["export"]; ok && !isTopic[spec] {
			report(pass, export.span, "//ftl:export stands over %s, which is no topic; only topics are exported", spec.Names[0].Name)
		}
	}
	return found
}

func readTopic(pass *analysis.Pass, r registration, over directives) *topicSource {
	name, at, ok := nameLiteral(pass, "topic", r.call, 0)
	if !ok {
		return nil
	}
	_, exported := over["export"]
	t := &topicSource{
		topic:    &schema.Topic{Name: name, Exported: exported},
		variable: pass.TypesInfo.Defs[r.variable],
		event:    r.typeArgument,
		where:    places{schema.PartName: at, schema.PartEvent: at, schema.PartRetain: spanOf(r.call)},
	}
	if index, ok := r.call.Fun.(*ast.IndexExpr); ok {
		t.where[schema.PartEvent] = spanOf(index.Index)
	}
	if schema.IsName(name) {
		checkVariable(pass, r.variable, name, exported)
	}
	o := options{pass: pass, of: "topic " + name, accepted: "ftl.Retain(d) and ftl.RetainBytes(n)"}
	o.each(r.call.Args[1:], func(option string, argument ast.Expr) bool {
		switch option {
		case "Retain":
			if n, ok := o.number(argument); ok {
				t.topic.Retain = time.Duration(n)
				o.positive(argument, n)
			}
		case "RetainBytes":
			if n, ok := o.number(argument); ok {
				t.topic.RetainBytes = n
				o.positive(argument, n)
			}
		default:
			return false
		}
		return true
	})
	return t
}

// checkVariable checks that a topic's variable carries its name.
func checkVariable(pass *analysis.Pass, variable *ast.Ident, name string, exported bool) {
	want := name
	if exported {
		want = upperFirst(name)
	}
	if variable.Name == want {
		return
	}
	if !exported && variable.Name == upperFirst(name) {
		report(pass, spanOf(variable), "the variable of topic %s begins with a capital, but the topic is not exported; call it %s, or write //ftl:export above it", name, want)
		return
	}
	report(pass, spanOf(variable), "the variable of topic %s is called %s; a topic's variable carries its name: call it %s", name, variable.Name, want)
}

// registration is a package variable of what a function of the SDK returns.
type registration struct {
	spec         *ast.ValueSpec
	variable     *ast.Ident
	call         *ast.CallExpr
	typeArgument types.Type
}

// registrations finds the package variables that call a function of the SDK,
// and reports its uses anywhere else: what they declare would not be found.
func registrations(pass *analysis.Pass, function string) []registration {
	var found []registration
	declaring := map[*ast.Ident]bool{}
	for _, file := range pass.Files {
		for _, declaration := range file.Decls {
			d, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range d.Specs {
				spec, ok := spec.(*ast.ValueSpec)
				if !ok || len(spec.Names) != len(spec.Values) {
					continue
				}
				for i, value := range spec.Values {
					call, ok := ast.Unparen(value).(*ast.CallExpr)
					if !ok {
						continue
					}
					called := calledName(call)
					if called == nil || !isSDK(pass.TypesInfo.Uses[called], function) {
						continue
					}
					declaring[called] = true
					r := registration{spec: spec, variable: spec.Names[i], call: call}
					if arguments := pass.TypesInfo.Instances[called].TypeArgs; arguments.Len() == 1 {
						r.typeArgument = arguments.At(0)
					}
					found = append(found, r)
				}
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if name, ok := node.(*ast.Ident); ok && !declaring[name] && isSDK(pass.TypesInfo.Uses[name], function) {
				report(pass, spanOf(name), "ftl.%s stands here as no package variable's value, so that nothing is declared; write var name = ftl.%s… at the top of the file", function, function)
			}
			return true
		})
	}
	return found
}

// calledName is the name of the function that is called, without its package
// and its type arguments.
func calledName(call *ast.CallExpr) *ast.Ident {
	f := ast.Unparen(call.Fun)
	switch indexed := f.(type) {
	case *ast.IndexExpr:
		f = ast.Unparen(indexed.X)
	case *ast.IndexListExpr:
		f = ast.Unparen(indexed.X)
	}
	switch f := f.(type) {
	case *ast.SelectorExpr:
		return f.Sel
	case *ast.Ident:
		return f
	}
	return nil
}

// isSDK reports whether an object is the SDK's of that name.
func isSDK(object types.Object, name string) bool {
	return object != nil && object.Name() == name && object.Pkg() != nil && object.Pkg().Path() == sdk && object.Parent() == object.Pkg().Scope()
}

// nameLiteral reads the argument that names a declaration.
func nameLiteral(pass *analysis.Pass, kind string, call *ast.CallExpr, n int) (string, span, bool) {
	if n >= len(call.Args) {
		return "", span{}, false
	}
	literal, ok := ast.Unparen(call.Args[n]).(*ast.BasicLit)
	if !ok {
		example := strconv.Quote("payins")
		if value := pass.TypesInfo.Types[call.Args[n]].Value; value != nil && value.Kind() == constant.String {
			example = strconv.Quote(constant.StringVal(value))
		}
		report(pass, spanOf(call.Args[n]), "the name of a %s is no string literal; write it here: %s", kind, example)
		return "", span{}, false
	}
	name, err := strconv.Unquote(literal.Value)
	return name, spanOf(literal), err == nil
}

// options are what stands after a registration's name.
type options struct {
	pass *analysis.Pass
	// of is what they belong to, and accepted what may stand there.
	of, accepted string
}

// each calls read with the name of each option and its argument, nil where it
// has none. What read does not know, and what stands twice, is reported.
func (o options) each(arguments []ast.Expr, read func(option string, argument ast.Expr) bool) {
	seen := map[string]bool{}
	for _, expression := range arguments {
		var argument ast.Expr
		name, _ := ast.Unparen(expression).(*ast.Ident)
		switch e := ast.Unparen(expression).(type) {
		case *ast.SelectorExpr:
			name = e.Sel
		case *ast.CallExpr:
			name = calledName(e)
			if len(e.Args) == 1 {
				argument = e.Args[0]
			}
		}
		switch {
		case name == nil || !isSDK(o.pass.TypesInfo.Uses[name], name.Name) || !read(name.Name, argument):
			report(o.pass, spanOf(expression), "the options of %s are read from the source; write %s here", o.of, o.accepted)
		case seen[name.Name]:
			report(o.pass, spanOf(expression), "ftl.%s stands twice for %s; leave one out", name.Name, o.of)
		default:
			seen[name.Name] = true
		}
	}
}

// number reads an option's argument, which is a constant.
func (o options) number(argument ast.Expr) (int64, bool) {
	if value := o.pass.TypesInfo.Types[argument].Value; value != nil {
		if n, exact := constant.Int64Val(constant.ToInt(value)); exact {
			return n, true
		}
	}
	report(o.pass, spanOf(argument), "an option of %s is no constant; write its value here", o.of)
	return 0, false
}

// positive reports a bound that would mean nothing.
func (o options) positive(argument ast.Expr, n int64) {
	if n <= 0 {
		report(o.pass, spanOf(argument), "a bound of %s is %s; it must be more than 0, or left out", o.of, strings.TrimSpace(o.pass.TypesInfo.Types[argument].Value.String()))
	}
}
