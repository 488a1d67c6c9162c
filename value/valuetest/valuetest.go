// Package valuetest generates random values for property tests (with
// pgregory.net/rapid) of whatever stores, sends or compares them. What it
// generates can be encoded; it leans towards the edges where encodings break:
// the ends of ranges, ints that floats round, text with quotes, zeros and
// characters of every length, equal numbers of different kinds.
package valuetest

import (
	"math"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/value"
)

// Generator generates values of every kind, in which arrays and objects are
// nested in each other at most depth times.
func Generator(depth int) *rapid.Generator[value.Value] {
	scalars := Scalar()
	if depth <= 0 {
		return scalars
	}
	inner := Generator(depth - 1)
	return rapid.OneOf(
		scalars,
		scalars,
		rapid.Custom(func(t *rapid.T) value.Value {
			return value.Array(rapid.SliceOfN(inner, 0, 5).Draw(t, "elements")...)
		}),
		rapid.Custom(func(t *rapid.T) value.Value {
			return value.Fields(rapid.MapOfN(Name(), inner, 0, 5).Draw(t, "fields"))
		}),
	)
}

// Scalar generates values that hold no others, record ids among them.
func Scalar() *rapid.Generator[value.Value] {
	return rapid.OneOf(
		rapid.SampledFrom([]value.Value{value.None(), value.Null(), value.Bool(false), value.Bool(true)}),
		rapid.Map(ints(), value.Int),
		rapid.Map(floats(), value.Float),
		rapid.Map(texts(), value.String),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), value.Bytes),
		rapid.Map(uuids(), value.UUID),
		rapid.Map(datetimes(), value.Datetime),
		rapid.Map(durations(), value.Duration),
		rapid.Map(records(), value.Record),
	)
}

// Key generates what may be the key of a record: ints, strings and uuids.
func Key() *rapid.Generator[value.Value] {
	return rapid.OneOf(
		rapid.Map(ints(), value.Int),
		rapid.Map(texts(), value.String),
		rapid.Map(uuids(), value.UUID),
	)
}

// Name generates names of fields and tables, most of them identifiers.
func Name() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,6}`),
		rapid.SampledFrom([]string{"", "a", "b", "id", "select", "from", "with space", "back`quote", `back\slash`, "1st", "ünïcode", "\x00"}),
		texts(),
	)
}

func ints() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64(),
		rapid.Int64Range(-300, 300),
		rapid.SampledFrom([]int64{
			0, 23, 24, math.MaxUint8, math.MaxUint8 + 1, math.MaxUint16, math.MaxUint16 + 1, math.MaxUint32, math.MaxUint32 + 1,
			1<<53 - 1, 1 << 53, 1<<53 + 1, -1<<53 - 1, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64, math.MinInt64 + 1,
		}),
	)
}

func floats() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) }),
		rapid.Map(rapid.Int64Range(-300, 300), func(i int64) float64 { return float64(i) / 4 }),
		rapid.SampledFrom([]float64{
			0, math.Copysign(0, -1), 1, 0.1, 65504, 65505, 1e20, 1e21, 1e-6, 1e-7, 1 << 53, 1 << 63, -1 << 63,
			math.MaxFloat32, math.MaxFloat64, math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat64, 5.960464477539063e-08,
		}),
	)
}

func texts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringN(0, 12, -1),
		rapid.StringOfN(rapid.RuneFrom([]rune("ab'\"`\\/\x00\x01\n\t<>&\x7fé€\u2028\uFFFD😀")), 0, 12, -1),
		rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 20, 300, -1),
	)
}

func uuids() *rapid.Generator[uuid.UUID] {
	return rapid.Custom(func(t *rapid.T) uuid.UUID {
		return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
	})
}

func datetimes() *rapid.Generator[time.Time] {
	first := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
	return rapid.Custom(func(t *rapid.T) time.Time {
		seconds := rapid.OneOf(rapid.Int64Range(first, last), rapid.SampledFrom([]int64{first, -1, 0, 1, last})).Draw(t, "seconds")
		nanoseconds := rapid.OneOf(rapid.Int64Range(0, 999_999_999), rapid.Just(int64(0))).Draw(t, "nanoseconds")
		return time.Unix(seconds, nanoseconds)
	})
}

func durations() *rapid.Generator[time.Duration] {
	return rapid.OneOf(
		rapid.Map(rapid.Int64(), func(i int64) time.Duration { return time.Duration(i) }),
		rapid.Map(rapid.Int64Range(-100_000, 100_000), func(i int64) time.Duration { return time.Duration(i) * time.Second }),
		rapid.SampledFrom([]time.Duration{0, -1, 1, time.Hour, 90 * time.Minute, math.MaxInt64, math.MinInt64}),
	)
}

func records() *rapid.Generator[value.RecordID] {
	return rapid.Custom(func(t *rapid.T) value.RecordID {
		return value.RecordID{Table: Name().Draw(t, "table"), Key: Key().Draw(t, "key")}
	})
}
