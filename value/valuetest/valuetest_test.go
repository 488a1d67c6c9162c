package valuetest_test

import (
	"testing"

	"github.com/tidemarkdb/tidemark/value"
	"github.com/tidemarkdb/tidemark/value/valuetest"
)

func TestEveryKindIsGeneratedAndCanBeEncoded(t *testing.T) {
	seen := map[value.Kind]bool{}
	generator := valuetest.Generator(2)
	for seed := range 2000 {
		v := generator.Example(seed)
		seen[v.Kind()] = true
		if _, err := v.AppendCBOR(nil); err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
	for kind := value.KindNone; kind <= value.KindRecord; kind++ {
		if !seen[kind] {
			t.Errorf("no %s in 2000 values", kind)
		}
	}
}

func TestEveryKeyCanBeEncoded(t *testing.T) {
	generator := valuetest.Key()
	for seed := range 500 {
		key := generator.Example(seed)
		if _, err := value.AppendKey(nil, key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}
