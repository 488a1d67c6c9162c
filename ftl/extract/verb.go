package extract

import (
	"go/types"
	"reflect"

	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// verbAnalyzer finds verbs: functions under //ftl:verb or //ftl:ingress that
// take no events.
var verbAnalyzer = &analysis.Analyzer{
	Name:       "ftlverb",
	Doc:        "find verbs, which are functions under //ftl:verb or //ftl:ingress",
	Requires:   []*analysis.Analyzer{directiveAnalyzer},
	Run:        func(pass *analysis.Pass) (any, error) { return findVerbs(pass), nil },
	ResultType: reflect.TypeFor[[]*verbSource](),
}

// verbSource is a verb in the source. Its schema.Verb has no types and no
// +publish yet.
type verbSource struct {
	verb              *schema.Verb
	function          *types.Func
	request, response types.Type
	where             places
}

func findVerbs(pass *analysis.Pass) []*verbSource {
	var found []*verbSource
	for _, f := range pass.ResultOf[directiveAnalyzer].(*carriers).ofKind(kindVerb) {
		s := f.signature(pass, schema.PartRequest)
		if s == nil {
			continue
		}
		if d, ok := f.directives["verb"]; ok {
			d.wanted(pass, 0)
		}
		found = append(found, &verbSource{
			verb:     &schema.Verb{Name: f.name(), Ingress: f.ingress(pass, s.where)},
			function: pass.TypesInfo.Defs[f.declaration.Name].(*types.Func),
			request:  s.request,
			response: s.response,
			where:    s.where,
		})
	}
	return found
}

// ingress reads where a verb is served.
func (f *function) ingress(pass *analysis.Pass, where places) *schema.Ingress {
	d, ok := f.directives["ingress"]
	if !ok {
		return nil
	}
	if len(d.words) > 0 && d.words[0].text == "http" {
		d.words = d.words[1:] // As the schema's text has it.
	}
	if !d.wanted(pass, 2) {
		return nil
	}
	where[schema.PartIngress] = d.arguments()
	i := &schema.Ingress{Method: d.words[0].text, Path: d.words[1].text}
	if err := i.Check(); err != nil {
		report(pass, d.arguments(), "%s", fault.Of(err).Message)
		return nil
	}
	return i
}
