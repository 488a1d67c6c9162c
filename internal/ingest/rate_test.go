package ingest

import (
	"testing"
	"time"
)

func TestRateIsTheAverageOfTheLastTenWholeSeconds(t *testing.T) {
	var r rate
	start := time.Unix(1_700_000_000, 0)
	want := func(at time.Duration, perSecond float64) {
		t.Helper()
		if got := r.perSecond(start.Add(at)); got != perSecond {
			t.Errorf("after %s the rate is %v, want %v", at, got, perSecond)
		}
	}
	want(0, 0)
	r.add(start, 50)
	// The second that runs is not whole yet.
	want(900*time.Millisecond, 0)
	want(time.Second, 5)
	r.add(start.Add(4*time.Second), 100)
	want(5*time.Second, 15)
	want(10*time.Second, 15)
	want(11*time.Second, 10)
	want(time.Hour, 0)
	// A clock that steps back loses nothing and fails nothing.
	r.add(start, 10)
	want(time.Hour+time.Second, 1)
}
