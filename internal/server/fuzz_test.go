package server

import (
	"testing"

	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// FuzzFrames holds that no frame does more harm than to be refused: every
// request of it is one thing or the other, and what it is answered can be sent.
func FuzzFrames(f *testing.F) {
	for _, frame := range []string{
		`{"id":1,"sql":"SLEEP 0s","params":{"v":[1,1.5,null]}}`,
		`[{"id":"a","sql":""},{"follow":1,"credit":10},{"follow":"x","cancel":true},7]`,
		`{"id":{"a":1}}`, `{"sql":1}`, `[[[`, `{"id":1,"id":2}`, `{"params":{},"follow":null}`, "",
	} {
		f.Add([]byte(frame), false)
		if v, err := value.ParseJSON([]byte(frame)); err == nil {
			encoded, err := v.AppendCBOR(nil)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(encoded, true)
		}
	}
	f.Add([]byte{0x9f, 0xa1, 0x62, 'i', 'd', 0xd8, 39}, true)
	f.Fuzz(func(t *testing.T, frame []byte, binary bool) {
		as := formatJSON
		if binary {
			as = formatCBOR
		}
		requests, many, err := decodeFrame(as, frame, texts{})
		if err != nil {
			if len(requests) > 0 {
				t.Fatal("a frame is refused and has requests")
			}
			return
		}
		if !many && len(requests) != 1 {
			t.Fatalf("%d requests in a frame that is no array", len(requests))
		}
		for _, r := range requests {
			checkRequest(t, as, r)
		}
	})
}

func checkRequest(t *testing.T, as format, r request) {
	if r.refused != nil && (r.sql != "" || r.params != nil || !r.follow.IsNone()) {
		t.Fatal("a request that is refused says something")
	}
	if r.refused == nil && r.follow.IsNone() && !r.id.IsNull() && !isName(r.id) {
		t.Fatalf("a request is named %s", r.id)
	}
	if r.credit < 0 || r.credit > maxCredit {
		t.Fatalf("a credit of %d", r.credit)
	}
	answers := &list{format: as}
	for _, answer := range []session.Answer{{Value: value.Int(1)}, {Value: value.None(), Lapsed: 3}, session.FailedAnswer(r.refused)} {
		if answer.Err == nil && answer.Value.IsNone() && answer.Lapsed == 0 {
			continue
		}
		answers.next()
		answers.elements = appendAnswer(as, answers.elements, answer)
	}
	if _, err := decode(as, (&reply{id: r.id, answers: answers}).append(as, nil)); err != nil {
		t.Fatalf("the reply to %s cannot be read: %v", r.id, err)
	}
}
