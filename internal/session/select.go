package session

import (
	"slices"
	"sort"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// selection is a SELECT that is being answered: its parts bound, and the rows
// that it has found.
type selection struct {
	*environment
	statement *lang.Select
	columns   []column
	// ordering are the expressions of ORDER BY, an alias replaced by what it
	// stands for.
	ordering []lang.Ordering
	limit    int // -1 for none
	start    int

	rows  []selectedRow
	bytes int
}

// column is a projection under its name.
type column struct {
	name       string
	expression lang.Expression
}

// selectedRow is a row of the answer with the values that order it.
type selectedRow struct {
	answer value.Value
	order  []value.Value
	bytes  int
}

func (s *Session) selectRows(e *environment, x *lang.Select) (Answer, error) {
	return s.inTransaction(e.ctx, func(tx *store.Tx) (Answer, error) {
		table, err := tx.Catalog().Table(x.From.Table)
		if err != nil {
			return Answer{}, err
		}
		selected, err := bind(e, x)
		if err != nil {
			return Answer{}, err
		}
		if calls := selected.aggregateCalls(); len(calls) > 0 || len(x.GroupBy) > 0 {
			err = selected.group(s, tx, table, calls)
		} else {
			err = s.eachRow(e, tx, table, x.From, x.Where, selected.visit)
		}
		if err != nil {
			return Answer{}, err
		}
		return selected.answer(), nil
	})
}

// bind checks the parts of a SELECT that do not depend on rows.
func bind(e *environment, x *lang.Select) (*selection, error) {
	s := &selection{environment: e, statement: x, limit: -1}
	for _, projection := range x.Projections {
		c := column{name: projection.Alias, expression: projection.Expression}
		if c.name == "" {
			c.name = columnName(projection.Expression)
		}
		if slices.ContainsFunc(s.columns, func(other column) bool { return other.name == c.name }) {
			return nil, fault.New(fault.InvalidClause, "two columns are named %s; name one with AS", c.name)
		}
		s.columns = append(s.columns, c)
	}
	for _, ordering := range x.OrderBy {
		ordering.Expression = s.resolve(ordering.Expression)
		s.ordering = append(s.ordering, ordering)
	}
	var err error
	if x.Limit != nil {
		if s.limit, err = e.count("LIMIT", x.Limit); err != nil {
			return nil, err
		}
	}
	if x.Start != nil {
		s.start, err = e.count("START", x.Start)
	}
	return s, err
}

func (e *environment) count(clause string, expression lang.Expression) (int, error) {
	n, err := e.clauseInt(clause, expression)
	if err == nil && n < 0 {
		err = fault.New(fault.InvalidClause, "%s takes a number from 0, not %d", clause, n)
	}
	// What is added to it below stays within 64 bits.
	return int(min(n, 1<<60)), err
}

// columnName is the name of a projection without AS: its text, and of a call
// without arguments the function's name.
func columnName(expression lang.Expression) string {
	switch x := expression.(type) {
	case *lang.Call:
		if len(x.Arguments) == 0 {
			return x.Function
		}
	case *lang.Path:
		// A field keeps its name, also one that is written in backquotes.
		if names, ok := x.Names(); ok && len(names) == 1 {
			return names[0]
		}
	}
	return expression.String()
}

// resolve replaces the name of a column by what the column computes.
func (s *selection) resolve(expression lang.Expression) lang.Expression {
	path, ok := expression.(*lang.Path)
	if !ok {
		return expression
	}
	names, ok := path.Names()
	if !ok || len(names) != 1 {
		return expression
	}
	for _, c := range s.columns {
		if c.name == names[0] {
			return c.expression
		}
	}
	return expression
}

// visit takes the row at hand into the answer.
func (s *selection) visit(row store.Row) (more bool, err error) {
	content := s.content
	if s.statement.Projections != nil {
		if content, err = s.project(); err != nil {
			return false, err
		}
	}
	return s.take(rowAnswer(row, content), len(row.Encoded()))
}

func (s *selection) project() (value.Value, error) {
	fields := make(value.Object, len(s.columns))
	for _, c := range s.columns {
		v, err := s.evaluate(c.expression)
		if err != nil {
			return value.None(), err
		}
		if !v.IsNone() {
			fields[c.name] = v
		}
	}
	return value.Fields(fields), nil
}

// take adds an answer's row, whose order is computed on what is at hand, and
// reports whether more may change the answer.
func (s *selection) take(answer value.Value, bytes int) (more bool, err error) {
	row := selectedRow{answer: answer, bytes: bytes}
	for _, ordering := range s.ordering {
		v, err := s.evaluate(ordering.Expression)
		if err != nil {
			return false, err
		}
		row.order = append(row.order, v)
	}
	s.rows = append(s.rows, row)
	s.bytes += bytes
	if s.limit >= 0 {
		wanted := s.start + s.limit
		if len(s.ordering) == 0 {
			return len(s.rows) < wanted, s.checkSize()
		}
		// Only the first rows in order can be in the answer; the others are
		// dropped now and then.
		if len(s.rows) >= 2*wanted+1024 {
			s.sort()
			s.cut(wanted)
		}
	}
	return true, s.checkSize()
}

func (s *selection) checkSize() error {
	if len(s.rows) <= s.limits.AnswerRows+s.start && s.bytes <= s.limits.AnswerBytes {
		return nil
	}
	return fault.New(fault.TooLarge, "the answer has more than %d rows or %d bytes; ask for it in pages with LIMIT and START, or READ", s.limits.AnswerRows, s.limits.AnswerBytes)
}

func (s *selection) cut(count int) {
	for _, row := range s.rows[count:] {
		s.bytes -= row.bytes
	}
	s.rows = slices.Clip(s.rows[:count])
}

func (s *selection) sort() {
	sort.SliceStable(s.rows, func(i, j int) bool {
		for k, ordering := range s.ordering {
			order := value.Compare(s.rows[i].order[k], s.rows[j].order[k])
			if ordering.Descending {
				order = -order
			}
			if order != 0 {
				return order < 0
			}
		}
		return false
	})
}

func (s *selection) answer() Answer {
	s.sort()
	rows := s.rows[min(s.start, len(s.rows)):]
	if s.limit >= 0 {
		rows = rows[:min(s.limit, len(rows))]
	}
	answers := make([]value.Value, len(rows))
	for i, row := range rows {
		answers[i] = row.answer
	}
	return Answer{Value: value.Array(answers...)}
}
