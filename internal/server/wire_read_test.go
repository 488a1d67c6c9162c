package server

import (
	"reflect"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// FuzzScriptsReadPieceByPiece holds that what is read piece by piece is what
// the whole frame decodes to, and that it is left alone otherwise.
func FuzzScriptsReadPieceByPiece(f *testing.F) {
	for _, frame := range []string{
		`{"id":1,"sql":"SLEEP 0s","params":{"v":[1,1.5,null]}}`,
		`[{"id":"a","sql":"","brief":true},{"sql":"b","id":-7}]`,
		`{"id":1,"sql":"x","brief":true,"params":{"key":"k","value":{"a":[1,"b"]}}}`, `{"id":1,"sql":"x","brief":true,"params":{}}`,
		`{"id":1,"sql":"x","times":true}`, `{"id":1,"sql":"x","times":1}`,
		`[{"follow":1,"credit":10},{"id":1,"sql":"x","headers":{}}]`,
		`{"id":1,"sql":"x","headers":{"traceparent":"a"}}`, `{"id":1,"sql":"x","headers":{"a":1}}`,
		`{"id":1.5,"sql":"x"}`, `{"params":{},"id":1}`, `{"sql":"x","params":[]}`, `[]`, `7`,
	} {
		v, err := value.ParseJSON([]byte(frame))
		if err != nil {
			f.Fatal(err)
		}
		encoded, err := v.AppendCBOR(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
		f.Add(append(encoded, 0))
	}
	f.Add([]byte("\xa3\x62id\x01\x62id\x02\x63sql\x61x")) // a name twice
	f.Fuzz(func(t *testing.T, frame []byte) {
		pieces, many, ok := readScripts(frame, texts{})
		if !ok {
			return
		}
		v, err := value.DecodeCBOR(frame)
		if err != nil {
			t.Fatalf("% x is taken, and does not decode: %v", frame, err)
		}
		elements, isArray := v.AsArray()
		if !isArray {
			elements = []value.Value{v}
		}
		if many != isArray || len(pieces) != len(elements) {
			t.Fatalf("% x has %d requests, and %d were read", frame, len(elements), len(pieces))
		}
		for i, element := range elements {
			piece, whole := pieces[i], requestOf(element)
			if piece.params, err = piece.values(); err != nil {
				t.Fatalf("request %d of % x has params that do not decode: %v", i, frame, err)
			}
			piece.passed = session.Passed{}
			if len(whole.params) == 0 {
				piece.params, whole.params = nil, nil
			}
			if !reflect.DeepEqual(whole, piece) {
				t.Fatalf("request %d of % x\nis   %+v\nread %+v", i, frame, whole, piece)
			}
		}
	})
}
