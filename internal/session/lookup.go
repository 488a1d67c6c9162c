package session

import (
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// lookup is how the rows of a target are found: the one of an identity, or a
// scan, of a topic only over the positions that the condition allows.
type lookup struct {
	single bool
	key    value.Value
	scan   store.ScanOptions
}

// lookup finds out how to find the rows of a target. It looks only at what
// the condition requires of every row (what AND joins); the condition is
// evaluated for each row found all the same.
func (e *environment) lookup(table *store.Table, target *lang.Target, where lang.Expression) (lookup, error) {
	if target.Key != nil {
		key, err := e.key(target)
		return lookup{single: true, key: key}, err
	}
	var found lookup
	for _, condition := range conjuncts(where) {
		comparison, ok := condition.(*lang.Binary)
		if !ok || !isConstant(comparison.Right) {
			continue
		}
		switch left := comparison.Left.(type) {
		case *lang.Path:
			if comparison.Operator != lang.Equal || !isIdentity(left) {
				continue
			}
			v, err := e.evaluate(comparison.Right)
			if err != nil {
				return found, err
			}
			if id, ok := v.AsRecord(); ok && id.Table == table.Name {
				found.single, found.key = true, id.Key
			}
		case *lang.Call:
			if left.Function != "position" || table.Kind != store.Topic {
				continue
			}
			v, err := e.evaluate(comparison.Right)
			if err != nil {
				return found, err
			}
			if bound, ok := v.AsInt(); ok && bound >= 0 {
				found.scan = narrow(found.scan, comparison.Operator, topic.Position(bound))
			}
		}
	}
	return found, nil
}

// narrow narrows a scan to the positions that compare so with a bound.
func narrow(scan store.ScanOptions, operator lang.Operator, bound topic.Position) store.ScanOptions {
	from, to := scan.From, scan.To
	switch operator {
	case lang.Equal:
		from, to = bound, bound
	case lang.Greater:
		from = bound + 1
	case lang.GreaterOrEqual:
		from = bound
	case lang.Less, lang.LessOrEqual:
		to = bound
	}
	scan.From = max(scan.From, from)
	if to != 0 && (scan.To == 0 || to < scan.To) {
		scan.To = to
	}
	return scan
}

// conjuncts are the conditions that a condition joins by AND.
func conjuncts(where lang.Expression) []lang.Expression {
	if where == nil {
		return nil
	}
	if both, ok := where.(*lang.Binary); ok && both.Operator == lang.And {
		return append(conjuncts(both.Left), conjuncts(both.Right)...)
	}
	return []lang.Expression{where}
}

func isIdentity(path *lang.Path) bool {
	names, ok := path.Names()
	return ok && len(names) == 1 && names[0] == "id"
}

// isConstant reports whether an expression is the same for every row.
func isConstant(expression lang.Expression) bool {
	switch expression.(type) {
	case *lang.Literal, *lang.Parameter, *lang.RecordExpression:
		return true
	}
	return false
}
