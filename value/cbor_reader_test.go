package value_test

import (
	"bytes"
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
