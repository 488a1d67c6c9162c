package value_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
	"github.com/tidemarkdb/tidemark/value/valuetest"
)

func TestLiteralOfEachKindIsThisText(t *testing.T) {
	for _, c := range []struct {
		v    value.Value
		want string
	}{
		{value.None(), `none`},
		{value.Null(), `null`},
		{value.Bool(true), `true`},
		{value.Int(math.MinInt64), `-9223372036854775808`},
		{value.Float(1), `1.0`},
		{value.Float(1.5), `1.5`},
		{value.Float(1e300), `1e+300`},
		{value.Float(math.NaN()), `NaN`},
		{value.String(""), `''`},
		{value.String("it's \"q\" \\ \n\t\x01é"), `'it\'s "q" \\ \n\t\u0001é'`},
		{value.String("a\xff"), "'a\uFFFD'"},
		{value.Bytes([]byte{0xca, 0xfe}), `b'cafe'`},
		{value.Bytes(nil), `b''`},
		{value.UUID(testUUID), `u'0192f0c1-7a3e-7c11-8f10-3a5b7c9d1e2f'`},
		{value.Datetime(testTime), `d'2026-01-31T10:00:00.000000005Z'`},
		{value.Duration(90 * time.Minute), `1h30m`},
		{value.Duration(250 * time.Millisecond), `250ms`},
		{value.Duration(7 * 24 * time.Hour), `7d`},
		{value.Duration(25*time.Hour + 1001), `1d1h1us1ns`},
		{value.Duration(0), `0s`},
		{value.Duration(-time.Hour), `-1h`},
		{value.Duration(math.MinInt64), `-106751d23h47m16s854ms775us808ns`},
		{value.Array(), `[]`},
		{value.Array(value.Int(1), value.None(), value.Array()), `[1, none, []]`},
		{object(nil), `{}`},
		{object(value.Object{"a": value.None()}), `{}`},
		{object(value.Object{"k": value.Int(1), "b c": value.Null(), "": value.Int(2), "a`\\": value.Int(3)}),
			"{ ``: 2, `a\\`\\\\`: 3, `b c`: null, k: 1 }"},
		{value.Record(value.RecordID{Table: "orders", Key: value.Int(1001)}), `orders:1001`},
		{value.Record(value.RecordID{Table: "events", Key: value.String("evt-7f3a")}), `events:'evt-7f3a'`},
		{value.Record(value.RecordID{Table: "a-b", Key: value.UUID(testUUID)}), "`a-b`:u'0192f0c1-7a3e-7c11-8f10-3a5b7c9d1e2f'"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		if id, ok := c.v.AsRecord(); ok && id.String() != c.want {
			t.Errorf("the record id: got %s, want %s", id, c.want)
		}
	}
}

func TestIdentifiersAreBareWhereTheyCanBe(t *testing.T) {
	for name, want := range map[string]string{
		"a": "a", "_": "_", "A_9z": "A_9z", "select": "select", "": "``", "9": "`9`", "a b": "`a b`", "é": "`é`", "a-b": "`a-b`",
		"@": "`@`", "[": "`[`", "a`b": "`a\\`b`", `a\b`: "`a\\\\b`",
	} {
		if got := value.QuoteIdentifier(name); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

func TestDurationsAreParsed(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "7d": 7 * 24 * time.Hour,
		"2w": 14 * 24 * time.Hour, "1us": time.Microsecond, "1µs": time.Microsecond, "1μs": time.Microsecond, "5ns": 5, "0s": 0,
		"1h30m0s": 90 * time.Minute, "-1h": -time.Hour, "-1m30s": -90 * time.Second, "007s": 7 * time.Second,
		"9223372036854775807ns": math.MaxInt64, "-9223372036854775808ns": math.MinInt64, "106751d23h47m16s854ms775us807ns": math.MaxInt64,
	} {
		if got, err := value.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "0", "1", "s", "1x", "1.5h", "1 h", " 1h", "1h ", "1h30", "--1h", "1h-30m", "+1h", "1H", "1hm", "é"} {
		if got, err := value.ParseDuration(text); !errors.Is(err, fault.Syntax) || !strings.Contains(err.Error(), "is no duration") {
			t.Errorf("%q: got %v, %v, want Syntax", text, got, err)
		}
	}
	for _, text := range []string{"9223372036854775808ns", "-9223372036854775809ns", "106752d", "15251w", "99999999999999999999999s",
		"106751d23h47m16s854ms775us808ns", "18446744073709551615h"} {
		if got, err := value.ParseDuration(text); !errors.Is(err, fault.Syntax) || !strings.Contains(err.Error(), "292 years") {
			t.Errorf("%q: got %v, %v, want Syntax", text, got, err)
		}
	}
}

func TestLiteralsReadBackAsTheValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valuetest.Generator(3).Draw(t, "value")
		text := v.String()
		reader := literalReader{rest: text}
		read, err := reader.value()
		if err != nil || reader.rest != "" {
			t.Fatalf("%s: %v, with %q left", text, err, reader.rest)
		}
		if !bytes.Equal(encode(t, read), encode(t, v)) {
			t.Fatalf("%s reads back as %s", text, read)
		}
	})
}

// literalReader is a small reader of literals, written from the language's
// description and not from the code that prints them.
type literalReader struct{ rest string }

var (
	durationLiteral = regexp.MustCompile(`^-?([0-9]+(ns|us|ms|s|m|h|d|w))+`)
	numberLiteral   = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?`)
	stringLiteral   = regexp.MustCompile(`^'([^'\\]|\\.)*'`)
	identifier      = regexp.MustCompile("(?s)^([A-Za-z_][A-Za-z0-9_]*|`([^`\\\\]|\\\\.)*`)")
	word            = regexp.MustCompile(`^(none|null|true|false)`)
)

func (r *literalReader) take(pattern *regexp.Regexp) (string, bool) {
	found := pattern.FindString(r.rest)
	r.rest = r.rest[len(found):]
	return found, found != ""
}

func (r *literalReader) skip(text string) bool {
	rest, ok := strings.CutPrefix(r.rest, text)
	r.rest = rest
	return ok
}

func (r *literalReader) quoted() (string, error) {
	text, ok := r.take(stringLiteral)
	if !ok {
		return "", fmt.Errorf("no string at %q", r.rest)
	}
	inside := strings.ReplaceAll(text[1:len(text)-1], `\'`, `'`)
	// What is left of the escapes is JSON's, but a bare " is none of JSON's.
	var s string
	err := json.Unmarshal([]byte(`"`+strings.ReplaceAll(inside, `"`, `\"`)+`"`), &s)
	return s, err
}

func (r *literalReader) name() (string, error) {
	name, ok := r.take(identifier)
	if !ok {
		return "", fmt.Errorf("no name at %q", r.rest)
	}
	if name[0] != '`' {
		return name, nil
	}
	return regexp.MustCompile(`(?s)\\(.)`).ReplaceAllString(name[1:len(name)-1], "$1"), nil
}

func (r *literalReader) value() (value.Value, error) {
	for prefix, read := range map[string]func(string) (value.Value, error){
		"b'": func(s string) (value.Value, error) { b, err := hex.DecodeString(s); return value.Bytes(b), err },
		"u'": func(s string) (value.Value, error) { id, err := uuid.Parse(s); return value.UUID(id), err },
		"d'": func(s string) (value.Value, error) {
			at, err := time.Parse(time.RFC3339, s)
			return value.Datetime(at), err
		},
		"'": func(s string) (value.Value, error) { return value.String(s), nil },
	} {
		if strings.HasPrefix(r.rest, prefix) {
			r.rest = r.rest[len(prefix)-1:]
			s, err := r.quoted()
			if err != nil {
				return value.None(), err
			}
			return read(s)
		}
	}
	if r.skip("[") {
		return r.array()
	}
	if r.skip("{") {
		return r.object()
	}
	if text, ok := r.take(durationLiteral); ok {
		d, err := value.ParseDuration(text)
		return value.Duration(d), err
	}
	if text, ok := r.take(numberLiteral); ok {
		if strings.ContainsAny(text, ".e") {
			f, err := strconv.ParseFloat(text, 64)
			return value.Float(f), err
		}
		i, err := strconv.ParseInt(text, 10, 64)
		return value.Int(i), err
	}
	before := r.rest
	if name, err := r.name(); err == nil && r.skip(":") {
		key, err := r.value()
		return value.Record(value.RecordID{Table: name, Key: key}), err
	}
	r.rest = before
	switch text, _ := r.take(word); text {
	case "none":
		return value.None(), nil
	case "null":
		return value.Null(), nil
	case "true", "false":
		return value.Bool(text == "true"), nil
	}
	return value.None(), fmt.Errorf("no value at %q", r.rest)
}

func (r *literalReader) array() (value.Value, error) {
	var elements []value.Value
	for !r.skip("]") {
		if len(elements) > 0 && !r.skip(", ") {
			return value.None(), fmt.Errorf("no comma at %q", r.rest)
		}
		element, err := r.value()
		if err != nil {
			return value.None(), err
		}
		elements = append(elements, element)
	}
	return value.Array(elements...), nil
}

func (r *literalReader) object() (value.Value, error) {
	fields := value.Object{}
	for !r.skip("}") && !r.skip(" }") {
		if !r.skip(" ") && !r.skip(", ") {
			return value.None(), fmt.Errorf("no field at %q", r.rest)
		}
		name, err := r.name()
		if err != nil {
			return value.None(), err
		}
		if !r.skip(": ") {
			return value.None(), fmt.Errorf("no colon at %q", r.rest)
		}
		if fields[name], err = r.value(); err != nil {
			return value.None(), err
		}
	}
	return value.Fields(fields), nil
}
