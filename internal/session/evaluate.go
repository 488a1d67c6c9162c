package session

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// environment is what the expressions of one statement see: the parameters,
// the time, and the row at hand.
type environment struct {
	ctx    context.Context
	store  *store.Store
	params map[string]value.Value
	passed Passed
	limits Limits
	// now is the time of the statement, the same for all of it; read when it
	// is first asked for.
	now time.Time

	// row is the record or message at hand, nil where there is none; content
	// is what it holds.
	row     *store.Row
	content value.Value
	// aggregated are the values of aggregate calls, where a SELECT has
	// computed them.
	aggregated map[*lang.Call]value.Value
}

// at sets the row at hand.
func (e *environment) at(row store.Row) error {
	content, err := row.Value()
	e.row, e.content = &row, content
	return err
}

func (e *environment) clock() (value.Value, error) {
	if e.now.IsZero() {
		now, err := e.store.Now(e.ctx)
		if err != nil {
			return value.None(), err
		}
		e.now = now
	}
	return value.Datetime(e.now), nil
}

func (e *environment) position() (value.Value, error) {
	if e.row == nil || e.row.Position == 0 {
		return value.None(), fault.New(fault.InvalidClause, "position() is of a topic's messages")
	}
	return value.Int(int64(e.row.Position)), nil
}

func (e *environment) appended() (value.Value, error) {
	if e.row == nil || e.row.Position == 0 {
		return value.None(), fault.New(fault.InvalidClause, "appended() is of a topic's messages")
	}
	return value.Datetime(e.row.Appended), nil
}

// evaluate computes an expression.
func (e *environment) evaluate(expression lang.Expression) (value.Value, error) {
	switch x := expression.(type) {
	case *lang.Literal:
		return x.Value, nil
	case *lang.Parameter:
		return e.param(x.Name)
	case *lang.Path:
		return e.path(x)
	case *lang.Binary:
		return e.binary(x)
	case *lang.Unary:
		return e.unary(x)
	case *lang.Call:
		return e.call(x)
	case *lang.ArrayExpression:
		elements, err := e.evaluateAll(x.Elements)
		return value.Array(elements...), err
	case *lang.ObjectExpression:
		fields := make(value.Object, len(x.Fields))
		for _, field := range x.Fields {
			v, err := e.evaluate(field.Value)
			if err != nil {
				return value.None(), err
			}
			fields[field.Name] = v
		}
		return value.Fields(fields), nil
	case *lang.RecordExpression:
		key, err := e.evaluate(x.Key)
		if err != nil {
			return value.None(), err
		}
		if err := store.CheckKey(x.Table, key); err != nil {
			return value.None(), err
		}
		return value.Record(value.RecordID{Table: x.Table, Key: key}), nil
	case *lang.Subquery:
		return value.None(), fault.New(fault.InvalidClause, "a SELECT cannot stand inside an expression; run it by itself and pass what it answers as a parameter")
	}
	return value.None(), fault.New(fault.Internal, "an expression of an unknown kind: %s", expression)
}

func (e *environment) evaluateAll(expressions []lang.Expression) ([]value.Value, error) {
	values := make([]value.Value, len(expressions))
	for i, expression := range expressions {
		v, err := e.evaluate(expression)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

func (e *environment) param(name string) (value.Value, error) {
	v, ok := e.params[name]
	if !ok && e.passed.is(name) {
		return value.DecodeCBOR(e.passed.Encoded)
	}
	if !ok {
		return value.None(), fault.New(fault.InvalidClause, "no value was given for parameter $%s", name)
	}
	return v, nil
}

func (e *environment) path(path *lang.Path) (value.Value, error) {
	var at value.Value
	parts := path.Parts
	switch {
	case path.Root != nil:
		root, err := e.evaluate(path.Root)
		if err != nil {
			return value.None(), err
		}
		at = root
	case e.row == nil:
		return value.None(), fault.New(fault.InvalidClause, "%s: there is no record here whose field this could be; a string is written in quotes", path)
	case len(parts) > 0 && parts[0].Index == nil && parts[0].Field == "id":
		at, parts = value.Record(e.row.ID), parts[1:]
	default:
		at = e.content
	}
	for _, part := range parts {
		if part.Index == nil {
			fields, _ := at.AsObject()
			at = fields[part.Field]
			continue
		}
		index, err := e.evaluate(part.Index)
		if err != nil {
			return value.None(), err
		}
		at = elementAt(at, index)
	}
	return at, nil
}

// elementAt is the element of an array at an index from 0, or the field of an
// object of a name; none where there is none.
func elementAt(whole, index value.Value) value.Value {
	if elements, ok := whole.AsArray(); ok {
		if i, ok := index.AsInt(); ok && i >= 0 && i < int64(len(elements)) {
			return elements[i]
		}
	}
	if fields, ok := whole.AsObject(); ok {
		if name, ok := index.AsString(); ok {
			return fields[name]
		}
	}
	return value.None()
}

func (e *environment) binary(x *lang.Binary) (value.Value, error) {
	left, err := e.evaluate(x.Left)
	if err != nil {
		return value.None(), err
	}
	if x.Operator == lang.And || x.Operator == lang.Or {
		return e.logical(x, left)
	}
	right, err := e.evaluate(x.Right)
	if err != nil {
		return value.None(), err
	}
	switch x.Operator {
	case lang.Equal, lang.NotEqual, lang.Less, lang.LessOrEqual, lang.Greater, lang.GreaterOrEqual:
		return value.Bool(compare(string(x.Operator), left, right)), nil
	case lang.In:
		return value.Bool(contains(right, left)), nil
	case lang.Contains:
		return value.Bool(contains(left, right)), nil
	}
	return arithmetic(string(x.Operator), left, right)
}

// logical is AND and OR, which look at the right operand only where the left
// does not decide.
func (e *environment) logical(x *lang.Binary, left value.Value) (value.Value, error) {
	l, err := boolean(string(x.Operator), left)
	if err != nil || l == (x.Operator == lang.Or) {
		return value.Bool(l), err
	}
	right, err := e.evaluate(x.Right)
	if err != nil {
		return value.None(), err
	}
	r, err := boolean(string(x.Operator), right)
	return value.Bool(r), err
}

func (e *environment) unary(x *lang.Unary) (value.Value, error) {
	operand, err := e.evaluate(x.Operand)
	if err != nil {
		return value.None(), err
	}
	if x.Operator == lang.Not {
		b, err := boolean("NOT", operand)
		return value.Bool(!b), err
	}
	if d, ok := operand.AsDuration(); ok {
		result, _, err := durationArithmetic("-", 0, int64(d))
		return result, err
	}
	if f, ok := operand.AsFloat(); ok {
		return value.Float(-f), nil
	}
	if _, ok := operand.AsInt(); !ok {
		return value.None(), fault.New(fault.TypeMismatch, "-%s: there is no such operation on %s", operand, typeName(operand))
	}
	return arithmetic("-", value.Int(0), operand)
}

// plural is the ending of a word that counts n of something.
func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func (e *environment) call(x *lang.Call) (value.Value, error) {
	if v, ok := e.aggregated[x]; ok {
		return v, nil
	}
	if aggregates[x.Function] != nil {
		return value.None(), fault.New(fault.InvalidClause, "%s is computed over the rows of a SELECT and has no place here", x)
	}
	function, ok := scalarFunctions[x.Function]
	if !ok {
		return value.None(), fault.New(fault.InvalidClause, "there is no function %s()", x.Function)
	}
	if len(x.Arguments) != function.arguments {
		return value.None(), fault.New(fault.InvalidClause, "%s() takes %d argument%s, not %d", x.Function, function.arguments, plural(function.arguments), len(x.Arguments))
	}
	arguments, err := e.evaluateAll(x.Arguments)
	if err != nil {
		return value.None(), err
	}
	return function.call(e, arguments)
}

// The clause functions compute the value of a clause and check its kind.

func (e *environment) clauseInt(clause string, expression lang.Expression) (int64, error) {
	v, err := e.evaluate(expression)
	if err != nil {
		return 0, err
	}
	i, ok := v.AsInt()
	if !ok {
		return 0, fault.New(fault.InvalidClause, "%s takes an int, not %s", clause, v)
	}
	return i, nil
}

func (e *environment) clauseDuration(clause string, expression lang.Expression) (time.Duration, error) {
	v, err := e.evaluate(expression)
	if err != nil {
		return 0, err
	}
	d, ok := v.AsDuration()
	if !ok {
		return 0, fault.New(fault.InvalidClause, "%s takes a duration such as 30s, not %s", clause, v)
	}
	return d, nil
}

func (e *environment) clauseString(clause string, expression lang.Expression) (string, error) {
	v, err := e.evaluate(expression)
	if err != nil {
		return "", err
	}
	text, ok := v.AsString()
	if !ok {
		return "", fault.New(fault.InvalidClause, "%s takes a string, not %s", clause, v)
	}
	return text, nil
}

func (e *environment) clauseDatetime(clause string, expression lang.Expression) (time.Time, error) {
	v, err := e.evaluate(expression)
	if err != nil {
		return time.Time{}, err
	}
	at, ok := v.AsDatetime()
	if !ok {
		return time.Time{}, fault.New(fault.InvalidClause, "%s takes a datetime such as d'2026-01-31T10:00:00Z', not %s", clause, v)
	}
	return at, nil
}
