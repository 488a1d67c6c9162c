package value_test

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/value"
)

func TestAValueIsOfOneKindAndHoldsWhatItWasGiven(t *testing.T) {
	kinds := []struct {
		name string
		v    value.Value
		kind value.Kind
		is   func(value.Value) bool
	}{
		{"none", value.None(), value.KindNone, value.Value.IsNone},
		{"null", value.Null(), value.KindNull, value.Value.IsNull},
		{"bool", value.Bool(false), value.KindBool, func(v value.Value) bool { _, ok := v.AsBool(); return ok }},
		{"int", value.Int(0), value.KindInt, func(v value.Value) bool { _, ok := v.AsInt(); return ok }},
		{"float", value.Float(0), value.KindFloat, func(v value.Value) bool { _, ok := v.AsFloat(); return ok }},
		{"string", value.String(""), value.KindString, func(v value.Value) bool { _, ok := v.AsString(); return ok }},
		{"bytes", value.Bytes(nil), value.KindBytes, func(v value.Value) bool { _, ok := v.AsBytes(); return ok }},
		{"uuid", value.UUID(testUUID), value.KindUUID, func(v value.Value) bool { _, ok := v.AsUUID(); return ok }},
		{"datetime", value.Datetime(time.Time{}), value.KindDatetime, func(v value.Value) bool { _, ok := v.AsDatetime(); return ok }},
		{"duration", value.Duration(0), value.KindDuration, func(v value.Value) bool { _, ok := v.AsDuration(); return ok }},
		{"array", value.Array(), value.KindArray, func(v value.Value) bool { _, ok := v.AsArray(); return ok }},
		{"object", value.Fields(nil), value.KindObject, func(v value.Value) bool { _, ok := v.AsObject(); return ok }},
		{"record", value.Record(value.RecordID{}), value.KindRecord, func(v value.Value) bool { _, ok := v.AsRecord(); return ok }},
	}
	for _, given := range kinds {
		if given.v.Kind() != given.kind || given.v.Kind().String() != given.name {
			t.Errorf("%s is of kind %s, want %s", given.v, given.v.Kind(), given.name)
		}
		for _, k := range kinds {
			if got, want := k.is(given.v), k.kind == given.kind; got != want {
				t.Errorf("%s says of being %s: %t", given.v, k.name, got)
			}
		}
	}
	if got := value.Kind(200).String(); got != "no kind" {
		t.Errorf("a kind that is none is called %q", got)
	}
}

func TestTheZeroValueIsNone(t *testing.T) {
	if v := (value.Value{}); !v.IsNone() || !value.Equal(v, value.None()) {
		t.Errorf("it is %s", v)
	}
}

func TestADatetimeIsKeptInUTCWithoutAClockOfItsMachine(t *testing.T) {
	now := time.Now().In(time.FixedZone("east", 3600))
	at, _ := value.Datetime(now).AsDatetime()
	if at.Location() != time.UTC || !at.Equal(now) || at != at.Round(0) {
		t.Errorf("%v became %v", now, at)
	}
}
