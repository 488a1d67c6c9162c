package value_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
	"github.com/tidemarkdb/tidemark/value/valuetest"
)

func TestKeysAreTheseBytes(t *testing.T) {
	// They are what stores hold: a change needs a migration.
	for _, c := range []struct {
		key  value.Value
		want string
	}{
		{value.Int(math.MinInt64), "10 0000000000000000"},
		{value.Int(-1), "10 7fffffffffffffff"},
		{value.Int(0), "10 8000000000000000"},
		{value.Int(1001), "10 80000000000003e9"},
		{value.String(""), "20 0001"},
		{value.String("a\x00b"), "20 61 00ff 62 0001"},
		{value.Bytes([]byte{0, 1, 255}), "30 00ff 01 ff 0001"},
		{value.UUID(testUUID), "40 0192f0c17a3e7c118f103a5b7c9d1e2f"},
	} {
		got, err := value.AppendKey(nil, c.key)
		if err != nil || !bytes.Equal(got, unhex(t, c.want)) {
			t.Errorf("%s: got %x, %v, want %s", c.key, got, err, c.want)
		}
	}
}

func keys() *rapid.Generator[value.Value] {
	return rapid.OneOf(valuetest.Key(),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 254, 255}), 0, 5), value.Bytes),
		rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune{0, 1, 2, 'a'}), 0, 5, -1), value.String))
}

func TestKeysSortAsTheirValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := keys().Draw(t, "a"), keys().Draw(t, "b")
		encodedA, errA := value.AppendKey(nil, a)
		encodedB, errB := value.AppendKey(nil, b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if got, want := bytes.Compare(encodedA, encodedB), value.Compare(a, b); got != want {
			t.Fatalf("%s is %x and %s is %x: these compare as %d, want %d", a, encodedA, b, encodedB, got, want)
		}
		// No key is the beginning of another, so what follows does not matter.
		if value.Compare(a, b) != 0 && (bytes.HasPrefix(encodedA, encodedB) || bytes.HasPrefix(encodedB, encodedA)) {
			t.Fatalf("%x, which is %s, and %x, which is %s, begin alike", encodedA, a, encodedB, b)
		}
	})
}

func TestKeysShowWhereTheyEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := keys().Draw(t, "key")
		follows := rapid.SliceOf(rapid.Byte()).Draw(t, "follows")
		encoded, err := value.AppendKey([]byte("table"), key)
		if err != nil {
			t.Fatal(err)
		}
		got, rest, err := value.DecodeKey(append(encoded[len("table"):], follows...))
		if err != nil || got.Kind() != key.Kind() || !value.Equal(got, key) || !bytes.Equal(rest, follows) {
			t.Fatalf("got %s and %x, %v, want %s and %x", got, rest, err, key, follows)
		}
	})
}

func TestADecodedKeyHasMemoryOfItsOwn(t *testing.T) {
	encoded, _ := value.AppendKey(nil, value.Bytes([]byte("abc")))
	key, _, err := value.DecodeKey(encoded)
	if err != nil {
		t.Fatal(err)
	}
	clear(encoded)
	if !value.Equal(key, value.Bytes([]byte("abc"))) {
		t.Errorf("the key changed to %s with the bytes it was decoded from", key)
	}
}

func TestWhatIsNoKeyIsRefused(t *testing.T) {
	for _, v := range []value.Value{value.None(), value.Null(), value.Bool(true), value.Float(1), value.Datetime(testTime), value.Duration(1),
		value.Array(value.Int(1)), object(nil), value.Record(value.RecordID{Table: "t", Key: value.Int(1)}), value.String("\xff")} {
		got, err := value.AppendKey([]byte("x"), v)
		if !errors.Is(err, fault.TypeMismatch) || string(got) != "x" {
			t.Errorf("%s: got %q, %v, want dst and TypeMismatch", v, got, err)
		}
	}
	for _, damaged := range []string{"", "00", "10", "10 80000000000000", "20", "20 61", "20 61 00", "20 61 0002", "20 ff 0001", "30 00", "40 00", "50"} {
		if got, _, err := value.DecodeKey(unhex(t, damaged)); !errors.Is(err, fault.Internal) {
			t.Errorf("%s: got %s, %v, want Internal", damaged, got, err)
		}
	}
}
