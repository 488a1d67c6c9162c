package session

import (
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// A scalar function of the language, over its evaluated arguments.
type scalarFunction struct {
	arguments int
	call      func(e *environment, arguments []value.Value) (value.Value, error)
}

var scalarFunctions = map[string]scalarFunction{
	"len":      {1, func(_ *environment, a []value.Value) (value.Value, error) { return length(a[0]) }},
	"type":     {1, func(_ *environment, a []value.Value) (value.Value, error) { return value.String(typeName(a[0])), nil }},
	"now":      {0, func(e *environment, _ []value.Value) (value.Value, error) { return e.clock() }},
	"uuid":     {0, func(*environment, []value.Value) (value.Value, error) { return newUUID() }},
	"position": {0, func(e *environment, _ []value.Value) (value.Value, error) { return e.position() }},
	"appended": {0, func(e *environment, _ []value.Value) (value.Value, error) { return e.appended() }},
}

func length(v value.Value) (value.Value, error) {
	if text, ok := v.AsString(); ok {
		return value.Int(int64(utf8.RuneCountInString(text))), nil
	}
	if content, ok := v.AsBytes(); ok {
		return value.Int(int64(len(content))), nil
	}
	if elements, ok := v.AsArray(); ok {
		return value.Int(int64(len(elements))), nil
	}
	if fields, ok := v.AsObject(); ok {
		return value.Int(int64(len(fields))), nil
	}
	return value.None(), fault.New(fault.TypeMismatch, "len() takes a string, bytes, an array or an object, not %s", v)
}

func newUUID() (value.Value, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return value.None(), err
	}
	return value.UUID(id), nil
}

// An aggregate takes the values of a group of rows one by one and answers for
// all of them. Values that are none or null are passed over, but by count()
// without an argument, which counts rows.
type aggregate interface {
	add(v value.Value) error
	result() (value.Value, error)
}

var aggregates = map[string]func() aggregate{
	"count": func() aggregate { return new(countAggregate) },
	"sum":   func() aggregate { return new(sumAggregate) },
	"avg":   func() aggregate { return new(averageAggregate) },
	"min":   func() aggregate { return &extremeAggregate{sign: -1} },
	"max":   func() aggregate { return &extremeAggregate{sign: 1} },
}

type countAggregate struct{ count int64 }

func (a *countAggregate) add(value.Value) error        { a.count++; return nil }
func (a *countAggregate) result() (value.Value, error) { return value.Int(a.count), nil }

// sumAggregate sums numbers, or durations; of nothing it is 0.
type sumAggregate struct {
	sum   value.Value
	begun bool
}

func (a *sumAggregate) add(v value.Value) (err error) {
	_, isNumber := number(v)
	_, isDuration := v.AsDuration()
	if !isNumber && !isDuration {
		return fault.New(fault.TypeMismatch, "sum() takes numbers or durations, not %s", v)
	}
	if !a.begun {
		a.sum, a.begun = v, true
		return nil
	}
	a.sum, err = arithmetic("+", a.sum, v)
	return err
}

func (a *sumAggregate) result() (value.Value, error) {
	if !a.begun {
		return value.Int(0), nil
	}
	return a.sum, nil
}

// averageAggregate is the mean of numbers as a float, or of durations; of
// nothing it is null.
type averageAggregate struct {
	sum   sumAggregate
	count int64
}

func (a *averageAggregate) add(v value.Value) error {
	a.count++
	if i, ok := v.AsInt(); ok {
		// A mean needs no 64 bits: floats keep a sum of ints from overflowing.
		v = value.Float(float64(i))
	}
	return a.sum.add(v)
}

func (a *averageAggregate) result() (value.Value, error) {
	if a.count == 0 {
		return value.Null(), nil
	}
	if total, ok := a.sum.sum.AsDuration(); ok {
		return value.Duration(total / time.Duration(a.count)), nil
	}
	return arithmetic("/", a.sum.sum, value.Float(float64(a.count)))
}

// extremeAggregate is the least or the greatest in the order over all values;
// of nothing it is null.
type extremeAggregate struct {
	sign  int
	best  value.Value
	begun bool
}

func (a *extremeAggregate) add(v value.Value) error {
	if !a.begun || value.Compare(v, a.best)*a.sign > 0 {
		a.best, a.begun = v, true
	}
	return nil
}

func (a *extremeAggregate) result() (value.Value, error) {
	if !a.begun {
		return value.Null(), nil
	}
	return a.best, nil
}
