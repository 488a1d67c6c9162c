package session

import (
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// rowGroup is the rows of one combination of GROUP BY's values: their
// aggregates so far, and the first of them, on which what GROUP BY names is
// computed.
type rowGroup struct {
	first      store.Row
	content    value.Value
	aggregates []aggregate
}

// MaxGroups bounds the groups of one GROUP BY, which are held in memory.
const MaxGroups = MaxAnswerRows

// aggregateCalls are the aggregates that the answer needs.
func (s *selection) aggregateCalls() []*lang.Call {
	var calls []*lang.Call
	for _, c := range s.columns {
		calls = appendAggregates(calls, c.expression)
	}
	for _, ordering := range s.ordering {
		calls = appendAggregates(calls, ordering.Expression)
	}
	return calls
}

// appendAggregates adds the aggregate calls of an expression.
func appendAggregates(calls []*lang.Call, expression lang.Expression) []*lang.Call {
	if call, ok := expression.(*lang.Call); ok && aggregates[call.Function] != nil {
		return append(calls, call)
	}
	for _, part := range parts(expression) {
		calls = appendAggregates(calls, part)
	}
	return calls
}

// parts are the expressions that an expression is made of.
func parts(expression lang.Expression) []lang.Expression {
	switch x := expression.(type) {
	case *lang.Binary:
		return []lang.Expression{x.Left, x.Right}
	case *lang.Unary:
		return []lang.Expression{x.Operand}
	case *lang.Call:
		return x.Arguments
	case *lang.ArrayExpression:
		return x.Elements
	case *lang.ObjectExpression:
		values := make([]lang.Expression, len(x.Fields))
		for i, field := range x.Fields {
			values[i] = field.Value
		}
		return values
	case *lang.Path:
		var inner []lang.Expression
		if x.Root != nil {
			inner = append(inner, x.Root)
		}
		for _, part := range x.Parts {
			if part.Index != nil {
				inner = append(inner, part.Index)
			}
		}
		return inner
	}
	return nil
}

// checkGrouped refuses what has no one value for a group of rows.
func (s *selection) checkGrouped(expression lang.Expression) error {
	for _, grouped := range s.statement.GroupBy {
		if s.resolve(grouped).String() == expression.String() {
			return nil
		}
	}
	switch x := expression.(type) {
	case *lang.Call:
		switch {
		case aggregates[x.Function] != nil:
			if len(x.Arguments) > 1 || len(x.Arguments) == 0 && x.Function != "count" {
				return fault.New(fault.InvalidClause, "%s() takes one argument, not %d", x.Function, len(x.Arguments))
			}
			for _, argument := range x.Arguments {
				if len(appendAggregates(nil, argument)) > 0 {
					return fault.New(fault.InvalidClause, "%s: an aggregate cannot stand inside another", x)
				}
			}
			return nil
		case x.Function == "position" || x.Function == "appended":
			return fault.New(fault.InvalidClause, "%s is neither in GROUP BY nor inside an aggregate such as max()", x)
		}
	case *lang.Path:
		if x.Root == nil {
			return fault.New(fault.InvalidClause, "%s is neither in GROUP BY nor inside an aggregate such as max()", x)
		}
	}
	for _, part := range parts(expression) {
		if err := s.checkGrouped(part); err != nil {
			return err
		}
	}
	return nil
}

// group answers one row a group. Without GROUP BY all rows are one group, also
// where there are none.
func (s *selection) group(session *Session, tx *store.Tx, table *store.Table, calls []*lang.Call) error {
	if s.statement.Projections == nil {
		return fault.New(fault.InvalidClause, "SELECT * cannot stand with GROUP BY; name what to answer of a group")
	}
	for _, c := range s.columns {
		if err := s.checkGrouped(c.expression); err != nil {
			return err
		}
	}
	for _, ordering := range s.ordering {
		if err := s.checkGrouped(ordering.Expression); err != nil {
			return err
		}
	}
	groups, order := map[string]*rowGroup{}, []*rowGroup(nil)
	if counted, ok, err := s.countWhole(tx, table, calls); ok || err != nil {
		order = append(order, counted)
		if err != nil {
			return err
		}
	} else {
		err := session.eachRow(s.environment, tx, table, s.statement.From, s.statement.Where, func(row store.Row) (bool, error) {
			g, err := s.groupOf(groups, row, calls)
			if err != nil {
				return false, err
			}
			if len(groups) > len(order) {
				order = append(order, g)
			}
			return true, s.addTo(g, calls)
		})
		if err != nil {
			return err
		}
	}
	if len(order) == 0 && len(s.statement.GroupBy) == 0 {
		order = append(order, newRowGroup(calls))
	}
	for _, g := range order {
		if err := s.takeGroup(g, calls); err != nil {
			return err
		}
	}
	return nil
}

func newRowGroup(calls []*lang.Call) *rowGroup {
	g := &rowGroup{}
	for _, call := range calls {
		g.aggregates = append(g.aggregates, aggregates[call.Function]())
	}
	return g
}

// countWhole answers count() of a whole topic, which needs no message.
func (s *selection) countWhole(tx *store.Tx, table *store.Table, calls []*lang.Call) (*rowGroup, bool, error) {
	if table.Kind != store.Topic || s.statement.Where != nil || s.statement.From.Key != nil || len(s.statement.GroupBy) > 0 {
		return nil, false, nil
	}
	for _, call := range calls {
		if call.Function != "count" || len(call.Arguments) > 0 {
			return nil, false, nil
		}
	}
	count, err := tx.CountRecords(s.ctx, table)
	g := &rowGroup{}
	for range calls {
		g.aggregates = append(g.aggregates, &countAggregate{count: int64(count)})
	}
	return g, true, err
}

// groupOf is the group of the row at hand.
func (s *selection) groupOf(groups map[string]*rowGroup, row store.Row, calls []*lang.Call) (*rowGroup, error) {
	var key []byte
	for _, grouped := range s.statement.GroupBy {
		v, err := s.evaluate(s.resolve(grouped))
		if err != nil {
			return nil, err
		}
		if key, err = value.Array(exact(v)).AppendCBOR(key); err != nil {
			return nil, err
		}
	}
	if g := groups[string(key)]; g != nil {
		return g, nil
	}
	if len(groups) >= MaxGroups {
		return nil, fault.New(fault.TooLarge, "GROUP BY makes more than %d groups", MaxGroups)
	}
	g := newRowGroup(calls)
	g.first, g.content = row, s.content
	groups[string(key)] = g
	return g, nil
}

// exact is one value for all that are equal: a float that is a whole number
// becomes the int.
func exact(v value.Value) value.Value {
	if f, ok := v.AsFloat(); ok {
		if i := value.Int(int64(f)); value.Equal(i, v) {
			return i
		}
	}
	if elements, ok := v.AsArray(); ok {
		all := make([]value.Value, len(elements))
		for i, element := range elements {
			all[i] = exact(element)
		}
		return value.Array(all...)
	}
	if fields, ok := v.AsObject(); ok {
		all := make(value.Object, len(fields))
		for name, field := range fields {
			all[name] = exact(field)
		}
		return value.Fields(all)
	}
	return v
}

// addTo adds the row at hand to the aggregates of a group.
func (s *selection) addTo(g *rowGroup, calls []*lang.Call) error {
	for i, call := range calls {
		if len(call.Arguments) == 0 {
			if err := g.aggregates[i].add(value.Null()); err != nil {
				return err
			}
			continue
		}
		v, err := s.evaluate(call.Arguments[0])
		if err != nil {
			return err
		}
		if v.IsNone() || v.IsNull() {
			continue
		}
		if err := g.aggregates[i].add(v); err != nil {
			return err
		}
	}
	return nil
}

// takeGroup adds the row of a group to the answer.
func (s *selection) takeGroup(g *rowGroup, calls []*lang.Call) error {
	s.row, s.content = &g.first, g.content
	s.aggregated = map[*lang.Call]value.Value{}
	defer func() { s.row, s.aggregated = nil, nil }()
	for i, call := range calls {
		v, err := g.aggregates[i].result()
		if err != nil {
			return err
		}
		s.aggregated[call] = v
	}
	content, err := s.project()
	if err != nil {
		return err
	}
	size, err := content.Size()
	if err != nil {
		return err
	}
	_, err = s.take(value.Fields(value.Object{"value": content}), size)
	return err
}
