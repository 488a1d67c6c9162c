package session

import (
	"bytes"
	"math"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// arithmetic applies + - * / % to two values. Ints stay ints, and what does not
// fit 64 bits is an error, as is a float that would be infinite or no number.
func arithmetic(operator string, a, b value.Value) (value.Value, error) {
	if x, ok := a.AsInt(); ok {
		if y, ok := b.AsInt(); ok {
			return intArithmetic(operator, x, y)
		}
	}
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return floatArithmetic(operator, x, y)
		}
	}
	if result, ok, err := timeArithmetic(operator, a, b); ok {
		return result, err
	}
	if x, ok := a.AsString(); ok && operator == "+" {
		if y, ok := b.AsString(); ok {
			return value.String(x + y), nil
		}
	}
	return value.None(), fault.New(fault.TypeMismatch, "%s %s %s: there is no such operation on %s and %s", a, operator, b, typeName(a), typeName(b))
}

func intArithmetic(operator string, x, y int64) (value.Value, error) {
	overflow := func() error {
		return fault.New(fault.TypeMismatch, "%d %s %d does not fit the 64 bits of an int", x, operator, y)
	}
	switch operator {
	case "+":
		sum := x + y
		if (sum > x) != (y > 0) {
			return value.None(), overflow()
		}
		return value.Int(sum), nil
	case "-":
		difference := x - y
		if (difference < x) != (y > 0) {
			return value.None(), overflow()
		}
		return value.Int(difference), nil
	case "*":
		product := x * y
		if x != 0 && (product/x != y || x == -1 && y == math.MinInt64) {
			return value.None(), overflow()
		}
		return value.Int(product), nil
	}
	if y == 0 {
		return value.None(), fault.New(fault.TypeMismatch, "%d %s 0: division by zero", x, operator)
	}
	if operator == "%" {
		return value.Int(x % y), nil
	}
	if x == math.MinInt64 && y == -1 {
		return value.None(), overflow()
	}
	return value.Int(x / y), nil
}

func floatArithmetic(operator string, x, y float64) (value.Value, error) {
	var result float64
	switch operator {
	case "+":
		result = x + y
	case "-":
		result = x - y
	case "*":
		result = x * y
	case "/":
		result = x / y
	case "%":
		result = math.Mod(x, y)
	}
	if math.IsNaN(result) || math.IsInf(result, 0) {
		return value.None(), fault.New(fault.TypeMismatch, "%s %s %s is no finite number", value.Float(x), operator, value.Float(y))
	}
	return value.Float(result), nil
}

// timeArithmetic is that of datetimes and durations; ok is false where the
// operands are of other kinds.
func timeArithmetic(operator string, a, b value.Value) (result value.Value, ok bool, err error) {
	at, aIsTime := a.AsDatetime()
	bt, bIsTime := b.AsDatetime()
	ad, aIsDuration := a.AsDuration()
	bd, bIsDuration := b.AsDuration()
	switch {
	case aIsTime && bIsDuration && operator == "+":
		return value.Datetime(at.Add(bd)), true, nil
	case aIsDuration && bIsTime && operator == "+":
		return value.Datetime(bt.Add(ad)), true, nil
	case aIsTime && bIsDuration && operator == "-":
		return value.Datetime(at.Add(-bd)), true, nil
	case aIsTime && bIsTime && operator == "-":
		return value.Duration(at.Sub(bt)), true, nil
	case aIsDuration && bIsDuration && (operator == "+" || operator == "-"):
		return durationArithmetic(operator, int64(ad), int64(bd))
	}
	if factor, isInt := b.AsInt(); isInt && aIsDuration && (operator == "*" || operator == "/") {
		return durationArithmetic(operator, int64(ad), factor)
	}
	if factor, isInt := a.AsInt(); isInt && bIsDuration && operator == "*" {
		return durationArithmetic(operator, factor, int64(bd))
	}
	return value.None(), false, nil
}

func durationArithmetic(operator string, x, y int64) (value.Value, bool, error) {
	result, err := intArithmetic(operator, x, y)
	nanoseconds, _ := result.AsInt()
	return value.Duration(time.Duration(nanoseconds)), true, err
}

// number returns an int or a float as a float.
func number(v value.Value) (float64, bool) {
	if i, ok := v.AsInt(); ok {
		return float64(i), true
	}
	return v.AsFloat()
}

// compare applies = != < <= > >=. Values of different kinds are never less or
// greater than each other; ints and floats are one kind here.
func compare(operator string, a, b value.Value) bool {
	switch operator {
	case "=":
		return value.Equal(a, b)
	case "!=":
		return !value.Equal(a, b)
	}
	if !comparable(a, b) {
		return false
	}
	order := value.Compare(a, b)
	switch operator {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	default:
		return order >= 0
	}
}

func comparable(a, b value.Value) bool {
	_, aIsNumber := number(a)
	_, bIsNumber := number(b)
	return aIsNumber && bIsNumber || a.Kind() == b.Kind()
}

// contains is CONTAINS: an array holds an element, a string a part, bytes a
// part, an object a field of a name.
func contains(whole, part value.Value) bool {
	if elements, ok := whole.AsArray(); ok {
		for _, element := range elements {
			if value.Equal(element, part) {
				return true
			}
		}
		return false
	}
	if text, ok := whole.AsString(); ok {
		piece, ok := part.AsString()
		return ok && strings.Contains(text, piece)
	}
	if content, ok := whole.AsBytes(); ok {
		piece, ok := part.AsBytes()
		return ok && bytes.Contains(content, piece)
	}
	if fields, ok := whole.AsObject(); ok {
		name, ok := part.AsString()
		_, has := fields[name]
		return ok && has
	}
	return false
}

// boolean is the value of an operand of AND, OR, NOT and of a condition.
func boolean(what string, v value.Value) (bool, error) {
	b, ok := v.AsBool()
	if !ok {
		return false, fault.New(fault.TypeMismatch, "%s takes true or false, not %s", what, v)
	}
	return b, nil
}

// typeName is what type() answers.
func typeName(v value.Value) string {
	switch v.Kind() {
	case value.KindNone:
		return "none"
	case value.KindNull:
		return "null"
	case value.KindBool:
		return "bool"
	case value.KindInt:
		return "int"
	case value.KindFloat:
		return "float"
	case value.KindString:
		return "string"
	case value.KindBytes:
		return "bytes"
	case value.KindUUID:
		return "uuid"
	case value.KindDatetime:
		return "datetime"
	case value.KindDuration:
		return "duration"
	case value.KindArray:
		return "array"
	case value.KindObject:
		return "object"
	default:
		return "record"
	}
}
