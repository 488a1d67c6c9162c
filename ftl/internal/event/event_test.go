package event_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/internal/event"
	"github.com/tidemarkdb/tidemark/value"
)

type base struct {
	ID uuid.UUID `json:"id"`
}

type everything struct {
	base
	Count   int64          `json:"count"`
	Price   float64        `json:"price"`
	At      time.Time      `json:"at"`
	Raw     []byte         `json:"raw"`
	Note    *string        `json:"note,omitempty"`
	Parts   []string       `json:"parts"`
	ByName  map[string]int `json:"byName,omitempty"`
	Skipped string         `json:"-"`
}

func TestAnEventIsStoredAsTheJSONThatGoWrites(t *testing.T) {
	e := everything{
		base: base{uuid.MustParse("018f4e6e-7b1a-7c3e-9f42-000000000001")}, Count: math.MaxInt64, Price: 2, Skipped: "x",
		At: time.Date(2026, 1, 31, 10, 0, 0, 5000, time.UTC), Raw: []byte{0xca, 0xfe}, ByName: map[string]int{"a": 1},
	}
	v, err := event.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{ at: '2026-01-31T10:00:00.000005Z', byName: { a: 1 }, count: 9223372036854775807, ` +
		`id: '018f4e6e-7b1a-7c3e-9f42-000000000001', parts: null, price: 2, raw: 'yv4=' }`
	if v.String() != want {
		t.Errorf("stored as\n%s, want\n%s", v, want)
	}
	var back everything
	if err := event.Decode(v, &back); err != nil {
		t.Fatal(err)
	}
	e.Skipped = ""
	if !reflect.DeepEqual(back, e) {
		t.Errorf("read back as %+v, want %+v", back, e)
	}
}

func TestWhatStatementsWroteIsReadByItsJSON(t *testing.T) {
	var got everything
	err := event.Decode(value.Fields(value.Object{
		"at": value.Datetime(time.Unix(1, 0)), "id": value.UUID(uuid.Max), "raw": value.Bytes([]byte("x")),
		"price": value.Float(1), "unknown": value.Bool(true),
	}), &got)
	if err != nil || !got.At.Equal(time.Unix(1, 0)) || got.ID != uuid.Max || string(got.Raw) != "x" || got.Price != 1 {
		t.Errorf("read as %+v, %v", got, err)
	}
}

func TestWhatDoesNotFitIsATypeMismatchThatNamesTheField(t *testing.T) {
	var got everything
	err := event.Decode(value.Fields(value.Object{"count": value.String("many")}), &got)
	if !errors.Is(err, fault.TypeMismatch) || !strings.Contains(err.Error(), "count") {
		t.Errorf("read with %v", err)
	}
	if _, err := event.Encode(func() {}); !errors.Is(err, fault.TypeMismatch) {
		t.Errorf("a function was encoded: %v", err)
	}
	if _, err := event.Encode(map[string]uint64{"n": math.MaxUint64}); !errors.Is(err, fault.TypeMismatch) {
		t.Errorf("an int past 64 bits signed was encoded: %v", err)
	}
}
