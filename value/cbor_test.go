package value_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
	"github.com/tidemarkdb/tidemark/value/valuetest"
)

var (
	testUUID = uuid.MustParse("0192f0c1-7a3e-7c11-8f10-3a5b7c9d1e2f")
	testTime = time.Date(2026, 1, 31, 10, 0, 0, 5, time.UTC)
)

func object(fields value.Object) value.Value { return value.Fields(fields) }

// nested returns a value with so many arrays around another.
func nested(depth int, v value.Value) value.Value {
	for range depth {
		v = value.Array(v)
	}
	return v
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatalf("the test's hexadecimal %q: %v", text, err)
	}
	return b
}

func encode(t rapid.TB, v value.Value) []byte {
	t.Helper()
	b, err := v.AppendCBOR(nil)
	if err != nil {
		t.Fatalf("encoding %s: %v", v, err)
	}
	return b
}

func TestCBOROfEachKindIsTheseBytes(t *testing.T) {
	for _, c := range []struct {
		v    value.Value
		want string
	}{
		{object(value.Object{"v": value.String("aaaa")}), "a1 6176 6461616161"},
		{value.None(), "f7"},
		{value.Null(), "f6"},
		{value.Bool(false), "f4"},
		{value.Bool(true), "f5"},
		{value.Int(0), "00"},
		{value.Int(23), "17"},
		{value.Int(24), "1818"},
		{value.Int(255), "18ff"},
		{value.Int(256), "190100"},
		{value.Int(65536), "1a00010000"},
		{value.Int(1 << 32), "1b0000000100000000"},
		{value.Int(math.MaxInt64), "1b7fffffffffffffff"},
		{value.Int(-1), "20"},
		{value.Int(-25), "3818"},
		{value.Int(math.MinInt64), "3b7fffffffffffffff"},
		{value.Float(0), "f90000"},
		{value.Float(math.Copysign(0, -1)), "f98000"},
		{value.Float(1), "f93c00"},
		{value.Float(65504), "f97bff"},
		{value.Float(5.960464477539063e-08), "f90001"},
		{value.Float(100000), "fa47c35000"},
		{value.Float(0.1), "fb3fb999999999999a"},
		{value.String(""), "60"},
		{value.String("é"), "62c3a9"},
		{value.Bytes(nil), "40"},
		{value.Bytes([]byte{0xca, 0xfe}), "42cafe"},
		{value.UUID(testUUID), "d825 50 0192f0c17a3e7c118f103a5b7c9d1e2f"},
		{value.Datetime(testTime), "d903e9 a2 01 1a697dd2a0 28 05"},
		{value.Datetime(time.Unix(-1, 999_999_999)), "d903e9 a2 01 20 28 1a3b9ac9ff"},
		{value.Datetime(time.Unix(0, 0)), "d903e9 a2 01 00 28 00"},
		{value.Duration(90 * time.Second), "d903ea a2 01 185a 28 00"},
		{value.Duration(-1), "d903ea a2 01 20 28 1a3b9ac9ff"},
		{value.Duration(-time.Second), "d903ea a2 01 20 28 00"},
		{value.Duration(math.MinInt64), "d903ea a2 01 3b00000002 25c17d04 28 1a08a7f200"},
		{value.Array(), "80"},
		{value.Array(value.Int(1), value.None(), value.Null()), "83 01 f7 f6"},
		{object(nil), "a0"},
		{object(value.Object{"a": value.None()}), "a0"},
		{object(value.Object{"bb": value.Int(1), "c": value.Int(2), "a": value.Int(3)}), "a3 6161 03 6163 02 626262 01"},
		{value.Record(value.RecordID{Table: "orders", Key: value.Int(1001)}), "d827 82 666f7264657273 1903e9"},
		{value.Record(value.RecordID{Table: "t", Key: value.String("k")}), "d827 82 6174 616b"},
		{value.Record(value.RecordID{Table: "t", Key: value.UUID(testUUID)}), "d827 82 6174 d825 50 0192f0c17a3e7c118f103a5b7c9d1e2f"},
	} {
		got, want := encode(t, c.v), unhex(t, c.want)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got %x, want %x", c.v, got, want)
		}
		if size, err := c.v.Size(); size != len(want) || err != nil {
			t.Errorf("Size of %s: %d, %v, want %d", c.v, size, err, len(want))
		}
		if decoded, err := value.DecodeCBOR(want); err != nil || !bytes.Equal(encode(t, decoded), want) {
			t.Errorf("decoding %x: got %s, %v, want %s", want, decoded, err, c.v)
		}
	}
}

func TestCBORThatOthersWriteIsUnderstood(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       value.Value
	}{
		{"an int in a longer head", "1b0000000000000001", value.Int(1)},
		{"a float in a wider form", "fb3ff0000000000000", value.Float(1)},
		{"fields in another order", "a2 6162 01 6161 02", object(value.Object{"a": value.Int(2), "b": value.Int(1)})},
		{"an object of indefinite length", "bf 6161 01 ff", object(value.Object{"a": value.Int(1)})},
		{"an array of indefinite length", "9f 01 9f ff ff", value.Array(value.Int(1), value.Array())},
		{"text in chunks", "7f 6161 60 6162 ff", value.String("ab")},
		{"bytes in chunks", "5f 4101 4102 ff", value.Bytes([]byte{1, 2})},
		{"no chunks", "7f ff", value.String("")},
		{"a field that is undefined", "a2 6161 f7 6162 01", object(value.Object{"b": value.Int(1)})},
		{"seconds alone", "d903e9 a1 01 00", value.Datetime(time.Unix(0, 0))},
		{"nanoseconds first", "d903ea a2 28 05 01 01", value.Duration(time.Second + 5)},
		{"a time of indefinite length", "d903ea bf 01 01 ff", value.Duration(time.Second)},
		{"a record id of indefinite length", "d827 9f 6174 01 ff", value.Record(value.RecordID{Table: "t", Key: value.Int(1)})},
		{"a tag in a longer head", "d90025 50 0192f0c17a3e7c118f103a5b7c9d1e2f", value.UUID(testUUID)},
	} {
		got, err := value.DecodeCBOR(unhex(t, c.data))
		if err != nil || got.Kind() != c.want.Kind() || !value.Equal(got, c.want) {
			t.Errorf("%s (%s): got %s, %v, want %s", c.name, c.data, got, err, c.want)
		}
		if got.Kind() == value.KindObject && !bytes.Equal(encode(t, got), encode(t, c.want)) {
			t.Errorf("%s (%s): got %s, want %s", c.name, c.data, got, c.want)
		}
	}
}

func TestADecodedFieldThatIsUndefinedIsNotInTheObject(t *testing.T) {
	v, err := value.DecodeCBOR(unhex(t, "a2 6161 f7 6162 01"))
	if fields, _ := v.AsObject(); err != nil || len(fields) != 1 {
		t.Errorf("got %v, %v, want one field", fields, err)
	}
}

func TestCBORThatIsNoValueIsRefused(t *testing.T) {
	for _, c := range []struct{ name, data, message string }{
		{"nothing", "", "the data ends"},
		{"bytes after the value", "01 02", "1 bytes follow"},
		{"half a head", "19 01", "needs 2 bytes more"},
		{"half a string", "62 61", "needs 2 bytes more, and 1 are left"},
		{"a string of 2^64-1 bytes", "7b ffffffffffffffff 61", "bytes more"},
		{"an array of 2^64-1 elements", "9b ffffffffffffffff 01", "the data ends"},
		{"a map of 2^63 fields", "bb 8000000000000000 6161 01", "the data ends"},
		{"a reserved head", "1c", "reserved"},
		{"an int of indefinite length", "1f", "indefinite"},
		{"a tag of indefinite length", "df 01", "indefinite"},
		{"an int over 2^63-1", "1b 8000000000000000", "the int 9223372036854775808 is over"},
		{"an int under -2^63", "3b 8000000000000000", "is under"},
		{"a bignum", "c2 49 010000000000000000", "tag 2 is unknown"},
		{"a date in tag 0", "c0 60", "a datetime is tag 1001"},
		{"NaN, half", "f9 7e00", "NaN"},
		{"NaN, double", "fb 7ff8000000000001", "NaN"},
		{"infinity", "fa 7f800000", "Inf"},
		{"negative infinity", "f9 fc00", "-Inf"},
		{"invalid UTF-8", "61 ff", "not valid UTF-8"},
		{"a surrogate in UTF-8", "63 eda080", "not valid UTF-8"},
		{"invalid UTF-8 in a name", "a1 61ff 01", "not valid UTF-8"},
		{"a character split between chunks", "7f 61c3 61a9 ff", "not valid UTF-8"},
		{"a chunk of another kind", "7f 4161 ff", "chunk"},
		{"a chunk of chunks", "7f 7f6161ff ff", "chunk"},
		{"no end of chunks", "7f 6161", "the data ends"},
		{"no end of an array", "9f 01", "the data ends"},
		{"an end of nothing", "ff", "break"},
		{"an end in a definite array", "82 01 ff", "break"},
		{"an end between name and value", "bf 6161 ff", "break"},
		{"a field twice", "a2 6161 01 6161 02", `the field "a" is there twice`},
		{"a field twice, undefined once", "a2 6161 f7 6161 02", `the field "a" is there twice`},
		{"a name that is an int", "a1 01 01", "name"},
		{"a name that is bytes", "a1 4161 01", "name"},
		{"an unknown simple value", "f8 20", "the simple value 32"},
		{"true in two bytes", "f8 15", "the simple value 21"},
		{"a uuid of 15 bytes", "d825 4f 0192f0c17a3e7c118f103a5b7c9d1e", "16 bytes"},
		{"a uuid of text", "d825 61 61", "16 bytes"},
		{"a record id of one", "d827 81 6174", "[table, key]"},
		{"a record id of three", "d827 83 6174 01 02", "[table, key]"},
		{"a record id of three, indefinite", "d827 9f 6174 01 02 ff", "[table, key]"},
		{"a record id of no table", "d827 82 01 01", "the table"},
		{"a record id with a float", "d827 82 6174 f93c00", "the key"},
		{"a record id in a record id", "d827 82 6174 d827 82 6174 01", "the key"},
		{"a datetime that is an int", "d903e9 01", "the map"},
		{"a datetime without seconds", "d903e9 a1 28 00", "key 1"},
		{"a datetime with another key", "d903e9 a2 01 00 27 00", "-8 is wrong"},
		{"a datetime with seconds twice", "d903e9 a2 01 00 01 00", "1 is wrong"},
		{"a datetime of float seconds", "d903e9 a1 01 f93c00", "an int is expected"},
		{"nanoseconds of a whole second", "d903e9 a2 01 00 28 1a3b9aca00", "not 1000000000"},
		{"negative nanoseconds", "d903e9 a2 01 00 28 20", "not -1"},
		{"the year 10000", "d903e9 a2 01 1b0000003afff44180 28 00", "the years 0 to 9999"},
		{"a year before 0", "d903e9 a2 01 3b7fffffffffffffff 28 00", "the years 0 to 9999"},
		{"a duration one too long", "d903ea a2 01 1b0000000225c17d04 28 1a32f2d800", "292 years"},
		{"a duration one too short", "d903ea a2 01 3b0000000225c17d04 28 1a08a7f1ff", "292 years"},
		{"a duration of 2^63-1 seconds", "d903ea a1 01 1b7fffffffffffffff", "292 years"},
	} {
		got, err := value.DecodeCBOR(unhex(t, c.data))
		if !errors.Is(err, fault.TypeMismatch) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s (%s): got %s, %v, want TypeMismatch with %q", c.name, c.data, got, err, c.message)
		}
	}
}

func TestNestingIsBoundedInEveryEncoding(t *testing.T) {
	const most = value.MaxCarriedDepth
	deepest, tooDeep := nested(most, value.Int(1)), nested(most+1, value.Int(1))
	// The bound counts arrays and objects, not the tags of what stands inside.
	for _, v := range []value.Value{deepest, nested(most, value.Datetime(testTime)),
		nested(most, value.Record(value.RecordID{Table: "t", Key: value.UUID(testUUID)})),
		nested(most-1, object(value.Object{"a": value.Int(1)}))} {
		if decoded, err := value.DecodeCBOR(encode(t, v)); err != nil || !value.Equal(decoded, v) {
			t.Errorf("at the bound: got %s, %v, want %s", decoded, err, v)
		}
		if _, err := v.AppendJSON(nil); err != nil {
			t.Errorf("at the bound, JSON: %v", err)
		}
	}
	for _, v := range []value.Value{tooDeep, nested(most, object(nil))} {
		if _, err := v.AppendCBOR(nil); !errors.Is(err, fault.TooLarge) {
			t.Errorf("AppendCBOR past the bound: got %v, want TooLarge", err)
		}
		if _, err := v.Size(); !errors.Is(err, fault.TooLarge) {
			t.Errorf("Size past the bound: got %v, want TooLarge", err)
		}
		if _, err := v.AppendJSON(nil); !errors.Is(err, fault.TooLarge) {
			t.Errorf("AppendJSON past the bound: got %v, want TooLarge", err)
		}
	}
	for _, levels := range []int{0, 8} {
		if _, err := nested(value.MaxDepth+levels, value.Int(1)).AppendStored(nil, levels); err != nil {
			t.Errorf("stored at the bound: %v", err)
		}
		if _, err := nested(value.MaxDepth+levels+1, value.Int(1)).AppendStored(nil, levels); !errors.Is(err, fault.TooLarge) {
			t.Errorf("stored past the bound: got %v, want TooLarge", err)
		}
	}
	for _, opening := range []string{"81", "9f", "a1 6161", "bf 6161"} {
		data := bytes.Repeat(unhex(t, opening), 1_000_000)
		if _, err := value.DecodeCBOR(data); !errors.Is(err, fault.TooLarge) {
			t.Errorf("DecodeCBOR of a million %s: got %v, want TooLarge", opening, err)
		}
	}
	for _, opening := range []string{"[", `{"a":`} {
		if _, err := value.ParseJSON([]byte(strings.Repeat(opening, 1_000_000))); !errors.Is(err, fault.TooLarge) {
			t.Errorf("ParseJSON of a million %s: got %v, want TooLarge", opening, err)
		}
	}
	if v, err := value.ParseJSON([]byte(strings.Repeat("[", value.MaxDepth) + strings.Repeat("]", value.MaxDepth))); err != nil {
		t.Errorf("ParseJSON at the bound: %s, %v", v, err)
	}
}

func TestClaimedLengthsDoNotTakeMemory(t *testing.T) {
	// 64 arrays in each other that each claim 2^32 elements.
	data := bytes.Repeat(unhex(t, "9a ffffffff"), value.MaxDepth)
	if allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := value.DecodeCBOR(data); err == nil {
				b.Fatal("a truncated array was decoded")
			}
		}
	}).AllocedBytesPerOp(); allocated > 1<<20 {
		t.Errorf("%d bytes of input took %d bytes of memory", len(data), allocated)
	}
}

// unencodable are values that may exist in memory and that no encoding takes.
var unencodable = []struct {
	name string
	v    value.Value
}{
	{"NaN", value.Float(math.NaN())},
	{"infinity", value.Float(math.Inf(-1))},
	{"invalid UTF-8", value.String("a\xff")},
	{"invalid UTF-8 in a name", object(value.Object{"\xff": value.Int(1)})},
	{"invalid UTF-8 in a table", value.Record(value.RecordID{Table: "\xff", Key: value.Int(1)})},
	{"invalid UTF-8 in a key", value.Record(value.RecordID{Table: "t", Key: value.String("\xff")})},
	{"a datetime before year 0", value.Datetime(time.Date(-1, 12, 31, 23, 59, 59, 0, time.UTC))},
	{"a datetime after year 9999", value.Datetime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
	{"a record id without a key", value.Record(value.RecordID{Table: "t"})},
	{"a record id with bytes", value.Record(value.RecordID{Table: "t", Key: value.Bytes([]byte{1})})},
}

func TestWhatIsNoValueIsNotEncoded(t *testing.T) {
	for _, c := range unencodable {
		for _, v := range []value.Value{c.v, value.Array(c.v), object(value.Object{"a": c.v})} {
			before := []byte("before")
			after, err := v.AppendCBOR(before)
			if !errors.Is(err, fault.TypeMismatch) || string(after) != "before" {
				t.Errorf("AppendCBOR of %s: got %q, %v, want dst and TypeMismatch", c.name, after, err)
			}
			after, err = v.AppendJSON(before)
			if !errors.Is(err, fault.TypeMismatch) || string(after) != "before" {
				t.Errorf("AppendJSON of %s: got %q, %v, want dst and TypeMismatch", c.name, after, err)
			}
			if _, err := v.Size(); !errors.Is(err, fault.TypeMismatch) {
				t.Errorf("Size of %s: got %v, want TypeMismatch", c.name, err)
			}
		}
	}
}

func TestCBORRoundTripsEveryValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valuetest.Generator(4).Draw(t, "value")
		encoded := encode(t, v)
		decoded, err := value.DecodeCBOR(encoded)
		if err != nil {
			t.Fatalf("decoding %x: %v", encoded, err)
		}
		if !value.Equal(v, decoded) {
			t.Fatalf("got %s, want %s", decoded, v)
		}
		// The bytes tell an int from a float, which Equal does not.
		if again := encode(t, decoded); !bytes.Equal(again, encoded) {
			t.Fatalf("%s is %x, and decoded and encoded again %x", v, encoded, again)
		}
		if size, err := v.Size(); err != nil || size != len(encoded) {
			t.Fatalf("Size is %d, %v, of %d bytes", size, err, len(encoded))
		}
	})
}

// libraryTree is the value as the library knows it.
func libraryTree(v value.Value) any {
	seconds := func(tag uint64, s, n int64) any {
		return cbor.Tag{Number: tag, Content: map[int64]int64{1: s, -9: n}}
	}
	switch v.Kind() {
	case value.KindNone:
		return cbor.SimpleValue(23)
	case value.KindUUID:
		id, _ := v.AsUUID()
		return cbor.Tag{Number: 37, Content: id[:]}
	case value.KindDatetime:
		at, _ := v.AsDatetime()
		return seconds(1001, at.Unix(), int64(at.Nanosecond()))
	case value.KindDuration:
		d, _ := v.AsDuration()
		floor := math.Floor(d.Truncate(time.Second).Seconds())
		if d%time.Second < 0 {
			floor--
		}
		return seconds(1002, int64(floor), (int64(d%time.Second)+1e9)%1e9)
	case value.KindArray:
		elements, _ := v.AsArray()
		tree := make([]any, len(elements))
		for i, element := range elements {
			tree[i] = libraryTree(element)
		}
		return tree
	case value.KindObject:
		fields, _ := v.AsObject()
		tree := map[string]any{}
		for name, field := range fields {
			if !field.IsNone() {
				tree[name] = libraryTree(field)
			}
		}
		return tree
	case value.KindRecord:
		id, _ := v.AsRecord()
		return cbor.Tag{Number: 39, Content: []any{id.Table, libraryTree(id.Key)}}
	default:
		var tree any
		if err := v.Scan(&tree); err != nil {
			panic(err)
		}
		return tree
	}
}

func libraryModes(t testing.TB) (cbor.EncMode, cbor.DecMode) {
	t.Helper()
	encoding, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	decoding, err := cbor.DecOptions{
		DupMapKey:       cbor.DupMapKeyEnforcedAPF,
		IndefLength:     cbor.IndefLengthForbidden,
		MaxNestedLevels: value.MaxDepth + 4,
	}.DecMode()
	if err != nil {
		t.Fatal(err)
	}
	return encoding, decoding
}

func TestTheLibraryEncodesTheSameDataToTheSameBytes(t *testing.T) {
	encoding, _ := libraryModes(t)
	rapid.Check(t, func(t *rapid.T) {
		v := valuetest.Generator(4).Draw(t, "value")
		want, err := encoding.Marshal(libraryTree(v))
		if err != nil {
			t.Fatal(err)
		}
		if got := encode(t, v); !bytes.Equal(got, want) {
			t.Fatalf("%s: got %x, the library writes %x", v, got, want)
		}
	})
}

func TestTheLibraryDecodesWhatIsEncoded(t *testing.T) {
	encoding, decoding := libraryModes(t)
	rapid.Check(t, func(t *rapid.T) {
		v := valuetest.Generator(4).Draw(t, "value")
		encoded := encode(t, v)
		var decoded cbor.RawMessage // keeps undefined, which any does not
		if err := decoding.Unmarshal(encoded, &decoded); err != nil {
			t.Fatalf("the library on %x, which is %s: %v", encoded, v, err)
		}
		var tree any
		if err := decoding.Unmarshal(encoded, &tree); err != nil {
			t.Fatalf("the library on %x, which is %s: %v", encoded, v, err)
		}
		again, err := encoding.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if want := encode(t, noneAsNull(v)); !bytes.Equal(again, want) {
			t.Fatalf("%s: the library read %x as %x", v, want, again)
		}
	})
}

// noneAsNull is what the library makes of a value in an any.
func noneAsNull(v value.Value) value.Value {
	if v.IsNone() {
		return value.Null()
	}
	if elements, ok := v.AsArray(); ok {
		replaced := make([]value.Value, len(elements))
		for i, element := range elements {
			replaced[i] = noneAsNull(element)
		}
		return value.Array(replaced...)
	}
	if fields, ok := v.AsObject(); ok {
		replaced := value.Object{}
		for name, field := range fields {
			if !field.IsNone() {
				replaced[name] = noneAsNull(field)
			}
		}
		return value.Fields(replaced)
	}
	return v
}

func TestValuesNestInWhatTheLibraryEncodes(t *testing.T) {
	type answer struct {
		Position int64                  `cbor:"position"`
		Value    value.Value            `cbor:"value"`
		Params   map[string]value.Value `cbor:"params"`
		Rows     []value.Value          `cbor:"rows"`
	}
	encoding, decoding := libraryModes(t)
	for _, v := range []value.Value{value.None(), value.Null(), value.Int(5), value.Float(5), value.Datetime(testTime),
		object(value.Object{"a": value.Array(value.None(), value.UUID(testUUID))})} {
		in := answer{Position: 3, Value: v, Params: map[string]value.Value{"p": v}, Rows: []value.Value{v, v}}
		encoded, err := encoding.Marshal(in)
		if err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		out := answer{Value: value.String("of before")}
		if err := decoding.Unmarshal(encoded, &out); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		for _, got := range []value.Value{out.Value, out.Params["p"], out.Rows[0], out.Rows[1]} {
			if !bytes.Equal(encode(t, got), encode(t, v)) {
				t.Errorf("got %s, want %s", got, v)
			}
		}
	}
}

func FuzzDecodeCBOR(f *testing.F) {
	for _, seed := range []string{"f7", "f6", "1b7fffffffffffffff", "3b7fffffffffffffff", "fb3fb999999999999a", "f93c00", "a161766461616161",
		"d825500192f0c17a3e7c118f103a5b7c9d1e2f", "d903e9a2011a697dd2a02805", "d903eaa20120281a3b9ac9ff", "d82782666f72646572731903e9",
		"9f01ff", "bf616101ff", "7f6161ff", "5f4101ff", "a26161016161f7", "9bffffffffffffffff", "81818181818180", "d82782617401"} {
		f.Add(unhex(f, seed))
	}
	_, decoding := libraryModes(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := value.DecodeCBOR(data)
		if err != nil {
			if !errors.Is(err, fault.TypeMismatch) && !errors.Is(err, fault.TooLarge) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		encoded := encode(t, v)
		var tree any
		if err := decoding.Unmarshal(encoded, &tree); err != nil {
			t.Fatalf("the library refuses %x, which is %s: %v", encoded, v, err)
		}
		if again, err := value.DecodeCBOR(encoded); err != nil || !bytes.Equal(encode(t, again), encoded) {
			t.Fatalf("%x decoded to %s, %v", encoded, again, err)
		}
	})
}

func TestEveryBeginningOfAnEncodingIsRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valuetest.Generator(2).Draw(t, "value")
		encoded := encode(t, v)
		for length := range encoded {
			if got, err := value.DecodeCBOR(encoded[:length]); !errors.Is(err, fault.TypeMismatch) {
				t.Fatalf("%d bytes of %x, which is %s: got %s, %v, want TypeMismatch", length, encoded, v, got, err)
			}
		}
	})
}
