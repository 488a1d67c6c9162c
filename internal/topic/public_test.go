package topic

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

func TestAQuietTopicTakesItsRateAtOnceAndThenOneByOne(t *testing.T) {
	public := Public{Rate: 60, Per: time.Minute}
	var b Bucket
	at := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	take := func(n int, want error) {
		t.Helper()
		if err := b.Take("t", public, n, at); !errors.Is(err, want) {
			t.Errorf("%d at %s: %v, want %v", n, at, err, want)
		}
	}
	take(61, fault.TopicRateExceeded)
	take(59, nil)
	take(2, fault.TopicRateExceeded)
	take(1, nil)
	at = at.Add(time.Second - 1)
	take(1, fault.TopicRateExceeded)
	at = at.Add(1)
	take(1, nil)
	take(1, fault.TopicRateExceeded)
	b.GiveBack(public, 1)
	take(1, nil)
	if b.IsQuiet(at.Add(time.Minute - 1)) {
		t.Error("it is quiet before it could take all at once")
	}
	at = at.Add(time.Minute)
	if !b.IsQuiet(at) {
		t.Error("it is not quiet although it takes all at once")
	}
	take(60, nil)
	take(1, fault.TopicRateExceeded)
	at = at.Add(time.Hour)
	take(60, nil)
	take(1, fault.TopicRateExceeded)
}

func TestNoRateOverflows(t *testing.T) {
	at := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	for _, public := range []Public{{math.MaxInt64, 1}, {math.MaxInt64, MaxDuration}, {1, MaxDuration}, {3, 1}} {
		var b Bucket
		taken := int64(0)
		for _, n := range []int{math.MaxInt32, 1, 1, 1, 1, math.MaxInt32} {
			err := b.Take("t", public, n, at)
			if fits := taken+int64(n) <= public.Rate; (err == nil) != fits {
				t.Errorf("%+v takes %d after %d: %v", public, n, taken, err)
			} else if fits {
				taken += int64(n)
			}
		}
	}
}
