package value_test

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
	"github.com/tidemarkdb/tidemark/value/valuetest"
)

type status string

type line struct {
	SKU   string  `json:"sku"`
	Price float64 `json:"price"`
	Count uint8   `json:"count,omitempty"`
}

type audit struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// Where is embedded by a pointer.
type Where struct {
	City string `json:"city"`
}

type order struct {
	audit
	*Where
	ID       uuid.UUID      `json:"id"`
	Number   int64          `json:"number"`
	Status   status         `json:"status"`
	Wait     time.Duration  `json:"wait"`
	Note     *string        `json:"note"`
	Lines    []line         `json:"lines"`
	Tags     map[status]int `json:"tags"`
	Raw      []byte         `json:"raw"`
	Hash     [2]byte        `json:"hash"`
	Pair     [2]int         `json:"pair"`
	Any      any            `json:"any"`
	Held     value.Value    `json:"held"`
	Of       value.RecordID `json:"of"`
	Plain    bool
	Secret   string    `json:"-"`
	Empty    []int     `json:"empty,omitempty"`
	Never    time.Time `json:"never,omitzero"`
	internal int
}

func exampleOrder() order {
	note := "ring twice"
	return order{
		audit: audit{By: "ana", At: testTime}, Where: &Where{City: "Bonn"}, ID: testUUID, Number: math.MaxInt64, Status: "paid",
		Wait: 90 * time.Second, Note: &note, Lines: []line{{"a-1", 1.5, 2}, {"b-2", 2, 0}}, Tags: map[status]int{"vip": 1},
		Raw: []byte{1, 2}, Hash: [2]byte{3, 4}, Pair: [2]int{5, 6}, Any: []any{int64(1), "x", nil}, Held: value.Float(1),
		Of: value.RecordID{Table: "carts", Key: value.Int(7)}, Plain: true, Secret: "hidden", internal: 9,
	}
}

func TestAStructBecomesAnObjectAndComesBack(t *testing.T) {
	in := exampleOrder()
	v, err := value.Of(in)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{ Plain: true, any: [1, 'x', null], at: d'2026-01-31T10:00:00.000000005Z', by: 'ana', city: 'Bonn', ` +
		`hash: b'0304', held: 1.0, id: u'0192f0c1-7a3e-7c11-8f10-3a5b7c9d1e2f', ` +
		`lines: [{ count: 2, price: 1.5, sku: 'a-1' }, { price: 2.0, sku: 'b-2' }], note: 'ring twice', number: 9223372036854775807, ` +
		`of: carts:7, pair: [5, 6], raw: b'0102', status: 'paid', tags: { vip: 1 }, wait: 1m30s }`
	if got := v.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var out order
	if err := v.Scan(&out); err != nil {
		t.Fatal(err)
	}
	in.Secret, in.internal = "", 0
	if !reflect.DeepEqual(in, out) {
		t.Errorf("came back as\n%+v\nwant\n%+v", out, in)
	}
}

func TestGoValuesConvertToTheirKinds(t *testing.T) {
	text := "text"
	pointer := &text
	for _, c := range []struct {
		in   any
		want string
	}{
		{nil, "null"},
		{(*int)(nil), "null"},
		{(any)((*time.Time)(nil)), "null"},
		{&pointer, "'text'"},
		{value.None(), "none"},
		{&[]value.Value{value.Int(1)}, "[1]"},
		{value.Object{"a": value.Int(1)}, "{ a: 1 }"},
		{int8(-8), "-8"},
		{uint64(math.MaxInt64), "9223372036854775807"},
		{time.March, "3"},
		{float32(0.5), "0.5"},
		{1.0, "1.0"},
		{status("s"), "'s'"},
		{[]int(nil), "[]"},
		{map[string]int(nil), "{}"},
		{[]byte(nil), "b''"},
		{[3]byte{1, 2, 3}, "b'010203'"},
		{[]any{1, 1.5, nil, true}, "[1, 1.5, null, true]"},
		{map[string]any{"a": map[status]any{"b": nil}}, "{ a: { b: null } }"},
		{time.Duration(5), "5ns"},
		{time.Unix(0, 5), "d'1970-01-01T00:00:00.000000005Z'"},
		{testUUID, "u'0192f0c1-7a3e-7c11-8f10-3a5b7c9d1e2f'"},
		{value.RecordID{Table: "t", Key: value.Int(1)}, "t:1"},
		{netip.MustParseAddr("10.0.0.1"), "'10.0.0.1'"},
		{*big.NewInt(12), "'12'"},
		{struct{ V value.Value }{}, "{}"},
		{struct{}{}, "{}"},
	} {
		if got, err := value.Of(c.in); err != nil || got.String() != c.want {
			t.Errorf("%T %v: got %s, %v, want %s", c.in, c.in, got, err, c.want)
		}
	}
}

func TestEmbeddedFieldsFollowTheRulesOfEncodingJSON(t *testing.T) {
	type inner struct {
		A int `json:"a"`
		C int
		D int `json:"D"`
	}
	type other struct {
		C int
		D int
	}
	type named struct{ E int }
	type outer struct {
		inner
		other
		named `json:"named"`
		A     int `json:"a"`
		value.Value
	}
	in := outer{inner: inner{1, 3, 4}, other: other{6, 7}, A: 8, Value: value.Int(9)}
	if v, err := value.Of(in); err != nil || v.String() != `{ D: 4, Value: 9, a: 8 }` {
		t.Errorf("got %s, %v", v, err)
	}
}

func TestOmittedFieldsAreNotThere(t *testing.T) {
	type omitting struct {
		*Where
		Int     int            `json:"int,omitempty"`
		Text    string         `json:"text,omitempty"`
		Pointer *int           `json:"pointer,omitempty"`
		Map     map[string]int `json:"map,omitempty"`
		Struct  line           `json:"struct,omitempty"` // without effect, as in encoding/json
		Zero    line           `json:"zero,omitzero"`
		Time    *time.Time     `json:"time,omitzero"`
		Held    value.Value    `json:"held"`
	}
	v, err := value.Of(omitting{Map: map[string]int{}})
	if want := `{ struct: { price: 0.0, sku: '' } }`; err != nil || v.String() != want {
		t.Errorf("got %s, %v, want %s", v, err, want)
	}
	v, err = value.Of(omitting{Where: &Where{}, Int: 1, Zero: line{Count: 1}, Time: &testTime, Held: value.Null()})
	if want := `{ city: '', held: null, int: 1, struct: { price: 0.0, sku: '' }, ` +
		`time: d'2026-01-31T10:00:00.000000005Z', zero: { count: 1, price: 0.0, sku: '' } }`; err != nil || v.String() != want {
		t.Errorf("got %s, %v, want %s", v, err, want)
	}
}

func TestWhatHasNoValueIsRefusedWithItsPlace(t *testing.T) {
	type item struct{ Price any }
	type basket struct {
		Items []item `json:"items"`
		ByKey map[string]any
	}
	cyclic := map[string]any{}
	cyclic["self"] = cyclic
	type loop *loop
	var endless loop
	endless = &endless
	for _, c := range []struct {
		in      any
		kind    fault.Kind
		message string
	}{
		{make(chan int), fault.TypeMismatch, "TypeMismatch: a Go chan int is no value"},
		{basket{Items: []item{{1}, {func() {}}}}, fault.TypeMismatch, "TypeMismatch: Items[1].Price: a Go func() is no value"},
		{[][]any{{1}, {1, complex(1, 2)}}, fault.TypeMismatch, "TypeMismatch: [1][1]: a Go complex128 is no value"},
		{basket{ByKey: map[string]any{"a b": []any{math.NaN()}}}, fault.TypeMismatch, "TypeMismatch: ByKey.`a b`[0]: a float cannot be NaN"},
		{uint64(1 << 63), fault.TypeMismatch, "9223372036854775808 is over 9223372036854775807"},
		{[]item{{uint(math.MaxUint64)}}, fault.TypeMismatch, "[0].Price: 18446744073709551615 is over"},
		{float32(math.Inf(1)), fault.TypeMismatch, "a float cannot be +Inf"},
		{map[int]string{1: "a"}, fault.TypeMismatch, "a Go map[int]string is no value"},
		{"\xff", fault.TypeMismatch, "not valid UTF-8"},
		{map[string]int{"\xff": 1}, fault.TypeMismatch, "not valid UTF-8"},
		{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), fault.TypeMismatch, "the years 0 to 9999"},
		{value.RecordID{Table: "t"}, fault.TypeMismatch, "the key of a record id of t is"},
		{uintptr(1), fault.TypeMismatch, "a Go uintptr is no value"},
		{cyclic, fault.TooLarge, "at most 64"},
		{endless, fault.TooLarge, "at most 64"},
	} {
		got, err := value.Of(c.in)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%T: got %s, %v, want %s with %q", c.in, got, err, c.kind, c.message)
		}
	}
}

// scanned scans v into a new T.
func scanned[T any](v value.Value) (any, error) {
	var dst T
	err := v.Scan(&dst)
	return dst, err
}

func TestValuesScanIntoGoVariables(t *testing.T) {
	one := 1
	for _, c := range []struct {
		scan func(value.Value) (any, error)
		v    value.Value
		want any
	}{
		{scanned[int8], value.Int(-128), int8(-128)},
		{scanned[uint64], value.Int(math.MaxInt64), uint64(math.MaxInt64)},
		{scanned[int], value.Float(3), 3},
		{scanned[float64], value.Int(1 << 53), float64(1 << 53)},
		{scanned[float32], value.Float(0.1), float32(0.1)},
		{scanned[status], value.String("s"), status("s")},
		{scanned[bool], value.Bool(true), true},
		{scanned[*int], value.Int(1), &one},
		{scanned[*int], value.Null(), (*int)(nil)},
		{scanned[**int], value.None(), (**int)(nil)},
		{scanned[[]int], value.Null(), []int(nil)},
		{scanned[map[string]int], value.None(), map[string]int(nil)},
		{scanned[any], value.Null(), nil},
		{scanned[any], value.Int(1), int64(1)},
		{scanned[any], value.UUID(testUUID), testUUID},
		{scanned[any], value.Datetime(testTime), testTime},
		{scanned[any], value.Array(value.Float(1), value.None(), object(value.Object{"a": value.Duration(1), "b": value.None()})),
			[]any{1.0, nil, map[string]any{"a": time.Duration(1)}}},
		{scanned[value.Value], value.None(), value.None()},
		{scanned[value.Object], object(value.Object{"a": value.Int(1)}), value.Object{"a": value.Int(1)}},
		{scanned[[]value.Value], value.Array(value.Null()), []value.Value{value.Null()}},
		{scanned[time.Time], value.Datetime(testTime), testTime},
		{scanned[time.Duration], value.Duration(7), time.Duration(7)},
		{scanned[uuid.UUID], value.UUID(testUUID), testUUID},
		{scanned[value.RecordID], value.Record(value.RecordID{Table: "t", Key: value.Int(1)}), value.RecordID{Table: "t", Key: value.Int(1)}},
		{scanned[[2]byte], value.Bytes([]byte{1, 2}), [2]byte{1, 2}},
		{scanned[netip.Addr], value.String("10.0.0.1"), netip.MustParseAddr("10.0.0.1")},
		{scanned[map[status][]int8], object(value.Object{"a": value.Array(value.Int(1)), "b": value.None()}), map[status][]int8{"a": {1}}},
		{scanned[line], object(value.Object{"sku": value.String("a"), "more": value.Int(1), "price": value.Int(2)}), line{SKU: "a", Price: 2}},
	} {
		if got, err := c.scan(c.v); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %#v, %v, want %#v", c.v, got, err, c.want)
		}
	}
}

func TestWhatDoesNotFitIsRefusedWithItsPlace(t *testing.T) {
	lines := func(fields value.Object) value.Value {
		return object(value.Object{"lines": value.Array(object(nil), object(fields))})
	}
	for _, c := range []struct {
		scan    func(value.Value) (any, error)
		v       value.Value
		message string
	}{
		{scanned[int8], value.Int(128), "TypeMismatch: the int 128 is outside what a Go int8 holds"},
		{scanned[int8], value.Float(128), "the int 128 is outside"},
		{scanned[uint], value.Int(-1), "the int -1 is outside"},
		{scanned[int64], value.Float(1.5), "the float 1.5 is no int"},
		{scanned[int64], value.Float(1 << 63), "is no int and does not fit"},
		{scanned[float64], value.Int(1<<53 + 1), "a Go float64 would round the int 9007199254740993"},
		{scanned[float32], value.Int(1<<24 + 1), "a Go float32 would round"},
		{scanned[float32], value.Float(1e300), "outside what a Go float32 holds"},
		{scanned[string], value.Int(1), "an int does not fit in a Go string"},
		{scanned[string], value.Null(), "null does not fit in a Go string; a *string takes it"},
		{scanned[time.Time], value.None(), "none does not fit in a Go time.Time; a *time.Time takes it"},
		{scanned[time.Duration], value.Int(1), "an int does not fit in a Go time.Duration"},
		{scanned[int64], value.Duration(1), "a duration does not fit in a Go int64"},
		{scanned[[]byte], value.String("a"), "a string does not fit in a Go []uint8"},
		{scanned[uuid.UUID], value.Bytes(make([]byte, 16)), "bytes does not fit in a Go uuid.UUID"},
		{scanned[[2]byte], value.Bytes([]byte{1}), "1 bytes do not fit in a Go [2]uint8"},
		{scanned[[2]int], value.Array(value.Int(1)), "an array of 1 elements does not fit in a Go [2]int"},
		{scanned[netip.Addr], value.String("x"), `the string "x" does not fit in a Go netip.Addr`},
		{scanned[map[int]int], object(nil), "an object does not fit in a Go map[int]int"},
		{scanned[chan int], value.Int(1), "an int does not fit in a Go chan int"},
		{scanned[order], lines(value.Object{"price": value.String("x")}), "lines[1].price: a string does not fit in a Go float64"},
		{scanned[order], lines(value.Object{"count": value.Int(300)}), "lines[1].count: the int 300 is outside"},
		{scanned[map[string][]int], object(value.Object{"a b": value.Array(value.Null())}), "`a b`[0]: null does not fit"},
	} {
		if got, err := c.scan(c.v); !errors.Is(err, fault.TypeMismatch) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: got %#v, %v, want TypeMismatch with %q", c.v, got, err, c.message)
		}
	}
	for _, dst := range []any{nil, 1, (*int)(nil)} {
		if err := value.Int(1).Scan(dst); !errors.Is(err, fault.TypeMismatch) {
			t.Errorf("Scan into %#v: got %v, want TypeMismatch", dst, err)
		}
	}
}

func TestScanLeavesNothingOfAnEarlierValue(t *testing.T) {
	shared := 1
	type row struct {
		*Where
		A int            `json:"a"`
		P *int           `json:"p"`
		M map[string]int `json:"m"`
		S []int          `json:"s"`
		X any            `json:"x"`
	}
	dst := row{Where: &Where{"Bonn"}, A: 1, P: &shared, M: map[string]int{"old": 1}, S: []int{1, 2, 3}, X: "old"}
	v := object(value.Object{"p": value.Int(2), "m": object(value.Object{"new": value.Int(2)}), "s": value.Array(value.Int(9))})
	if err := v.Scan(&dst); err != nil {
		t.Fatal(err)
	}
	two := 2
	want := row{Where: &Where{}, P: &two, M: map[string]int{"new": 2}, S: []int{9}}
	if !reflect.DeepEqual(dst, want) {
		t.Errorf("got %+v, want %+v", dst, want)
	}
	if shared != 1 {
		t.Error("what an earlier value's pointer led to was written over")
	}
}

func TestScannedBytesAreTheCallersOwn(t *testing.T) {
	v := value.Bytes([]byte("abc"))
	var slice []byte
	var held any
	if err := errors.Join(v.Scan(&slice), v.Scan(&held)); err != nil {
		t.Fatal(err)
	}
	clear(slice)
	clear(held.([]byte))
	if !value.Equal(v, value.Bytes([]byte("abc"))) {
		t.Errorf("the value changed to %s", v)
	}
}

func TestEveryValueComesBackThroughAnAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valuetest.Generator(4).Draw(t, "value")
		var tree any
		if err := v.Scan(&tree); err != nil {
			t.Fatal(err)
		}
		back, err := value.Of(tree)
		if err != nil {
			t.Fatal(err)
		}
		if want := noneAsNull(v); !bytes.Equal(encode(t, back), encode(t, want)) {
			t.Fatalf("got %s, want %s", back, want)
		}
	})
}
