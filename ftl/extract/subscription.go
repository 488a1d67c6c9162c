package extract

import (
	"go/ast"
	"go/types"
	"reflect"

	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// subscriptionAnalyzer finds subscriptions: package variables of what
// RegisterSubscription returns, to a topic of this module or of another.
var subscriptionAnalyzer = &analysis.Analyzer{
	Name:       "ftlsubscription",
	Doc:        "find subscriptions, which are variables of ftl.RegisterSubscription",
	Requires:   []*analysis.Analyzer{configAnalyzer, topicAnalyzer},
	Run:        func(pass *analysis.Pass) (any, error) { return findSubscriptions(pass), nil },
	ResultType: reflect.TypeFor[*subscriptions](),
}

// subscriptionSource is a subscription in the source.
type subscriptionSource struct {
	subscription *schema.Subscription
	where        places
}

// subscriptions are a package's, with the topics of other modules that they
// are to.
type subscriptions struct {
	list   []*subscriptionSource
	remote []*remoteTopic
}

func findSubscriptions(pass *analysis.Pass) *subscriptions {
	found := &subscriptions{}
	for _, r := range registrations(pass, "RegisterSubscription") {
		name, at, ok := nameLiteral(pass, "subscription", r.call, 1)
		if !ok {
			continue
		}
		topic, remote := subscribedTopic(pass, r.call.Args[0])
		if topic == (schema.Ref{}) {
			continue
		}
		if remote != nil {
			found.remote = append(found.remote, remote)
		}
		s := &subscriptionSource{
			subscription: &schema.Subscription{Name: name, Topic: topic},
			where: places{
				schema.PartName:     at,
				schema.PartTopic:    spanOf(r.call.Args[0]),
				schema.PartParallel: spanOf(r.call),
			},
		}
		o := options{pass: pass, of: "subscription " + name, accepted: "ftl.FromLatest and ftl.Parallel(n)"}
		o.each(r.call.Args[2:], func(option string, argument ast.Expr) bool {
			switch option {
			case "FromLatest":
				s.subscription.FromLatest = true
			case "Parallel":
				if n, ok := o.number(argument); ok {
					s.subscription.Parallel = int(n)
					s.where[schema.PartParallel] = spanOf(argument)
					o.positive(argument, n)
				}
			default:
				return false
			}
			return true
		})
		found.list = append(found.list, s)
	}
	return found
}

// subscribedTopic finds the topic whose variable is subscribed to. It reports
// what is none, and returns the zero Ref.
func subscribedTopic(pass *analysis.Pass, expression ast.Expr) (schema.Ref, *remoteTopic) {
	refuse := func(problem string, args ...any) (schema.Ref, *remoteTopic) {
		report(pass, spanOf(expression), problem, args...)
		return schema.Ref{}, nil
	}
	variable := packageVariable(pass.TypesInfo, expression)
	if variable == nil {
		return refuse("a subscription is to no variable of a topic; write the variable that ftl.RegisterTopic was given to, as in payins or payments.Payins")
	}
	if variable.Pkg() == pass.Pkg {
		topic := pass.ResultOf[topicAnalyzer].(*topics).of(variable)
		if topic == nil {
			return refuse("%s is no topic's variable; write the one that ftl.RegisterTopic was given to", variable.Name())
		}
		return schema.Ref{Module: configOf(pass).config.Module, Name: topic.topic.Name}, nil
	}
	remote, problem := findRemoteTopic(pass, variable)
	if problem != "" {
		return refuse("%s", problem)
	}
	return remote.ref, remote
}

// packageVariable returns the package variable that an expression names, or
// nil.
func packageVariable(info *types.Info, expression ast.Expr) *types.Var {
	name, _ := ast.Unparen(expression).(*ast.Ident)
	if selector, ok := ast.Unparen(expression).(*ast.SelectorExpr); ok {
		name = selector.Sel
	}
	if name == nil {
		return nil
	}
	variable, ok := info.Uses[name].(*types.Var)
	if !ok || variable.Pkg() == nil || variable.Parent() != variable.Pkg().Scope() {
		return nil
	}
	return variable
}
