package extract

import (
	"go/types"
	"reflect"

	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// sinkAnalyzer finds sinks: functions under //ftl:subscribe, which take an
// event and return nothing but an error.
var sinkAnalyzer = &analysis.Analyzer{
	Name:       "ftlsink",
	Doc:        "find sinks, which are functions under //ftl:subscribe",
	Requires:   []*analysis.Analyzer{configAnalyzer, directiveAnalyzer},
	Run:        func(pass *analysis.Pass) (any, error) { return findSinks(pass), nil },
	ResultType: reflect.TypeFor[[]*sinkSource](),
}

// sinkSource is a sink in the source. Its schema.Sink has no type and no
// +publish yet.
type sinkSource struct {
	sink     *schema.Sink
	function *types.Func
	event    types.Type
	where    places
}

func findSinks(pass *analysis.Pass) []*sinkSource {
	var found []*sinkSource
	for _, f := range pass.ResultOf[directiveAnalyzer].(*carriers).ofKind(kindSink) {
		s := f.signature(pass, schema.PartEvent)
		subscribe := f.directives["subscribe"]
		if s == nil || !subscribe.wanted(pass, 1) {
			continue
		}
		if s.response != nil {
			report(pass, s.where[schema.PartResponse], "sink %s has a response, which nobody takes; return an error alone, or write //ftl:map %s and a topic to fill one", f.goName(), subscribe.words[0].text)
			continue
		}
		if s.request == nil {
			report(pass, s.where[schema.PartName], "sink %s takes no event; write it as %s", f.goName(), form[kindSink])
			continue
		}
		s.where[schema.PartSubscribe] = subscribe.words[0].span
		sink := &schema.Sink{Name: f.name(), Subscription: subscribe.words[0].text}
		sink.Retry, sink.DeadLetter = f.failures(pass, configOf(pass).config.Module, s.where)
		found = append(found, &sinkSource{
			sink:     sink,
			function: pass.TypesInfo.Defs[f.declaration.Name].(*types.Func),
			event:    s.request,
			where:    s.where,
		})
	}
	return found
}
