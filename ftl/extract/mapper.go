package extract

import (
	"go/types"
	"reflect"

	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// mapperAnalyzer finds mappers: functions under //ftl:map, which take an event
// of a subscription and return one of a topic.
var mapperAnalyzer = &analysis.Analyzer{
	Name:       "ftlmapper",
	Doc:        "find mappers, which are functions under //ftl:map",
	Requires:   []*analysis.Analyzer{configAnalyzer, directiveAnalyzer},
	Run:        func(pass *analysis.Pass) (any, error) { return findMappers(pass), nil },
	ResultType: reflect.TypeFor[[]*mapperSource](),
}

// mapperSource is a mapper in the source. Its schema.Mapper has no types and no
// +publish yet.
type mapperSource struct {
	mapper        *schema.Mapper
	function      *types.Func
	event, result types.Type
	where         places
}

func findMappers(pass *analysis.Pass) []*mapperSource {
	var found []*mapperSource
	for _, f := range pass.ResultOf[directiveAnalyzer].(*carriers).ofKind(kindMapper) {
		s := f.signature(pass, schema.PartEvent)
		d := f.directives["map"]
		if s == nil || !d.wanted(pass, 2) {
			continue
		}
		if s.request == nil || s.response == nil {
			report(pass, s.where[schema.PartName], "mapper %s does not take an event and return what it makes of it; write it as %s", f.goName(), form[kindMapper])
			continue
		}
		s.where[schema.PartSubscribe] = d.words[0].span
		s.where[schema.PartMap] = d.words[1].span
		module := configOf(pass).config.Module
		mapper := &schema.Mapper{Name: f.name(), Subscription: d.words[0].text, Topic: refOf(d.words[1].text, module)}
		mapper.Retry, mapper.DeadLetter = f.failures(pass, module, s.where)
		found = append(found, &mapperSource{
			mapper:   mapper,
			function: pass.TypesInfo.Defs[f.declaration.Name].(*types.Func),
			event:    s.request,
			result:   s.response,
			where:    s.where,
		})
	}
	return found
}
