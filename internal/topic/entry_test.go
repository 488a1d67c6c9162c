package topic

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
)

func TestEntriesAndHeadsSurviveTheirEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Entry{
			State:      rapid.SampledFrom([]State{Passed, Out, Returned}).Draw(t, "state"),
			Deliveries: Deliveries(rapid.Uint32Min(1).Draw(t, "deliveries")),
			Due:        time.Unix(0, rapid.Int64().Draw(t, "due")).UTC(),
			Key:        string(rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "key")),
		}
		e.Released = Deliveries(rapid.Uint32Max(uint32(e.Deliveries)).Draw(t, "released"))
		if e.State == Passed {
			e = Entry{State: Passed, Key: "\x00" + e.Key}
		}
		decoded, err := DecodeEntry(e.Append(nil))
		if err != nil || decoded != e {
			t.Fatalf("%+v became %+v: %v", e, decoded, err)
		}
		h := Head{DeadLetterReason: rapid.String().Draw(t, "reason")}
		for _, n := range h.numbers() {
			*n = rapid.Uint64Max(uint64(MaxPosition)).Draw(t, "number")
		}
		head, err := DecodeHead(h.Append(nil))
		if err != nil || head != h {
			t.Fatalf("%+v became %+v: %v", h, head, err)
		}
	})
}

func TestRowsThatNobodyWroteAreRefused(t *testing.T) {
	out := Entry{State: Out, Deliveries: 1, Due: epoch}.Append(nil)
	changed := func(i int, b byte) []byte {
		row := bytes.Clone(out)
		row[i] = b
		return row
	}
	for name, row := range map[string][]byte{
		"none":                             nil,
		"a short one":                      out[:entryHeadBytes-1],
		"no state":                         changed(0, 0),
		"an unknown state":                 changed(0, 4),
		"passed over, with a time":         changed(0, byte(Passed)),
		"released more than it was out":    changed(8, 2),
		"out and never handed out":         changed(4, 0),
		"passed over for a key it has not": Entry{State: Passed}.Append(nil),
	} {
		if _, err := DecodeEntry(row); !errors.Is(err, fault.Internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	head := Head{Position: 3}.Append(nil)
	padded := append([]byte{headVersion, 0x80, 0x00}, head[2:]...)
	for name, row := range map[string][]byte{
		"none":                     nil,
		"another version":          append([]byte{9}, head[1:]...),
		"a short one":              head[:4],
		"a number with padding":    padded,
		"a position beyond bounds": Head{Position: math.MaxUint64}.Append(nil),
	} {
		if _, err := DecodeHead(row); !errors.Is(err, fault.Internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnEntryThatAGroupCannotHaveIsNotLoaded(t *testing.T) {
	out := Entry{State: Out, Deliveries: 1, Due: epoch}
	for p, e := range map[Position]Entry{0: out, 8: out, 2: {}} {
		g := NewGroup(GroupDefinition{AckDeadline: time.Second, InFlight: 1}, Head{Position: 7})
		if err := g.Load(p, e); !errors.Is(err, fault.Internal) {
			t.Errorf("position %d: %v", p, err)
		}
	}
}

func TestDeliveriesStopCountingAtTheirEnd(t *testing.T) {
	if n := Deliveries(math.MaxUint32).add(); n != math.MaxUint32 {
		t.Fatal(n)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(Entry{State: Out, Deliveries: 2, Released: 1, Due: epoch, Key: "\x00a"}.Append(nil))
	f.Add(Entry{State: Passed, Key: "\x00a"}.Append(nil))
	f.Fuzz(func(t *testing.T, row []byte) {
		if e, err := DecodeEntry(row); err == nil && !bytes.Equal(e.Append(nil), row) {
			t.Fatalf("%x became %x", row, e.Append(nil))
		}
	})
}

func FuzzDecodeHead(f *testing.F) {
	f.Add(Head{}.Append(nil))
	f.Add(Head{Epoch: 1, Position: 1 << 40, HandedOut: 1000, DeadLetterReason: "full"}.Append(nil))
	f.Fuzz(func(t *testing.T, row []byte) {
		if h, err := DecodeHead(row); err == nil && !bytes.Equal(h.Append(nil), row) {
			t.Fatalf("%x became %x", row, h.Append(nil))
		}
	})
}
