package extract

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strconv"

	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// remoteTopic is a topic of another module. Export data has its variable's type
// and place; the rest is read from the one file that declares it.
type remoteTopic struct {
	ref      schema.Ref
	exported bool
	event    types.Type
}

// findRemoteTopic finds the topic of another package's variable, or says what
// is wrong with it.
func findRemoteTopic(pass *analysis.Pass, variable *types.Var) (topic *remoteTopic, problem string) {
	called := variable.Pkg().Name() + "." + variable.Name()
	event := topicEvent(variable.Type())
	if event == nil {
		return nil, called + " is no topic; subscribe to the variable that ftl.RegisterTopic was given to"
	}
	at := written(pass.Fset, variable.Pos())
	here := configOf(pass)
	owner := here.owners.ownerOf(at.Filename)
	switch {
	case owner == nil:
		return nil, fmt.Sprintf("%s is declared in package %s, which is no module; a topic stands in the folder of an ftl.toml", called, variable.Pkg().Path())
	case owner.path == here.config.path:
		return nil, fmt.Sprintf("%s is declared in a package below the module's own; declare it in the folder of ftl.toml", called)
	}
	name, exported, err := readRegistration(at.Filename, variable.Name())
	if err != nil {
		return nil, fmt.Sprintf("the topic of %s cannot be found: %s; subscribe to the variable that ftl.RegisterTopic was given to", called, err)
	}
	return &remoteTopic{ref: schema.Ref{Module: owner.Module, Name: name}, exported: exported, event: event}, ""
}

// topicEvent is E of *ftl.Topic[E], or nil.
func topicEvent(t types.Type) types.Type {
	pointer, ok := types.Unalias(t).(*types.Pointer)
	if !ok || !isNamed(pointer.Elem(), sdk, "Topic") {
		return nil
	}
	arguments := types.Unalias(pointer.Elem()).(*types.Named).TypeArgs()
	if arguments.Len() != 1 {
		return nil
	}
	return arguments.At(0)
}

// readRegistration reads, in a file, the name that a variable registers its
// topic under, and whether it is exported.
func readRegistration(file, variable string) (name string, exported bool, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", false, err
	}
	for _, declaration := range parsed.Decls {
		d, ok := declaration.(*ast.GenDecl)
		if !ok || d.Tok != token.VAR {
			continue
		}
		for _, spec := range d.Specs {
			spec := spec.(*ast.ValueSpec)
			for i, declared := range spec.Names {
				if declared.Name != variable || i >= len(spec.Values) {
					continue
				}
				doc := spec.Doc
				if !d.Lparen.IsValid() {
					doc = d.Doc
				}
				name, ok := firstLiteral(spec.Values[i])
				if !ok {
					return "", false, errors.New("its declaration has no name in quotes")
				}
				return name, hasExport(doc), nil
			}
		}
	}
	return "", false, errors.New("its file has no such variable")
}

// firstLiteral is the string literal that a call has as its first argument.
func firstLiteral(value ast.Expr) (string, bool) {
	call, ok := ast.Unparen(value).(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	literal, ok := ast.Unparen(call.Args[0]).(*ast.BasicLit)
	if !ok {
		return "", false
	}
	name, err := strconv.Unquote(literal.Value)
	return name, err == nil
}

func hasExport(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, comment := range doc.List {
		if d, ok := parseDirective(comment); ok && d.name == "export" {
			return true
		}
	}
	return false
}
