package value_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/value"
	"github.com/tidemarkdb/tidemark/value/valuetest"
)

func TestAReaderTakesApartWhatWasPutTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(valuetest.Generator(3), 0, 20).Draw(t, "values")
		whole := value.AppendObjectHead(nil, 2)
		whole = value.AppendName(whole, "n")
		whole, _ = value.Int(7).AppendCBOR(whole)
		whole = value.AppendArrayHead(value.AppendName(whole, "values"), len(values))
		var encodings [][]byte
		for _, v := range values {
			encoded, err := v.AppendCBOR(nil)
			if err != nil {
				t.Fatal(err)
			}
			encodings = append(encodings, encoded)
			whole = append(whole, encoded...)
		}
		r := value.ReadCBOR(whole)
		if n, ok := r.Object(); !ok || n != 2 {
			t.Fatalf("an object of %d %t", n, ok)
		}
		if name, err := r.Name(); err != nil || string(name) != "n" {
			t.Fatalf("name %q %v", name, err)
		}
		if _, ok := r.Array(); ok {
			t.Fatal("an int is no array")
		}
		if v, err := r.Value(); err != nil || !value.Equal(v, value.Int(7)) {
			t.Fatalf("value %s %v", v, err)
		}
		if name, err := r.Name(); err != nil || string(name) != "values" {
			t.Fatalf("name %q %v", name, err)
		}
		if n, ok := r.Array(); !ok || n != len(values) {
			t.Fatalf("an array of %d %t", n, ok)
		}
		for i, encoded := range encodings {
			raw, err := r.Raw()
			if err != nil || !bytes.Equal(raw, encoded) {
				t.Fatalf("element %d: % x %v, want % x", i, raw, err, encoded)
			}
		}
		if !r.Done() {
			t.Fatal("something is left")
		}
	})
}

func TestWhatIsStoredIsReadAsStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valuetest.Generator(3).Draw(t, "value")
		encoded, err := v.AppendStored(nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		r := value.ReadCBOR(append(encoded, 0))
		raw, ok := r.Stored(0)
		if holdsNone(v) {
			if ok {
				t.Fatalf("%s is not stored as it is", v)
			}
			return
		}
		if !ok || !bytes.Equal(raw, encoded) {
			t.Fatalf("%s: % x %t, want % x", v, raw, ok, encoded)
		}
		if next, isInt := r.Int(); !isInt || next != 0 {
			t.Fatalf("after %s comes %d %t", v, next, isInt)
		}
	})
}

// holdsNone reports whether none is encoded: a field that holds it is left out.
func holdsNone(v value.Value) bool {
	if elements, ok := v.AsArray(); ok {
		return slices.ContainsFunc(elements, holdsNone)
	}
	fields, _ := v.AsObject()
	for _, field := range fields {
		if !field.IsNone() && holdsNone(field) {
			return true
		}
	}
	return v.IsNone()
}

func TestWhatIsWrittenOtherwiseIsNotReadAsStored(t *testing.T) {
	deep := bytes.Repeat([]byte{0x81}, value.MaxDepth)
	for name, encoded := range map[string]string{
		"a long head":                "\x18\x17",
		"a long length":              "\x78\x01a",
		"a float that fits in half":  "\xfa\x3f\x80\x00\x00",
		"a float that fits in a few": "\xfb\x3f\xf1\x99\x99\xa0\x00\x00\x00",
		"not a number":               "\xf9\x7e\x00",
		"names out of order":         "\xa2\x61b\x01\x61a\x01",
		"longer names first":         "\xa2\x62aa\x01\x61b\x01",
		"a name twice":               "\xa2\x61a\x01\x61a\x01",
		"a field of none":            "\xa1\x61a\xf7",
		"none":                       "\xf7",
		"an indefinite length":       "\x9f\xff",
		"no text":                    "\x61\xff",
		"an int of 65 bits":          "\x1b\xff\xff\xff\xff\xff\xff\xff\xff",
		"an unknown tag":             "\xc1\x01",
		"too little":                 "\x82\x01",
		"too deep":                   string(deep) + "\x80",
		"a claim of much":            "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff",
	} {
		r := value.ReadCBOR([]byte(encoded))
		if raw, ok := r.Stored(0); ok {
			t.Errorf("%s: % x", name, raw)
		}
		if first, err := r.Raw(); err == nil && len(first) != len(encoded) {
			t.Errorf("%s: something was read", name)
		}
	}
}

// FuzzCBORReader checks that whatever DecodeCBOR takes Raw finds the end of,
// and that nothing breaks it.
func FuzzCBORReader(f *testing.F) {
	for _, seed := range []string{"\x80", "\x9f\x01\xff", "\xa1\x61a\x82\x01\x02", "\x7f\x61a\xff", "\xd8\x25\x50", "\x9b\xff\xff\xff\xff\xff\xff\xff\xff", "\xff", "\xbf\x61a\xff\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := value.ReadCBOR(data)
		raw, err := r.Raw()
		if _, decoded := value.DecodeCBOR(data); decoded == nil && (err != nil || len(raw) != len(data)) {
			t.Fatalf("% x decodes, and Raw finds %d bytes of it: %v", data, len(raw), err)
		}
		r = value.ReadCBOR(data)
		if raw, ok := r.Stored(0); ok {
			v, err := value.DecodeCBOR(raw)
			if err != nil {
				t.Fatalf("% x is as it is stored, and does not decode: %v", raw, err)
			}
			if again, err := v.AppendStored(nil, 0); err != nil || !bytes.Equal(again, raw) {
				t.Fatalf("% x is as it is stored, and would be stored as % x: %v", raw, again, err)
			}
		}
		r = value.ReadCBOR(data)
		for range 3 {
			if n, ok := r.Array(); ok && n > len(data) {
				t.Fatalf("% x: an array of %d", data, n)
			}
			if _, ok := r.Object(); ok {
				_, _ = r.Name()
			}
			_, _ = r.Value()
		}
	})
}
