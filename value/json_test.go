package value_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
	"github.com/tidemarkdb/tidemark/value/valuetest"
)

func TestJSONOfEachKindIsThisText(t *testing.T) {
	for _, c := range []struct {
		v    value.Value
		want string
	}{
		{value.None(), `null`},
		{value.Null(), `null`},
		{value.Bool(true), `true`},
		{value.Int(math.MinInt64), `-9223372036854775808`},
		{value.Int(1<<53 + 1), `9007199254740993`},
		{value.Float(1), `1.0`},
		{value.Float(-1.5), `-1.5`},
		{value.Float(math.Copysign(0, -1)), `-0.0`},
		{value.Float(1e20), `100000000000000000000.0`},
		{value.Float(1e21), `1e+21`},
		{value.Float(1e-7), `1e-07`},
		{value.Float(0.000001), `0.000001`},
		{value.Float(math.MaxFloat64), `1.7976931348623157e+308`},
		{value.String("a\"b\\c\b\f\n\r\t\x01<&>\u2028/é'"), "\"a\\\"b\\\\c\\b\\f\\n\\r\\t\\u0001<&>\u2028/é'\""},
		{value.Bytes([]byte{0xfb, 0xff, 1}), `"+/8B"`},
		{value.Bytes([]byte("a")), `"YQ=="`},
		{value.UUID(testUUID), `"0192f0c1-7a3e-7c11-8f10-3a5b7c9d1e2f"`},
		{value.Datetime(time.Date(2026, 1, 31, 12, 0, 0, 0, time.FixedZone("", 7200))), `"2026-01-31T10:00:00Z"`},
		{value.Datetime(testTime), `"2026-01-31T10:00:00.000000005Z"`},
		{value.Duration(90 * time.Minute), `"1h30m0s"`},
		{value.Array(), `[]`},
		{value.Array(value.Int(1), value.None(), value.Array(value.Null())), `[1,null,[null]]`},
		{object(nil), `{}`},
		{object(value.Object{"b": value.Int(1), "aa": value.Int(2), "B": value.Int(3), "none": value.None()}), `{"B":3,"aa":2,"b":1}`},
		{value.Record(value.RecordID{Table: "orders", Key: value.Int(1001)}), `"orders:1001"`},
		{value.Record(value.RecordID{Table: "events", Key: value.String("it's\n")}), `"events:'it\\'s\\n'"`},
		{value.Record(value.RecordID{Table: "events", Key: value.UUID(testUUID)}), `"events:u'0192f0c1-7a3e-7c11-8f10-3a5b7c9d1e2f'"`},
		{value.Record(value.RecordID{Table: "two words", Key: value.Int(-1)}), "\"`two words`:-1\""},
	} {
		got, err := c.v.AppendJSON(nil)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.v, got, err, c.want)
		}
	}
}

func TestJSONTextIsParsedToThisValue(t *testing.T) {
	for _, c := range []struct {
		text string
		want value.Value
	}{
		{` null `, value.Null()},
		{"\t[ true ,\r\nfalse ] ", value.Array(value.Bool(true), value.Bool(false))},
		{`9223372036854775807`, value.Int(math.MaxInt64)},
		{`-9223372036854775808`, value.Int(math.MinInt64)},
		{`9007199254740993`, value.Int(1<<53 + 1)},
		{`-0`, value.Int(0)},
		{`-0.0`, value.Float(math.Copysign(0, -1))},
		{`1.0`, value.Float(1)},
		{`1e3`, value.Float(1000)},
		{`1E-3`, value.Float(0.001)},
		{`9223372036854775808.0`, value.Float(1 << 63)},
		{`1e-999`, value.Float(0)},
		{`"\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00é"`, value.String("\"\\/\b\f\n\r\té😀é")},
		{`"\u0000"`, value.String("\x00")},
		{`"2026-01-31T10:00:00Z"`, value.String("2026-01-31T10:00:00Z")},
		{`[]`, value.Array()},
		{`{"a":{"b":[1]},"":null}`, object(value.Object{
			"a": object(value.Object{"b": value.Array(value.Int(1))}), "": value.Null()})},
	} {
		got, err := value.ParseJSON([]byte(c.text))
		if err != nil || !bytes.Equal(encode(t, got), encode(t, c.want)) {
			t.Errorf("%s: got %s, %v, want %s", c.text, got, err, c.want)
		}
	}
}

func TestJSONThatIsNoValueIsRefused(t *testing.T) {
	for _, c := range []struct{ text, message string }{
		{``, "at byte 0: the text ends, a value was expected"},
		{`  `, "the text ends"},
		{`1 2`, "at byte 2: found '2', the end of the text was expected"},
		{`nul`, "a value was expected"},
		{`nullx`, "found 'x'"},
		{`NaN`, "a value was expected"},
		{`'a'`, "a value was expected"},
		{`[1,]`, "found ']', a value"},
		{`[1 2]`, "',' or ']'"},
		{`[`, "the text ends"},
		{`{"a":1,}`, "a field's name"},
		{`{"a" 1}`, "':' was expected"},
		{`{a:1}`, "a field's name"},
		{`{"a":1 "b":2}`, "',' or '}'"},
		{`{"a":1,"b":{"a":2,"\u0061":3}}`, `the field "a" is there twice`},
		{`01`, "found '1'"},
		{`-`, "a digit"},
		{`+1`, "a value"},
		{`.5`, "a value"},
		{`1.`, "a digit after the point"},
		{`1.e1`, "a digit after the point"},
		{`1e`, "a digit in the exponent"},
		{`9223372036854775808`, "the int 9223372036854775808 is outside"},
		{`[-9223372036854775809]`, "the int -9223372036854775809 is outside"},
		{`{"n":` + strings.Repeat("9", 1000) + `}`, "999…"},
		{`1e309`, "the float 1e309 is larger"},
		{`"abc`, "the string that begins here"},
		{`"a` + "\n" + `"`, "control character"},
		{`"a` + "\x00" + `"`, "control character"},
		{`"\x41"`, `after \ stands`},
		{`"\`, `after \ stands`},
		{`"\u12"`, `after \u`},
		{`"\u+123"`, `after \u`},
		{`"\ud800"`, `\ud800 is half of a surrogate pair`},
		{`"\ud800\u0041"`, `\ud800 is half of a surrogate pair`},
		{`"\ude00\ud83d"`, `\ude00 is half of a surrogate pair`},
		{"\"\xff\"", "not valid UTF-8"},
		{"\"\xed\xa0\x80\"", "not valid UTF-8"},
		{"\ufeff1", "a value was expected"},
		{"1\x00", "the end of the text"},
		{"// a\n1", "a value was expected"},
	} {
		got, err := value.ParseJSON([]byte(c.text))
		if !errors.Is(err, fault.TypeMismatch) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: got %s, %v, want TypeMismatch with %q", c.text, got, err, c.message)
		}
	}
}

// asJSON is what is left of a value in JSON.
func asJSON(v value.Value) value.Value {
	switch v.Kind() {
	case value.KindNone, value.KindNull:
		return value.Null()
	case value.KindBool, value.KindInt, value.KindFloat, value.KindString:
		return v
	case value.KindArray:
		elements, _ := v.AsArray()
		converted := make([]value.Value, len(elements))
		for i, element := range elements {
			converted[i] = asJSON(element)
		}
		return value.Array(converted...)
	case value.KindObject:
		fields, _ := v.AsObject()
		converted := value.Object{}
		for name, field := range fields {
			if !field.IsNone() {
				converted[name] = asJSON(field)
			}
		}
		return value.Fields(converted)
	default:
		encoded, err := v.AppendJSON(nil)
		if err != nil {
			panic(err)
		}
		var text string
		if err := json.Unmarshal(encoded, &text); err != nil {
			panic(err)
		}
		return value.String(text)
	}
}

func TestJSONRoundTripsWhatItCanCarry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valuetest.Generator(4).Draw(t, "value")
		text, err := v.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(text) || bytes.ContainsRune(text, '\n') {
			t.Fatalf("%s is not one line of JSON", text)
		}
		parsed, err := value.ParseJSON(text)
		if err != nil {
			t.Fatalf("parsing %s: %v", text, err)
		}
		if !bytes.Equal(encode(t, parsed), encode(t, asJSON(v))) {
			t.Fatalf("%s came back as %s", text, parsed)
		}
	})
}

func TestJSONOfTimesAndDurationsReadsBackInGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valuetest.Scalar().Filter(func(v value.Value) bool {
			return v.Kind() == value.KindDatetime || v.Kind() == value.KindDuration
		}).Draw(t, "value")
		text, _ := asJSON(v).AsString()
		if at, ok := v.AsDatetime(); ok {
			if parsed, err := time.Parse(time.RFC3339, text); err != nil || !parsed.Equal(at) {
				t.Fatalf("%s reads as %v, %v", text, parsed, err)
			}
		}
		if d, ok := v.AsDuration(); ok {
			if parsed, err := time.ParseDuration(text); err != nil || parsed != d {
				t.Fatalf("%s reads as %v, %v", text, parsed, err)
			}
		}
	})
}

func TestValuesNestInWhatEncodingJSONReadsAndWrites(t *testing.T) {
	type answer struct {
		Value  value.Value            `json:"value"`
		Absent value.Value            `json:"absent,omitzero"`
		Params map[string]value.Value `json:"params"`
	}
	const text = `{"value":null,"params":{"p":[1,1.0,9007199254740993]}}`
	got := answer{Value: value.Int(1)}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Value.IsNull() || !got.Absent.IsNone() {
		t.Errorf("got %s and %s, want null and none", got.Value, got.Absent)
	}
	if written, err := json.Marshal(got); err != nil || string(written) != text {
		t.Errorf("got %s, %v, want %s", written, err, text)
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, seed := range []string{`null`, `[1,1.0,-0,1e3]`, `{"a":{"b":[true,false,null]}}`, `"\ud83d\ude00\n\u0000é"`, `"\ud800"`,
		`{"a":1,"a":2}`, `9223372036854775808`, `-9223372036854775808`, `1e400`, `[[[[`, `{"":""}`, "\"\xff\"", ` [ ] `, `01`, `"\/"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := value.ParseJSON(text)
		if err != nil {
			if !errors.Is(err, fault.TypeMismatch) && !errors.Is(err, fault.TooLarge) {
				t.Fatalf("an error of another kind: %v", err)
			}
			// What is refused and is JSON is refused for one of our reasons.
			reasons := []string{"UTF-8", "twice", "outside", "larger than", "surrogate", "nests"}
			for _, reason := range reasons {
				if strings.Contains(err.Error(), reason) {
					return
				}
			}
			if json.Valid(text) {
				t.Fatalf("%q was refused: %v", text, err)
			}
			return
		}
		written, err := v.AppendJSON(nil)
		if err != nil {
			t.Fatalf("%q was parsed to %s, which is not encoded: %v", text, v, err)
		}
		var want, got any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("%q was parsed to %s, but: %v", text, v, err)
		}
		if err := json.Unmarshal(written, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q was written as %q: %v", text, written, err)
		}
		if again, err := value.ParseJSON(written); err != nil || !bytes.Equal(encode(t, again), encode(t, v)) {
			t.Fatalf("%q came back as %s, %v", written, again, err)
		}
	})
}
