package engine_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// A machine is a machine's clock that a test moves.
type machine struct{ now time.Time }

func (m *machine) read() time.Time { return m.now }

func (m *machine) move(d time.Duration) { m.now = m.now.Add(d) }

func TestClockShowsTheMachinesTimeWhileThatGoesForward(t *testing.T) {
	m := &machine{now: noon}
	clock := engine.NewClock(m.read, time.Time{})
	for range 3 {
		if got := clock.Now(); !got.Equal(m.now) {
			t.Fatalf("got %v, want %v", got, m.now)
		}
		m.move(time.Hour)
	}
}

func TestClockGoesOnAtHalfSpeedFromWhereTheMachineSteppedBackUntilItCaughtUp(t *testing.T) {
	m := &machine{now: noon}
	clock := engine.NewClock(m.read, time.Time{})
	m.move(-10 * time.Second)
	steps := []struct {
		passed time.Duration
		want   time.Duration // after noon
	}{
		{0, 0},
		{4 * time.Second, 2 * time.Second},
		{10 * time.Second, 7 * time.Second}, // 14 s passed, the machine shows 4 s
		{5 * time.Second, 9500 * time.Millisecond},
		{time.Second, 10 * time.Second}, // 20 s passed: both show 10 s
		{time.Second, 11 * time.Second},
	}
	for _, step := range steps {
		m.move(step.passed)
		if got := clock.Now().Sub(noon); got != step.want {
			t.Fatalf("when the machine shows noon %+v: got noon %+v, want %+v", m.now.Sub(noon), got, step.want)
		}
	}
}

func TestClockAfterARestartGoesOnFromTheNewestTimeInTheStore(t *testing.T) {
	m := &machine{now: noon}
	floor := noon.Add(time.Minute)
	clock := engine.NewClock(m.read, floor)
	m.move(10 * time.Second)
	if got, want := clock.Now(), floor.Add(5*time.Second); !got.Equal(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	m.move(time.Hour)
	if got := clock.Now(); !got.Equal(m.now) {
		t.Fatalf("got %v, want the machine's %v", got, m.now)
	}
}

func TestClockAnchorsAnewWhenTheMachineStepsBackTwice(t *testing.T) {
	m := &machine{now: noon}
	clock := engine.NewClock(m.read, time.Time{})
	m.move(-10 * time.Second)
	clock.Now()
	m.move(4 * time.Second)
	clock.Now()
	m.move(-time.Hour)
	if got := clock.Now().Sub(noon); got != 2*time.Second {
		t.Fatalf("got noon %+v, want +2s", got)
	}
	m.move(4 * time.Second)
	if got := clock.Now().Sub(noon); got != 4*time.Second {
		t.Fatalf("got noon %+v, want +4s", got)
	}
}

// The machine's monotonic reading goes on over a step of its wall clock; a
// clock that measured by it would not see the step.
func TestClockGivesWallTimes(t *testing.T) {
	clock := engine.NewClock(nil, time.Time{})
	got := clock.Now()
	if got != got.Round(0) || got.Location() != time.UTC {
		t.Fatalf("got %v, want a time in UTC without a monotonic reading", got)
	}
	if since := time.Since(got); since < 0 || since > time.Minute {
		t.Fatalf("got %v, want about now", got)
	}
}

// Whatever the machine's clock does: no time is before an earlier one, none is
// before the floor, the clock is the machine's where that was never behind, and
// while it is behind it moves by half of what the machine moves.
func TestClockNeverGoesBackAndFollowsAtHalfSpeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{now: noon}
		floor := noon.Add(time.Duration(rapid.Int64Range(-1000, 1000).Draw(t, "floor")) * time.Second)
		clock := engine.NewClock(m.read, floor)
		previous := clock.Now()
		if previous.Before(floor) {
			t.Fatalf("%v is before the floor %v", previous, floor)
		}
		for range rapid.IntRange(1, 40).Draw(t, "moves") {
			moved := 2 * time.Duration(rapid.Int64Range(-300, 600).Draw(t, "seconds")) * time.Second
			m.move(moved)
			now := clock.Now()
			switch {
			case now.Before(previous):
				t.Fatalf("went back from %v to %v", previous, now)
			case now.Before(m.now):
				t.Fatalf("%v is behind the machine's %v", now, m.now)
			case moved >= 0 && now.After(m.now) && now.Sub(previous) != moved/2:
				t.Fatalf("while behind, moved by %v where the machine moved by %v", now.Sub(previous), moved)
			case moved < 0 && now.After(m.now) && now.Sub(previous) != 0:
				t.Fatalf("moved by %v where the machine stepped back", now.Sub(previous))
			}
			previous = now
		}
	})
}

func TestClockNeverGoesBackAmongManyCallers(t *testing.T) {
	clock := engine.NewClock(nil, time.Time{})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			previous := clock.Now()
			for range 1000 {
				now := clock.Now()
				if now.Before(previous) {
					t.Errorf("went back from %v to %v", previous, now)
				}
				previous = now
			}
		})
	}
	callers.Wait()
}
