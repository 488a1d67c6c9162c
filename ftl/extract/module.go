package extract

import (
	"fmt"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// moduleAnalyzer puts a module together from what the others found, and reports
// the problems that the schema has.
var moduleAnalyzer = &analysis.Analyzer{
	Name: "ftlmodule",
	Doc:  "check what a module declares",
	Requires: []*analysis.Analyzer{
		configAnalyzer, topicAnalyzer, subscriptionAnalyzer, verbAnalyzer, sinkAnalyzer, mapperAnalyzer, publishAnalyzer, dataAnalyzer,
	},
	Run:        func(pass *analysis.Pass) (any, error) { return assemble(pass), nil },
	ResultType: reflect.TypeFor[*Module](),
}

// strayAnalyzer refuses declarations in packages below a module's folder.
var strayAnalyzer = &analysis.Analyzer{
	Name:     "ftlstray",
	Doc:      "refuse declarations outside the module's own package",
	Requires: []*analysis.Analyzer{configAnalyzer, topicAnalyzer, directiveAnalyzer, publishAnalyzer},
	Run:      func(pass *analysis.Pass) (any, error) { refuseStrays(pass); return nil, nil },
}

// analyse runs the analysers over a module's packages.
func (s *source) analyse() (*Module, Diagnostics) {
	var diagnostics Diagnostics
	var module *Module
	run := func(analyzer *analysis.Analyzer, loaded ...*packages.Package) {
		graph, err := checker.Analyze([]*analysis.Analyzer{analyzer}, loaded, &checker.Options{Sequential: true})
		if err != nil {
			panic(fmt.Sprintf("extract: the analysers do not fit together: %v", err))
		}
		for action := range graph.All() {
			if action.Err != nil {
				diagnostics = append(diagnostics, Diagnostic{Position: s.config.position(), Message: action.Err.Error()})
			}
			for _, d := range action.Diagnostics {
				diagnostics = append(diagnostics, s.diagnostic(d))
			}
			if found, ok := action.Result.(*Module); ok {
				module = found
			}
		}
	}
	run(moduleAnalyzer, s.declaring)
	run(strayAnalyzer, s.others...)
	if len(diagnostics) > 0 {
		return nil, diagnostics
	}
	return module, nil
}

func (s *source) diagnostic(d analysis.Diagnostic) Diagnostic {
	found := placed(s.declaring.Fset, span{d.Pos, d.End})
	found.Message = d.Message
	return found
}

// placed is a diagnostic at a piece of the source, without a message.
func placed(files *token.FileSet, at span) Diagnostic {
	start, end := written(files, at.pos), written(files, at.end)
	found := Diagnostic{Position: start}
	if at.end.IsValid() && end.Line == start.Line {
		found.End = end.Column
	}
	return found
}

// report reports a problem at a piece of the source.
func report(pass *analysis.Pass, at span, problem string, args ...any) {
	pass.Report(analysis.Diagnostic{Pos: at.pos, End: at.end, Message: fmt.Sprintf(problem, args...)})
}

// assembly is a module in the making.
type assembly struct {
	pass   *analysis.Pass
	module *Module
	shapes *shapes
	// where are the places of each declaration.
	where map[any]places
}

func assemble(pass *analysis.Pass) *Module {
	here := configOf(pass)
	a := &assembly{
		pass: pass,
		module: &Module{
			Schema:     &schema.Module{Name: here.config.Module},
			Dir:        filepath.Dir(here.config.path),
			ImportPath: pass.Pkg.Path(),
			Package:    pass.Pkg.Name(),
			Functions:  map[string]string{},
			served:     map[*schema.Verb]Diagnostic{},
		},
		shapes: pass.ResultOf[dataAnalyzer].(*shapes),
		where:  map[any]places{},
	}
	a.packageName()
	a.topics()
	a.functions()
	a.data()
	for _, problem := range a.surroundings().Problems() {
		if problem.Module == here.config.Module {
			a.report(problem)
		}
	}
	return a.module
}

// packageName refuses a module that its binary, which is another package, cannot
// import.
func (a *assembly) packageName() {
	if a.pass.Pkg.Name() == "main" {
		file := a.pass.Files[len(a.pass.Files)-1] // The first may be one of cgo's.
		report(a.pass, spanOf(file.Name), "the module's package is main, which its binary cannot import; call it %s", strings.ToLower(a.module.Schema.Name))
	}
}

func (a *assembly) topics() {
	m := a.module.Schema
	for _, t := range a.pass.ResultOf[topicAnalyzer].(*topics).list {
		t.topic.Event = a.shapes.of(t.event)
		m.Topics = append(m.Topics, t.topic)
		a.where[t.topic] = t.where
	}
	for _, s := range a.pass.ResultOf[subscriptionAnalyzer].(*subscriptions).list {
		m.Subscriptions = append(m.Subscriptions, s.subscription)
		a.where[s.subscription] = s.where
	}
}

func (a *assembly) functions() {
	m := a.module.Schema
	published := a.pass.ResultOf[publishAnalyzer].(*publishes)
	for _, v := range a.pass.ResultOf[verbAnalyzer].([]*verbSource) {
		v.verb.Request, v.verb.Response = a.shapes.of(v.request), a.shapes.of(v.response)
		v.verb.Publish = published.by(v.function)
		m.Verbs = append(m.Verbs, v.verb)
		a.function(v.verb, v.verb.Name, v.function.Name(), v.where)
		if v.verb.Ingress != nil {
			a.module.served[v.verb] = placed(a.pass.Fset, v.where[schema.PartIngress])
		}
	}
	for _, s := range a.pass.ResultOf[sinkAnalyzer].([]*sinkSource) {
		s.sink.Event = a.shapes.of(s.event)
		s.sink.Publish = published.by(s.function)
		m.Sinks = append(m.Sinks, s.sink)
		a.function(s.sink, s.sink.Name, s.function.Name(), s.where)
	}
	for _, p := range a.pass.ResultOf[mapperAnalyzer].([]*mapperSource) {
		p.mapper.Event, p.mapper.Result = a.shapes.of(p.event), a.shapes.of(p.result)
		p.mapper.Publish = published.by(p.function)
		m.Mappers = append(m.Mappers, p.mapper)
		a.function(p.mapper, p.mapper.Name, p.function.Name(), p.where)
	}
}

func (a *assembly) function(declaration any, name, goName string, where places) {
	a.module.Functions[name] = goName
	a.where[declaration] = where
}

// data takes over the module's own data types.
func (a *assembly) data() {
	if own := a.shapes.modules[a.module.Schema.Name]; own != nil {
		a.module.Schema.Data = own.Data
	}
	for data, where := range a.shapes.places {
		a.where[data] = where
	}
}

// surroundings are the module and what is known of those it refers to.
func (a *assembly) surroundings() *schema.Schema {
	s := &schema.Schema{Modules: []*schema.Module{a.module.Schema}}
	for name, m := range a.shapes.modules {
		if name != a.module.Schema.Name {
			s.Modules = append(s.Modules, m)
		}
	}
	return s
}

// report reports a problem of the schema where its part stands.
func (a *assembly) report(p schema.Problem) {
	where := a.where[p.Declaration]
	at, ok := where[p.Part]
	if !ok {
		at = where[schema.PartName]
	}
	message := p.Sentence
	if p.Accepted != "" {
		message += "; " + p.Accepted
	}
	report(a.pass, at, "%s", message)
}

func refuseStrays(pass *analysis.Pass) {
	const where = "the module's declarations stand in the folder of ftl.toml, where its binary finds them"
	for _, f := range pass.ResultOf[directiveAnalyzer].(*carriers).functions {
		report(pass, spanOf(f.declaration.Name), "%s is declared in package %s; %s", f.goName(), pass.Pkg.Name(), where)
	}
	for _, t := range pass.ResultOf[topicAnalyzer].(*topics).list {
		report(pass, t.where[schema.PartName], "topic %s is declared in package %s; %s", t.topic.Name, pass.Pkg.Name(), where)
	}
	for _, r := range registrations(pass, "RegisterSubscription") {
		report(pass, spanOf(r.variable), "subscription %s is declared in package %s; %s", r.variable.Name, pass.Pkg.Name(), where)
	}
}
