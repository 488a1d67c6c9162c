package topic

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

func TestTopicDefinitionsOutOfBoundsAreRefused(t *testing.T) {
	cases := []struct {
		definition TopicDefinition
		kind       fault.Kind
		names      string
	}{
		{TopicDefinition{}, "", ""},
		{TopicDefinition{Retain: time.Hour, RetainBytes: 1, MaxBytes: 1}, "", ""},
		{TopicDefinition{Retain: -1}, fault.InvalidClause, "RETAIN is -1ns"},
		{TopicDefinition{Retain: MaxDuration + 1}, fault.InvalidClause, "RETAIN is"},
		{TopicDefinition{RetainBytes: -5}, fault.InvalidClause, "RETAIN BYTES is -5"},
		{TopicDefinition{MaxBytes: -5}, fault.InvalidClause, "MAX BYTES is -5"},
		{TopicDefinition{Deduplicate: &Deduplication{Window: time.Minute, Field: "k"}}, "", ""},
		{TopicDefinition{Deduplicate: &Deduplication{Window: 0, Field: "k"}}, fault.InvalidClause, "DEDUPLICATE is 0s"},
		{TopicDefinition{Deduplicate: &Deduplication{Window: 1}}, fault.InvalidClause, "names no field"},
		{TopicDefinition{MaxBytes: 9, Public: &Public{Rate: 60, Per: time.Minute}}, "", ""},
		{TopicDefinition{Public: &Public{Rate: 60, Per: time.Minute}}, fault.InvalidClause, "MAX BYTES"},
		{TopicDefinition{MaxBytes: 9, Public: &Public{Rate: 0, Per: time.Minute}}, fault.InvalidClause, "PUBLIC RATE is 0"},
		{TopicDefinition{MaxBytes: 9, Public: &Public{Rate: 1, Per: 0}}, fault.InvalidClause, "PER is 0s"},
		{TopicDefinition{MaxBytes: 9, Public: &Public{Rate: 1, Per: 1}, Deduplicate: &Deduplication{Window: 1, Field: "k"}},
			fault.InvalidClause, "PUBLIC and DEDUPLICATE"},
	}
	for _, c := range cases {
		wantFault(t, c.definition.Check(), c.kind, c.names)
	}
}

func TestSizesPastTheirBoundsAreRefused(t *testing.T) {
	d := TopicDefinition{MaxBytes: 64, RetainBytes: 100}
	wantFault(t, CheckMaxBytes("small", d, 64), "", "")
	wantFault(t, CheckMaxBytes("small", d, 65), fault.TopicMessageTooLarge, "takes 65 bytes; topic small takes 64")
	wantFault(t, CheckMaxBytes("small", TopicDefinition{}, 1<<40), "", "")
	wantFault(t, CheckRetainBytes("ring", d, 100), "", "")
	wantFault(t, CheckRetainBytes("ring", d, 101), fault.TopicRetainExceeded, "take 101 bytes; topic ring retains 100")
	wantFault(t, CheckRetainBytes("ring", TopicDefinition{}, 1<<40), "", "")
}

func TestAReaderIsToldWhatItPassesOverAndMovedPastIt(t *testing.T) {
	cases := []struct {
		place, first, last Position
		limit              int
		start              Position
		lapsed             uint64
		moved              Position
		lag                uint64
	}{
		{place: 0, first: 1, last: 3, limit: 2, start: 1, moved: 2, lag: 1},
		{place: 3, first: 1, last: 3, limit: 2, start: 4, moved: 3},
		{place: 1, first: 4, last: 7, limit: 1, start: 4, lapsed: 2, moved: 4, lag: 3},
		{place: 3, first: 4, last: 7, limit: 9, start: 4, moved: 7},
		{place: 2, first: 8, last: 7, limit: 9, start: 8, lapsed: 5, moved: 7},
		{place: 0, first: 1, last: 0, limit: 9, start: 1},
	}
	for _, c := range cases {
		start, lapsed := Start(c.place+1, c.first)
		moved := Place(start, min(c.limit, int(c.last+1-start)))
		if start != c.start || lapsed != c.lapsed || moved != c.moved || Lag(moved, c.last) != c.lag {
			t.Errorf("%+v: start %d, lapsed %d, moved to %d, lag %d", c, start, lapsed, moved, Lag(moved, c.last))
		}
	}
	if Lag(5, 3) != 0 {
		t.Error("a place past the last has a lag")
	}
	wantFault(t, CheckAfter("events", "billing", 3, 3), "", "")
	wantFault(t, CheckAfter("events", "billing", 4, 3), fault.InvalidClause, "AFTER 4 would move consumer 'billing' past 3")
}

func TestRetentionBySizeKeepsAsMuchAsFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Uint64Range(0, 40), 1, 60).Draw(t, "sizes")
		first := Position(rapid.IntRange(1, len(sizes)).Draw(t, "first"))
		last := Position(len(sizes))
		held := sum(sizes[first-1:])
		if held == 0 {
			t.Skip("no limit is exceeded")
		}
		limit := rapid.Uint64Range(0, held-1).Draw(t, "limit")
		through := func(p Position) (uint64, error) {
			if p < first || p > last {
				t.Fatalf("position %d is not held", p)
			}
			return sum(sizes[:p]), nil
		}
		want := first
		for want <= last && sum(sizes[want-1:]) > limit {
			want++
		}
		got, err := FirstWithinBytes(first, last, limit, through)
		if err != nil || got != want {
			t.Fatalf("from %d of %v with %d is kept from %d; want %d", first, sizes, limit, got, want)
		}
	})
}

func sum(sizes []uint64) (total uint64) {
	for _, size := range sizes {
		total += size
	}
	return total
}

func TestATopicThatHoldsNothingKeepsItsFirstPosition(t *testing.T) {
	never := func(p Position) (uint64, error) { t.Fatalf("looked at %d", p); return 0, nil }
	if first, err := FirstWithinBytes(8, 7, 0, never); first != 8 || err != nil {
		t.Fatal(first, err)
	}
	neverAt := func(p Position) (time.Time, error) { t.Fatalf("looked at %d", p); return epoch, nil }
	if first, err := FirstWithinAge(8, 7, time.Second, epoch, neverAt); first != 8 || err != nil {
		t.Fatal(first, err)
	}
}

func TestRetentionByAgeLetsGoAtExactlyTheEnd(t *testing.T) {
	appended := func(p Position) (time.Time, error) { return epoch.Add(time.Duration(p/2) * time.Second), nil }
	cases := []struct {
		now         time.Duration
		first, want Position
	}{
		{10*time.Second - 1, 1, 1},
		{10 * time.Second, 1, 2},
		{11 * time.Second, 2, 4},
		{12*time.Second - 1, 2, 4},
		{12 * time.Second, 4, 6},
		{time.Hour, 6, 10},
	}
	for _, c := range cases {
		first, err := FirstWithinAge(c.first, 9, 10*time.Second, epoch.Add(c.now), appended)
		if first != c.want || err != nil {
			t.Errorf("after %s: %d, %v; want %d", c.now, first, err, c.want)
		}
	}
	if p, err := FirstSince(1, 9, epoch.Add(2*time.Second), appended); p != 4 || err != nil {
		t.Error(p, err)
	}
	if p, err := FirstSince(1, 9, epoch.Add(2*time.Second+1), appended); p != 6 || err != nil {
		t.Error(p, err)
	}
}

func TestASearchLooksAtFewPositionsAndAtNoneTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := Position(rapid.Uint64Range(1, 1<<40).Draw(t, "low"))
		held := Position(rapid.Uint64Range(0, 1<<30).Draw(t, "held"))
		want := low + Position(rapid.Uint64Range(0, uint64(held)).Draw(t, "answer"))
		looked := map[Position]bool{}
		got, err := Search(low, low+held, func(p Position) (bool, error) {
			if p < low || p >= low+held || looked[p] {
				t.Fatalf("looked at %d from %d to %d", p, low, low+held)
			}
			looked[p] = true
			return p >= want, nil
		})
		if got != want || err != nil || len(looked) > 62 {
			t.Fatalf("found %d, %v, after %d looks; want %d", got, err, len(looked), want)
		}
	})
}

func TestASearchThatCannotLookFails(t *testing.T) {
	broken := errors.New("broken")
	for _, held := range []Position{1, 2, 100} {
		if _, err := Search(1, 1+held, func(Position) (bool, error) { return false, broken }); !errors.Is(err, broken) {
			t.Errorf("%d held: %v", held, err)
		}
	}
	for _, bad := range []Position{1, 9} {
		_, err := FirstWithinBytes(1, 9, 0, func(p Position) (uint64, error) {
			if p == bad {
				return 0, broken
			}
			return uint64(p), nil
		})
		if !errors.Is(err, broken) {
			t.Errorf("position %d: %v", bad, err)
		}
	}
}

func TestOnlyStringsIntsUUIDsAndBytesAreDeduplicationKeys(t *testing.T) {
	d := &Deduplication{Window: time.Second, Field: "k"}
	message := func(v value.Value) value.Value { return value.Fields(value.Object{"k": v, "other": value.Int(1)}) }
	long := strings.Repeat("x", 1000)
	id := uuid.MustParse("018f4b1c-0000-7000-8000-000000000000")
	keys := map[string]value.Value{}
	for _, v := range []value.Value{
		value.String("7"), value.Int(7), value.Bytes([]byte("7")), value.Int(-7), value.String(""), value.Bytes(nil),
		value.UUID(id), value.String(id.String()), value.Bytes(id[:]),
		value.String(long), value.Bytes([]byte(long)), value.String(long + "x"), value.String(long[:64]), value.String(long[:65]),
	} {
		key, err := d.Key("payments", message(v))
		if err != nil || len(key) == 0 || len(key) > 65 {
			t.Fatalf("%v: key %x, %v", v, key, err)
		}
		if other, ok := keys[string(key)]; ok {
			t.Fatalf("%v and %v have one key", v, other)
		}
		keys[string(key)] = v
		again, err := d.Key("payments", message(v))
		if err != nil || !bytes.Equal(key, again) {
			t.Fatalf("%v has two keys", v)
		}
	}
	for _, v := range []value.Value{
		value.Null(), value.Bool(true), value.Float(1.5), value.Float(7), value.Datetime(epoch), value.Duration(1),
		value.Array(), value.Fields(nil), value.Record(value.RecordID{Table: "t", Key: value.Int(1)}),
	} {
		_, err := d.Key("payments", message(v))
		wantFault(t, err, fault.DeduplicationKey, "topic payments deduplicates on k")
	}
	for _, m := range []value.Value{
		value.Fields(value.Object{"other": value.Int(1)}), message(value.None()), value.String("k"), value.None(), value.Array(value.Int(1)),
	} {
		if key, err := d.Key("payments", m); key != nil || err != nil {
			t.Errorf("%v, without the field: %x, %v", m, key, err)
		}
	}
}

func TestADeduplicationWindowEndsExactly(t *testing.T) {
	d := &Deduplication{Window: time.Second, Field: "k"}
	for after, holds := range map[time.Duration]bool{0: true, time.Second - 1: true, time.Second: false, time.Hour: false} {
		if d.Holds(epoch, epoch.Add(after)) != holds {
			t.Errorf("after %s", after)
		}
	}
}
