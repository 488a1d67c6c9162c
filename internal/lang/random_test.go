package lang

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/value"
	"github.com/tidemarkdb/tidemark/value/valuetest"
)

// Trees are generated as the parser builds them: constants are literals, and a
// path does not begin in a path.

func names() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "d", "u", "consumer", "consumers", "limit", "from", "if", "overwrite", "select", "none", "not", "database", "retain", "in", "where", "bytes", "drop", "Order"}),
		rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,5}`),
		rapid.StringN(1, 4, 12),
	)
}

func fieldPaths() *rapid.Generator[value.Path] {
	return rapid.Map(rapid.SliceOfN(names(), 1, 3), func(names []string) value.Path { return names })
}

// constants are values that have a literal: no table is without a name, and no
// field of an object holds none.
func constants(depth int) *rapid.Generator[value.Value] {
	scalars := valuetest.Scalar().Filter(func(v value.Value) bool {
		id, ok := v.AsRecord()
		return !ok || id.Table != ""
	})
	if depth == 0 {
		return scalars
	}
	inner := constants(depth - 1)
	return rapid.OneOf(
		scalars,
		scalars,
		rapid.Map(rapid.SliceOfN(inner, 0, 3), func(elements []value.Value) value.Value { return value.Array(elements...) }),
		rapid.Map(rapid.MapOfN(valuetest.Name(), inner, 0, 3), func(fields map[string]value.Value) value.Value {
			maps.DeleteFunc(fields, func(_ string, v value.Value) bool { return v.IsNone() })
			return value.Fields(fields)
		}),
	)
}

func parameters() *rapid.Generator[Expression] {
	return rapid.Map(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,5}`), func(name string) Expression { return &Parameter{Name: name} })
}

// quoted are the expressions that parseQuoted reads.
func quoted() *rapid.Generator[Expression] {
	return rapid.OneOf(parameters(), rapid.Map(rapid.String(), func(s string) Expression { return &Literal{Value: value.String(s)} }))
}

func isLiteral(e Expression) bool { _, ok := e.(*Literal); return ok }

func expressions(depth int) *rapid.Generator[Expression] {
	all := []*rapid.Generator[Expression]{
		rapid.Map(constants(min(depth, 2)), func(v value.Value) Expression { return &Literal{Value: v} }),
		parameters(),
		rapid.Map(names(), func(name string) Expression { return &Path{Parts: []Part{{Field: name}}} }),
		rapid.Custom(func(t *rapid.T) Expression {
			return &RecordExpression{Table: names().Draw(t, "table"), Key: parameters().Draw(t, "key")}
		}),
	}
	if depth == 0 {
		return rapid.OneOf(all...)
	}
	inner := rapid.Deferred(func() *rapid.Generator[Expression] { return expressions(depth - 1) })
	binary := rapid.Custom(func(t *rapid.T) Expression {
		operator := rapid.SampledFrom([]Operator{Or, And, Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, In, Contains, Add, Subtract, Multiply, Divide, Remainder}).Draw(t, "operator")
		return &Binary{Operator: operator, Left: inner.Draw(t, "left"), Right: inner.Draw(t, "right")}
	})
	all = append(all, binary, binary,
		rapid.Custom(func(t *rapid.T) Expression {
			return &Unary{Operator: rapid.SampledFrom([]Operator{Not, Negate}).Draw(t, "operator"), Operand: inner.Draw(t, "operand")}
		}),
		rapid.Custom(func(t *rapid.T) Expression {
			path := &Path{}
			if root := inner.Draw(t, "root"); rapid.Bool().Draw(t, "rooted") {
				path.Root = root
			}
			if nested, ok := path.Root.(*Path); ok {
				path.Root, path.Parts = nested.Root, append(path.Parts, nested.Parts...)
			} else if path.Root == nil {
				path.Parts = []Part{{Field: names().Draw(t, "first")}}
			}
			for range rapid.IntRange(1, 2).Draw(t, "parts") {
				if rapid.Bool().Draw(t, "named") {
					path.Parts = append(path.Parts, Part{Field: names().Draw(t, "field")})
				} else {
					path.Parts = append(path.Parts, Part{Index: inner.Draw(t, "index")})
				}
			}
			return path
		}),
		rapid.Custom(func(t *rapid.T) Expression {
			call := &Call{Function: rapid.SampledFrom([]string{"count", "sum", "in", "bytes", "len_2"}).Draw(t, "function")}
			for range rapid.IntRange(0, 2).Draw(t, "arguments") {
				call.Arguments = append(call.Arguments, inner.Draw(t, "argument"))
			}
			return call
		}),
		rapid.Custom(func(t *rapid.T) Expression {
			elements := rapid.SliceOfN(inner, 0, 2).Draw(t, "elements")
			variable := inner.Filter(func(e Expression) bool { return !isLiteral(e) }).Draw(t, "variable")
			return &ArrayExpression{Elements: append(elements, variable)}
		}),
		rapid.Custom(func(t *rapid.T) Expression {
			object := &ObjectExpression{}
			for _, name := range rapid.SliceOfNDistinct(names(), 1, 3, rapid.ID[string]).Draw(t, "names") {
				object.Fields = append(object.Fields, Field{Name: name, Value: inner.Draw(t, "value")})
			}
			last := &object.Fields[len(object.Fields)-1]
			last.Value = inner.Filter(func(e Expression) bool { return !isLiteral(e) }).Draw(t, "variable")
			return object
		}),
		rapid.Map(selects(depth-1), func(s *Select) Expression { return &Subquery{Select: s} }),
	)
	return rapid.OneOf(all...)
}

// maybe draws from a generator, or answers nil.
func maybe(t *rapid.T, label string, g *rapid.Generator[Expression]) Expression {
	if rapid.Bool().Draw(t, label+" given") {
		return g.Draw(t, label)
	}
	return nil
}

func targets(keyed bool) *rapid.Generator[*Target] {
	return rapid.Custom(func(t *rapid.T) *Target {
		target := &Target{Table: names().Draw(t, "table")}
		if keyed || rapid.Bool().Draw(t, "keyed") {
			target.Key = rapid.OneOf(parameters(), rapid.Map(valuetest.Key(), func(v value.Value) Expression { return &Literal{Value: v} })).Draw(t, "key")
		}
		return target
	})
}

func selects(depth int) *rapid.Generator[*Select] {
	inner := rapid.Deferred(func() *rapid.Generator[Expression] { return expressions(depth) })
	return rapid.Custom(func(t *rapid.T) *Select {
		s := &Select{From: targets(false).Draw(t, "from")}
		for range rapid.IntRange(0, 3).Draw(t, "projections") {
			projection := Projection{Expression: inner.Draw(t, "projection")}
			if rapid.Bool().Draw(t, "named") {
				projection.Alias = names().Draw(t, "alias")
			}
			s.Projections = append(s.Projections, projection)
		}
		s.Where = maybe(t, "where", inner)
		for range rapid.IntRange(0, 2).Draw(t, "groups") {
			s.GroupBy = append(s.GroupBy, inner.Draw(t, "group by"))
		}
		for range rapid.IntRange(0, 2).Draw(t, "orderings") {
			s.OrderBy = append(s.OrderBy, Ordering{inner.Draw(t, "order by"), rapid.Bool().Draw(t, "descending")})
		}
		s.Limit = maybe(t, "limit", inner)
		s.Start = maybe(t, "start", inner)
		return s
	})
}

func topicClausesOf(t *rapid.T) (c TopicClauses) {
	e := expressions(1)
	c.Retain, c.RetainBytes, c.MaxBytes = maybe(t, "retain", e), maybe(t, "retain bytes", e), maybe(t, "max bytes", e)
	if rapid.Bool().Draw(t, "deduplicate") {
		c.Deduplicate = &Deduplicate{e.Draw(t, "window"), fieldPaths().Draw(t, "field")}
	}
	if rapid.Bool().Draw(t, "public") {
		c.Public = &Public{e.Draw(t, "rate"), e.Draw(t, "per")}
	}
	return c
}

func groupClausesOf(t *rapid.T) (c GroupClauses) {
	e := expressions(1)
	c.AckDeadline, c.Deliveries, c.InFlight = e.Draw(t, "ack deadline"), maybe(t, "deliveries", e), maybe(t, "in flight", e)
	if rapid.Bool().Draw(t, "backoff") {
		c.Backoff = rapid.SliceOfN(e, 1, 3).Draw(t, "durations")
	}
	if rapid.Bool().Draw(t, "dead letter") {
		c.DeadLetter = names().Draw(t, "dead letter to")
	}
	return c
}

func landingOf(t *rapid.T) Landing {
	l := Landing{
		Into:       QualifiedName{Database: rapid.OneOf(names(), rapid.Just("")).Draw(t, "database"), Name: names().Draw(t, "into")},
		Identity:   fieldPaths().Draw(t, "identity"),
		Quarantine: rapid.Bool().Draw(t, "quarantine"),
	}
	for range rapid.IntRange(1, 3).Draw(t, "mappings") {
		l.Map = append(l.Map, Mapping{fieldPaths().Draw(t, "from"), names().Draw(t, "to")})
	}
	l.Parallelism = maybe(t, "parallelism", expressions(1))
	return l
}

// existence draws IF NOT EXISTS and OVERWRITE, which exclude each other.
func existence(t *rapid.T) (ifNotExists, overwrite bool) {
	drawn := rapid.IntRange(0, 2).Draw(t, "existence")
	return drawn == 1, drawn == 2
}

func userNames(t *rapid.T) UserName {
	return UserName{quoted().Draw(t, "user"), rapid.SampledFrom([]Kind{Store, Namespace, Database}).Draw(t, "on")}
}

var roles = rapid.SampledFrom([]Role{Owner, Editor, Viewer})

// statementGenerators make every statement there is.
var statementGenerators = map[string]func(t *rapid.T) Statement{
	"create": func(t *rapid.T) Statement {
		return &Create{Target: targets(false).Draw(t, "target"), Value: expressions(3).Draw(t, "value")}
	},
	"insert": func(t *rapid.T) Statement {
		return &Insert{Table: names().Draw(t, "table"), Rows: expressions(3).Draw(t, "rows")}
	},
	"upsert": func(t *rapid.T) Statement {
		return &Upsert{Target: targets(true).Draw(t, "target"), Value: expressions(3).Draw(t, "value")}
	},
	"update": func(t *rapid.T) Statement {
		s := &Update{Target: targets(false).Draw(t, "target"), Where: maybe(t, "where", expressions(2))}
		for range rapid.IntRange(1, 3).Draw(t, "assignments") {
			s.Set = append(s.Set, Assignment{fieldPaths().Draw(t, "field"), expressions(2).Draw(t, "value")})
		}
		return s
	},
	"delete": func(t *rapid.T) Statement {
		return &Delete{Target: targets(false).Draw(t, "target"), Where: maybe(t, "where", expressions(3))}
	},
	"select": func(t *rapid.T) Statement { return selects(2).Draw(t, "select") },
	"read": func(t *rapid.T) Statement {
		s := &Read{Topic: names().Draw(t, "topic"), Consumer: maybe(t, "consumer", quoted())}
		if s.After = maybe(t, "after", expressions(2)); s.After == nil {
			s.Since = maybe(t, "since", expressions(2))
		}
		s.Limit, s.Wait = maybe(t, "limit", expressions(2)), maybe(t, "wait", expressions(2))
		return s
	},
	"follow": func(t *rapid.T) Statement {
		return &Follow{Topic: names().Draw(t, "topic"), After: maybe(t, "after", expressions(2))}
	},
	"settle": func(t *rapid.T) Statement {
		s := &Settle{
			Verb:  rapid.SampledFrom([]Verb{Ack, Nack, Extend, Reject, Release}).Draw(t, "verb"),
			Topic: names().Draw(t, "topic"),
			Group: quoted().Draw(t, "group"),
		}
		for range rapid.IntRange(1, 3).Draw(t, "deliveries") {
			s.At = append(s.At, Delivery{expressions(1).Draw(t, "position"), maybe(t, "delivery", expressions(1))})
		}
		tail := maybe(t, "tail", expressions(1))
		switch s.Verb {
		case Nack:
			s.Delay = tail
		case Extend:
			s.By = tail
		case Reject:
			s.Reason = tail
		}
		return s
	},
	"begin":  func(*rapid.T) Statement { return &Begin{} },
	"commit": func(*rapid.T) Statement { return &Commit{} },
	"cancel": func(*rapid.T) Statement { return &Cancel{} },
	"sleep":  func(t *rapid.T) Statement { return &Sleep{Duration: expressions(2).Draw(t, "duration")} },
	"define": func(t *rapid.T) Statement {
		return &Define{
			Kind:        rapid.SampledFrom([]Kind{Namespace, Database, Collection, Space}).Draw(t, "kind"),
			Name:        names().Draw(t, "name"),
			IfNotExists: rapid.Bool().Draw(t, "if not exists"),
		}
	},
	"define table": func(t *rapid.T) Statement {
		s := &DefineTable{Name: names().Draw(t, "name")}
		s.IfNotExists, s.Overwrite = existence(t)
		for _, name := range rapid.SliceOfNDistinct(names(), 0, 3, rapid.ID[string]).Draw(t, "fields") {
			s.Fields = append(s.Fields, FieldDefinition{
				Name:     name,
				Type:     rapid.SampledFrom(FieldTypes).Draw(t, "type"),
				Nullable: rapid.Bool().Draw(t, "nullable"),
				Required: rapid.Bool().Draw(t, "required"),
				Default:  maybe(t, "default", expressions(2)),
				Assert:   maybe(t, "assert", expressions(2)),
			})
		}
		return s
	},
	"use": func(t *rapid.T) Statement {
		return &Use{Kind: rapid.SampledFrom([]Kind{Namespace, Database}).Draw(t, "kind"), Name: names().Draw(t, "name")}
	},
	"drop": func(t *rapid.T) Statement {
		kinds := []Kind{Namespace, Database, Collection, Table, Space, Topic, TopicConsumer, KafkaConsumer}
		return &Drop{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Name: names().Draw(t, "name")}
	},
	"info": func(t *rapid.T) Statement {
		s := &Info{Kind: rapid.SampledFrom([]Kind{Store, Namespace, Database, Table, Topic, TopicConsumer, TopicConsumers, KafkaConsumer, KafkaConsumers}).Draw(t, "kind")}
		switch s.Kind {
		case Table, Topic, TopicConsumer, KafkaConsumer:
			s.Name = names().Draw(t, "name")
		}
		return s
	},
	"define topic": func(t *rapid.T) Statement {
		return &DefineTopic{Name: names().Draw(t, "name"), IfNotExists: rapid.Bool().Draw(t, "if not exists"), TopicClauses: topicClausesOf(t)}
	},
	"alter topic": func(t *rapid.T) Statement {
		s := &AlterTopic{Name: names().Draw(t, "name"), TopicClauses: topicClausesOf(t)}
		given := map[TopicClause]bool{
			ClauseRetain: s.Retain != nil, ClauseRetainBytes: s.RetainBytes != nil, ClauseMaxBytes: s.MaxBytes != nil,
			ClauseDeduplicate: s.Deduplicate != nil, ClausePublic: s.Public != nil,
		}
		for _, c := range topicClauses {
			if !given[c] && rapid.Bool().Draw(t, "drop") {
				s.Drops = append(s.Drops, c)
			}
		}
		if s.TopicClauses == (TopicClauses{}) && s.Drops == nil {
			s.Drops = []TopicClause{ClauseRetain}
		}
		return s
	},
	"define group": func(t *rapid.T) Statement {
		s := &DefineGroup{Name: quoted().Draw(t, "name"), IfNotExists: rapid.Bool().Draw(t, "if not exists"), Topic: names().Draw(t, "topic"), GroupClauses: groupClausesOf(t)}
		if rapid.Bool().Draw(t, "keyed") {
			s.KeyedBy = fieldPaths().Draw(t, "keyed by")
		}
		return s
	},
	"alter group": func(t *rapid.T) Statement {
		s := &AlterGroup{Name: quoted().Draw(t, "name"), Topic: names().Draw(t, "topic"), StartAt: maybe(t, "start at", expressions(1)), GroupClauses: groupClausesOf(t)}
		s.Pause = rapid.Bool().Draw(t, "pause")
		s.Resume = !s.Pause && rapid.Bool().Draw(t, "resume")
		given := map[GroupClause]bool{
			ClauseDeliveries: s.Deliveries != nil, ClauseInFlight: s.InFlight != nil, ClauseBackoff: s.Backoff != nil, ClauseDeadLetter: s.DeadLetter != "",
		}
		for _, c := range groupClauses {
			if !given[c] && rapid.Bool().Draw(t, "drop") {
				s.Drops = append(s.Drops, c)
			}
		}
		return s
	},
	"drop group": func(t *rapid.T) Statement {
		return &DropGroup{Name: quoted().Draw(t, "name"), Topic: names().Draw(t, "topic")}
	},
	"define topic consumer": func(t *rapid.T) Statement {
		s := &DefineTopicConsumer{
			Name:    names().Draw(t, "name"),
			From:    QualifiedName{Database: rapid.OneOf(names(), rapid.Just("")).Draw(t, "database"), Name: names().Draw(t, "from")},
			Group:   quoted().Draw(t, "group"),
			Landing: landingOf(t),
		}
		s.IfNotExists, s.Overwrite = existence(t)
		return s
	},
	"define kafka consumer": func(t *rapid.T) Statement {
		s := &DefineKafkaConsumer{
			Name:    names().Draw(t, "name"),
			Brokers: rapid.SliceOfN(quoted(), 1, 3).Draw(t, "brokers"),
			Topic:   quoted().Draw(t, "topic"),
			Group:   quoted().Draw(t, "group"),
			Format:  names().Draw(t, "format"),
			Landing: landingOf(t),
		}
		s.IfNotExists, s.Overwrite = existence(t)
		settings := rapid.OneOf(names(), rapid.SampledFrom([]string{"security.protocol", "a..b", ".", ""}))
		for _, name := range rapid.SliceOfNDistinct(settings, 0, 3, rapid.ID[string]).Draw(t, "settings") {
			s.With = append(s.With, Setting{name, expressions(1).Draw(t, "setting")})
		}
		return s
	},
	"resume consumer": func(t *rapid.T) Statement {
		return &ResumeConsumer{Kind: rapid.SampledFrom([]Kind{TopicConsumer, KafkaConsumer}).Draw(t, "kind"), Name: names().Draw(t, "name")}
	},
	"define user": func(t *rapid.T) Statement {
		s := &DefineUser{UserName: userNames(t), IfNotExists: rapid.Bool().Draw(t, "if not exists"), Password: quoted().Draw(t, "password")}
		if rapid.Bool().Draw(t, "has role") {
			s.Role = roles.Draw(t, "role")
		}
		return s
	},
	"alter user": func(t *rapid.T) Statement {
		s := &AlterUser{UserName: userNames(t), Password: maybe(t, "password", quoted())}
		if s.Password == nil || rapid.Bool().Draw(t, "has role") {
			s.Role = roles.Draw(t, "role")
		}
		return s
	},
	"drop user": func(t *rapid.T) Statement { return &DropUser{UserName: userNames(t)} },
	"grant": func(t *rapid.T) Statement {
		return &Grant{
			Revoke:     rapid.Bool().Draw(t, "revoke"),
			Privileges: rapid.SliceOfN(rapid.SampledFrom([]Privilege{PrivilegeRead, PrivilegeWrite, PrivilegeManage}), 1, 3).Draw(t, "privileges"),
			Table:      rapid.OneOf(names(), rapid.Just("")).Draw(t, "table"),
			User:       quoted().Draw(t, "user"),
		}
	},
}

func TestRandomTreesPrintAsTextThatParsesToTheSameTree(t *testing.T) {
	for name, generate := range statementGenerators {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				statement := generate(t)
				printed := statement.String()
				script, err := Parse(printed)
				if err != nil {
					t.Fatalf("%s\n%v", printed, err)
				}
				if len(script.Statements) != 1 || !equalTrees(statement, script.Statements[0]) {
					t.Fatalf("%s\nparses to %s", printed, script.Statements)
				}
			})
		})
	}
}
