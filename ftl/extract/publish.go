package extract

import (
	"cmp"
	"go/ast"
	"go/types"
	"reflect"
	"slices"

	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// publishAnalyzer finds which topics each function of the package publishes to,
// by itself or through what it can reach, and refuses topics of other modules.
var publishAnalyzer = &analysis.Analyzer{
	Name:       "ftlpublish",
	Doc:        "find the topics that functions publish to",
	Requires:   []*analysis.Analyzer{configAnalyzer, topicAnalyzer},
	Run:        func(pass *analysis.Pass) (any, error) { return findPublishes(pass), nil },
	ResultType: reflect.TypeFor[*publishes](),
}

// publishes is what the bodies of functions, and the values of package
// variables, mention: the topics, and each other.
type publishes struct {
	module   string
	topics   map[types.Object][]string
	mentions map[types.Object][]types.Object
}

// by returns the topics that a function publishes to, by name.
func (p *publishes) by(function types.Object) []schema.Ref {
	var refs []schema.Ref
	seen := map[types.Object]bool{}
	var visit func(types.Object)
	visit = func(object types.Object) {
		if seen[object] {
			return
		}
		seen[object] = true
		for _, topic := range p.topics[object] {
			refs = append(refs, schema.Ref{Module: p.module, Name: topic})
		}
		for _, mentioned := range p.mentions[object] {
			visit(mentioned)
		}
	}
	visit(function)
	slices.SortFunc(refs, func(a, b schema.Ref) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Compact(refs)
}

func findPublishes(pass *analysis.Pass) *publishes {
	p := &publishes{
		module:   configOf(pass).config.Module,
		topics:   map[types.Object][]string{},
		mentions: map[types.Object][]types.Object{},
	}
	for _, file := range pass.Files {
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Body != nil {
					p.read(pass, pass.TypesInfo.Defs[d.Name], d.Body)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					spec, ok := spec.(*ast.ValueSpec)
					if !ok {
						continue
					}
					for i, name := range spec.Names {
						if i < len(spec.Values) && !declares(pass, name) {
							p.read(pass, pass.TypesInfo.Defs[name], spec.Values[i])
						}
					}
				}
			}
		}
	}
	return p
}

// declares reports whether a variable is a topic or a subscription, whose value
// mentions a topic without publishing to it.
func declares(pass *analysis.Pass, name *ast.Ident) bool {
	object := pass.TypesInfo.Defs[name]
	if object == nil {
		return false
	}
	pointer, ok := types.Unalias(object.Type()).(*types.Pointer)
	return ok && (isNamed(pointer.Elem(), sdk, "Topic") || isNamed(pointer.Elem(), sdk, "Subscription"))
}

// read notes what the body of a function, or the value of a variable, mentions.
func (p *publishes) read(pass *analysis.Pass, owner types.Object, body ast.Node) {
	declared := pass.ResultOf[topicAnalyzer].(*topics)
	harmless := map[*ast.Ident]bool{}
	ast.Inspect(body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			// A verb that is called by name publishes for itself.
			if called := calledName(node); called != nil && isSDK(pass.TypesInfo.Uses[called], "Call") && len(node.Args) > 1 {
				harmless[innermost(node.Args[1])] = true
			}
		case *ast.SelectorExpr:
			// Asking a topic for its name publishes nothing.
			if topic := innermost(node.X); topic != nil && node.Sel.Name != "Publish" && isTopic(pass.TypesInfo.Uses[topic]) {
				harmless[topic] = true
			}
		case *ast.Ident:
			if harmless[node] {
				return true
			}
			switch object := pass.TypesInfo.Uses[node].(type) {
			case *types.Var:
				p.variable(pass, declared, owner, node, object)
			case *types.Func:
				p.mentions[owner] = append(p.mentions[owner], reachable(pass, object)...)
			}
		}
		return true
	})
}

// variable notes the mention of a variable of a package.
func (p *publishes) variable(pass *analysis.Pass, declared *topics, owner types.Object, name *ast.Ident, variable *types.Var) {
	if variable.Pkg() == nil || variable.Parent() != variable.Pkg().Scope() {
		return
	}
	if variable.Pkg() == pass.Pkg {
		if topic := declared.of(variable); topic != nil {
			p.topics[owner] = append(p.topics[owner], topic.topic.Name)
		} else {
			p.mentions[owner] = append(p.mentions[owner], variable)
		}
		return
	}
	if !isTopic(variable) {
		return
	}
	called := variable.Pkg().Name() + "." + variable.Name()
	if remote, problem := findRemoteTopic(pass, variable); problem == "" {
		called = remote.ref.String()
	}
	report(pass, spanOf(name), "module %s publishes to topic %s of another module, and a topic has one owner; let that module publish, or publish to a topic of %s", p.module, called, p.module)
}

// innermost is the identifier that names a package's variable in an expression.
func innermost(expression ast.Expr) *ast.Ident {
	switch e := ast.Unparen(expression).(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	}
	return nil
}

func isTopic(object types.Object) bool {
	variable, ok := object.(*types.Var)
	return ok && topicEvent(variable.Type()) != nil
}

// reachable are the functions of the package that a mentioned function may be:
// itself, or the methods behind one of an interface.
func reachable(pass *analysis.Pass, function *types.Func) []types.Object {
	function = function.Origin()
	receiver := function.Signature().Recv()
	if receiver == nil || !types.IsInterface(receiver.Type()) {
		if function.Pkg() != pass.Pkg {
			return nil
		}
		return []types.Object{function}
	}
	contract, ok := receiver.Type().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	var methods []types.Object
	scope := pass.Pkg.Scope()
	for _, name := range scope.Names() {
		named, ok := scope.Lookup(name).(*types.TypeName)
		if !ok || types.IsInterface(named.Type()) || !types.Implements(types.NewPointer(named.Type()), contract) {
			continue
		}
		if method, _, _ := types.LookupFieldOrMethod(named.Type(), true, pass.Pkg, function.Name()); method != nil {
			methods = append(methods, method)
		}
	}
	return methods
}
