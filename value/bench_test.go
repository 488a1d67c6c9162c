package value_test

import (
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/tidemarkdb/tidemark/value"
)

// The message that the project's throughput is measured with.
var benchmarkMessage = value.Fields(value.Object{"v": value.String(strings.Repeat("x", 128))})

var benchmarkOrder = value.Fields(value.Object{
	"id":       value.Int(1001),
	"customer": value.String("c-481516"),
	"total":    value.Float(99.5),
	"paid":     value.Bool(true),
	"lines": value.Array(
		value.Fields(value.Object{"sku": value.String("a-1"), "count": value.Int(2)}),
		value.Fields(value.Object{"sku": value.String("b-2"), "count": value.Int(1)}),
	),
})

func BenchmarkAppendCBOR(b *testing.B) {
	for name, v := range map[string]value.Value{"128 bytes": benchmarkMessage, "order": benchmarkOrder} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buffer []byte
			for b.Loop() {
				buffer, _ = v.AppendCBOR(buffer[:0])
			}
		})
	}
}

func BenchmarkDecodeCBOR(b *testing.B) {
	for name, v := range map[string]value.Value{"128 bytes": benchmarkMessage, "order": benchmarkOrder} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			encoded, _ := v.AppendCBOR(nil)
			for b.Loop() {
				_, _ = value.DecodeCBOR(encoded)
			}
		})
	}
}

// What the library takes for the same data as trees of any, to which and from
// which no Value was converted: the figures that the comment in cbor.go
// compares with.
func BenchmarkLibrary(b *testing.B) {
	encoding, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		b.Fatal(err)
	}
	decoding, err := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF}.DecMode()
	if err != nil {
		b.Fatal(err)
	}
	for name, v := range map[string]value.Value{"128 bytes": benchmarkMessage, "order": benchmarkOrder} {
		var tree any
		if err := v.Scan(&tree); err != nil {
			b.Fatal(err)
		}
		encoded, err := encoding.Marshal(tree)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("encode "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = encoding.Marshal(tree)
			}
		})
		b.Run("decode "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var decoded any
				_ = decoding.Unmarshal(encoded, &decoded)
			}
		})
	}
}

func BenchmarkSize(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, _ = benchmarkOrder.Size()
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	b.ReportAllocs()
	var buffer []byte
	for b.Loop() {
		buffer, _ = benchmarkOrder.AppendJSON(buffer[:0])
	}
}

func BenchmarkParseJSON(b *testing.B) {
	b.ReportAllocs()
	text, _ := benchmarkOrder.AppendJSON(nil)
	for b.Loop() {
		_, _ = value.ParseJSON(text)
	}
}

func BenchmarkCompareObjects(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = value.Compare(benchmarkOrder, benchmarkOrder)
	}
}

func BenchmarkAppendKey(b *testing.B) {
	b.ReportAllocs()
	key := value.String("o-1700000000-481516")
	var buffer []byte
	for b.Loop() {
		buffer, _ = value.AppendKey(buffer[:0], key)
	}
}
