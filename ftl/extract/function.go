package extract

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// kind is what a function is by its directives.
type kind string

const (
	kindVerb   kind = "verb"
	kindSink   kind = "sink"
	kindMapper kind = "mapper"
)

// form is how a function of a kind is declared.
var form = map[kind]string{
	kindVerb:   "func Payin(ctx context.Context, req PayinRequest) (PayinResponse, error), where request and response may be left out",
	kindSink:   "func ProcessPayin(ctx context.Context, event PayinEvent) error",
	kindMapper: "func ToReceipt(ctx context.Context, event PayinEvent) (Receipt, error)",
}

// function is a function under directives.
type function struct {
	// kind is "" where the directives contradict each other.
	kind        kind
	declaration *ast.FuncDecl
	directives
}

// newFunction decides what a function is, and reports directives that do not
// fit together.
func newFunction(pass *analysis.Pass, declaration *ast.FuncDecl, over directives) *function {
	f := &function{declaration: declaration, directives: over}
	_, subscribes := over["subscribe"]
	mapping, maps := over["map"]
	served, serves := over["ingress"]
	switch {
	case subscribes && maps:
		report(pass, mapping.span, "a function is a sink or a mapper, not both; keep //ftl:subscribe or //ftl:map")
		return f
	case serves && (subscribes || maps):
		report(pass, served.span, "what takes the events of a subscription is not served over HTTP; serve a verb that calls it")
		return f
	case maps:
		f.kind = kindMapper
	case subscribes:
		f.kind = kindSink
	default:
		f.kind = kindVerb
	}
	if f.kind != kindVerb {
		return f
	}
	_, isVerb := over["verb"]
	for _, name := range []string{"retry", "deadletter"} {
		if d, ok := over[name]; ok {
			report(pass, d.span, "%s%s stands over a function without //ftl:subscribe or //ftl:map; only a sink or a mapper is retried", directivePrefix, name)
			if !isVerb && !serves {
				f.kind = "" // Most likely the other directive was forgotten.
			}
		}
	}
	return f
}

// goName is the function's name in Go.
func (f *function) goName() string { return f.declaration.Name.Name }

// name is the function's name in the schema: its own, first letters down.
func (f *function) name() string { return schema.LowerFirst(f.goName()) }

// signature is what a function takes beside its context and returns beside its
// error; nil types for nothing.
type signature struct {
	request, response types.Type
	// where has the places of both, under the given parts, and of the name.
	where places
}

// places are where the parts of a declaration stand.
type places map[schema.Part]span

// signature reads the function's parameters and results. It reports a function
// that cannot be called as its kind is, and returns nil.
func (f *function) signature(pass *analysis.Pass, requestPart schema.Part) *signature {
	name := spanOf(f.declaration.Name)
	refuse := func(at span, problem string, args ...any) *signature {
		report(pass, at, problem, args...)
		return nil
	}
	switch {
	case f.declaration.Recv != nil:
		return refuse(name, "%s %s is a method; write it as a function: %s", f.kind, f.goName(), form[f.kind])
	case f.declaration.Type.TypeParams != nil:
		return refuse(name, "%s %s has type parameters, which nobody gives when it is called; write it for one type", f.kind, f.goName())
	case !ast.IsExported(f.goName()):
		return refuse(name, "%s %s cannot be called from the module's binary, which is another package; begin its name with a capital: %s", f.kind, f.goName(), strings.ToUpper(f.goName()[:1])+f.goName()[1:])
	case !schema.IsName(f.name()):
		return refuse(name, "%s %s is called %q in the schema, where names are lowerCamel; call it %s", f.kind, f.goName(), f.name(), upperFirst(schema.LowerCamel(f.goName())))
	}
	shape := spanOf(f.declaration.Type)
	declared := pass.TypesInfo.Defs[f.declaration.Name].(*types.Func).Signature()
	params, results := declared.Params(), declared.Results()
	if params.Len() == 0 || params.Len() > 2 || declared.Variadic() || !isNamed(params.At(0).Type(), "context", "Context") {
		return refuse(shape, "%s %s does not take a context and at most one more; write it as %s", f.kind, f.goName(), form[f.kind])
	}
	if results.Len() == 0 || results.Len() > 2 || !types.Identical(results.At(results.Len()-1).Type(), types.Universe.Lookup("error").Type()) {
		return refuse(shape, "%s %s does not return an error, alone or after one value; write it as %s", f.kind, f.goName(), form[f.kind])
	}
	s := &signature{where: places{schema.PartName: name}}
	if params.Len() == 2 {
		s.request = params.At(1).Type()
		s.where[requestPart] = spanOf(typeExpression(f.declaration.Type.Params, 1))
	}
	if results.Len() == 2 {
		s.response = results.At(0).Type()
		s.where[schema.PartResponse] = spanOf(typeExpression(f.declaration.Type.Results, 0))
	}
	return s
}

// failures reads what becomes of an event that a sink or a mapper fails on.
func (f *function) failures(pass *analysis.Pass, module string, where places) (*schema.Retry, schema.Ref) {
	var retry *schema.Retry
	var deadLetter schema.Ref
	if d, ok := f.directives["retry"]; ok {
		where[schema.PartRetry] = d.arguments()
		policy, err := schema.ParseRetry(d.texts(), module)
		if err != nil {
			report(pass, d.arguments(), "%s", fault.Of(err).Message)
		} else {
			retry = &policy
			where[schema.PartCatch] = d.words[len(d.words)-1].span
		}
	}
	if d, ok := f.directives["deadletter"]; ok && d.wanted(pass, 1) {
		where[schema.PartDeadLetter] = d.words[0].span
		deadLetter = refOf(d.words[0].text, module)
	}
	return retry, deadLetter
}

// refOf reads a reference in a directive; without a module it is to the given
// one.
func refOf(text, module string) schema.Ref {
	if before, after, found := strings.Cut(text, "."); found {
		return schema.Ref{Module: before, Name: after}
	}
	return schema.Ref{Module: module, Name: text}
}

// typeExpression is the type of the n-th of a list of parameters, which may
// share one.
func typeExpression(fields *ast.FieldList, n int) ast.Expr {
	for _, field := range fields.List {
		n -= max(len(field.Names), 1)
		if n < 0 {
			return field.Type
		}
	}
	return nil
}

func isNamed(t types.Type, path, name string) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path
}

func upperFirst(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}
