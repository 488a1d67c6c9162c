package value_test

import (
	"cmp"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/value"
	"github.com/tidemarkdb/tidemark/value/valuetest"
)

func TestValuesOfAllKindsSortInThisOrder(t *testing.T) {
	record := func(table string, key value.Value) value.Value {
		return value.Record(value.RecordID{Table: table, Key: key})
	}
	// Each line sorts after the one before it; what is on one line is equal.
	lines := [][]value.Value{
		{value.None()},
		{value.Null()},
		{value.Bool(false)},
		{value.Bool(true)},
		{value.Float(-math.MaxFloat64)},
		{value.Float(math.Nextafter(-1<<63, math.Inf(-1)))},
		{value.Int(math.MinInt64), value.Float(-1 << 63)},
		{value.Int(math.MinInt64 + 1)},
		{value.Float(-1.5)},
		{value.Int(-1), value.Float(-1)},
		{value.Float(-0.5)},
		{value.Int(0), value.Float(0), value.Float(math.Copysign(0, -1))},
		{value.Float(math.SmallestNonzeroFloat64)},
		{value.Float(0.5)},
		{value.Int(1), value.Float(1)},
		{value.Float(1.5)},
		{value.Int(2)},
		{value.Int(1 << 53), value.Float(1 << 53)},
		{value.Int(1<<53 + 1)},
		{value.Int(1<<53 + 2), value.Float(1<<53 + 2)},
		{value.Int(math.MaxInt64)},
		{value.Float(1 << 63)},
		{value.String("")},
		{value.String("\x00")},
		{value.String("Z")},
		{value.String("a")},
		{value.String("a\x00")},
		{value.String("aa")},
		{value.String("é")},
		{value.Bytes(nil), value.Bytes([]byte{})},
		{value.Bytes([]byte{0})},
		{value.Bytes([]byte{255})},
		{value.UUID(uuid.UUID{})},
		{value.UUID(testUUID)},
		{value.Datetime(time.Unix(-1, 999_999_999))},
		{value.Datetime(time.Unix(0, 0)), value.Datetime(time.Unix(0, 0).In(time.FixedZone("", 3600)))},
		{value.Datetime(time.Unix(0, 1))},
		{value.Duration(-1)},
		{value.Duration(0)},
		{value.Duration(1)},
		{value.Array()},
		{value.Array(value.None())},
		{value.Array(value.Int(1)), value.Array(value.Float(1))},
		{value.Array(value.Int(1), value.Int(0))},
		{value.Array(value.Int(2))},
		{object(nil), object(value.Object{"z": value.None()})},
		{object(value.Object{"a": value.Int(1)}), object(value.Object{"a": value.Float(1), "b": value.None()})},
		{object(value.Object{"a": value.Int(1), "b": value.Int(0)})},
		{object(value.Object{"a": value.Int(2)})},
		{object(value.Object{"aa": value.Int(0)})},
		{object(value.Object{"b": value.Int(0)})},
		{record("a", value.Int(2))},
		{record("a", value.String("1"))},
		{record("a", value.UUID(testUUID))},
		{record("b", value.Int(1))},
	}
	for i, line := range lines {
		for j, other := range lines {
			for _, a := range line {
				for _, b := range other {
					if got, want := value.Compare(a, b), cmp.Compare(i, j); got != want {
						t.Errorf("Compare(%s, %s) is %d, want %d", a, b, got, want)
					}
					if got := value.Equal(a, b); got != (i == j) {
						t.Errorf("Equal(%s, %s) is %t", a, b, got)
					}
				}
			}
		}
	}
}

func TestTheOrderIsTotal(t *testing.T) {
	generator := valuetest.Generator(3)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := generator.Draw(t, "a"), generator.Draw(t, "b"), generator.Draw(t, "c")
		if value.Compare(a, a) != 0 {
			t.Fatalf("%s is not equal to itself", a)
		}
		if value.Compare(a, b) != -value.Compare(b, a) {
			t.Fatalf("%s and %s: %d, the other way round %d", a, b, value.Compare(a, b), value.Compare(b, a))
		}
		if value.Compare(a, b) <= 0 && value.Compare(b, c) <= 0 && value.Compare(a, c) > 0 {
			t.Fatalf("%s <= %s <= %s, but the first is greater than the last", a, b, c)
		}
		if value.Compare(a, b) == 0 && value.Compare(a, c) != value.Compare(b, c) {
			t.Fatalf("%s = %s, but they compare differently with %s", a, b, c)
		}
	})
}

func TestNumbersCompareExactly(t *testing.T) {
	numbers := valuetest.Scalar().Filter(func(v value.Value) bool {
		return v.Kind() == value.KindInt || v.Kind() == value.KindFloat
	})
	exact := func(v value.Value) *big.Float {
		if i, ok := v.AsInt(); ok {
			return new(big.Float).SetInt64(i)
		}
		f, _ := v.AsFloat()
		return big.NewFloat(f)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := numbers.Draw(t, "a"), numbers.Draw(t, "b")
		if i, ok := a.AsInt(); ok && rapid.Bool().Draw(t, "near") {
			b = value.Float(float64(i))
		}
		if got, want := value.Compare(a, b), exact(a).Cmp(exact(b)); got != want {
			t.Fatalf("Compare(%s, %s) is %d, want %d", a, b, got, want)
		}
	})
}

func TestTheOrderStaysTotalWhereThereIsNaN(t *testing.T) {
	nan := value.Float(math.NaN())
	for _, number := range []value.Value{value.Int(math.MinInt64), value.Float(math.Inf(-1))} {
		if value.Compare(nan, number) != -1 || value.Compare(number, nan) != 1 {
			t.Errorf("NaN does not sort before %s", number)
		}
	}
	if !value.Equal(nan, nan) {
		t.Error("NaN does not equal itself")
	}
}
