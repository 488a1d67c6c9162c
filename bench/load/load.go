// Package load publishes events and records when each was handled. The module
// that bench runs and the references beside it use the same, so that nothing but
// what is between publishing and handling differs.
package load

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Plan says how events are published.
type Plan struct {
	// Publishers is how many publish at once, each the next event when the one
	// before is published. They pause while Backlog events wait to be handled, so
	// that what is measured is the slower of publishing and handling.
	Publishers int `json:"publishers"`
	Backlog    int `json:"backlog"`
	// Subscriptions is how many times each event is handled.
	Subscriptions int `json:"subscriptions"`
	// PerSecond instead publishes at a pace, whether or not the events before are
	// published; 0 for as fast as Publishers can.
	PerSecond int `json:"perSecond"`
	// Milliseconds is for how long.
	Milliseconds int `json:"milliseconds"`
}

// Run begins to record, publishes, and returns how many events it has published.
// publish is given what Recorder.Handled takes, and returns when the event is
// published.
func (p Plan) Run(ctx context.Context, r *Recorder, publish func(ctx context.Context, stamp int64) error) (published int, err error) {
	r.Begin()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var (
		count   atomic.Int64
		running sync.WaitGroup
	)
	one := func() {
		if err := publish(ctx, time.Now().UnixNano()); err != nil {
			fail(err)
			return
		}
		count.Add(1)
	}
	end := time.Now().Add(time.Duration(p.Milliseconds) * time.Millisecond)
	if p.PerSecond > 0 {
		p.pace(ctx, end, func() { running.Go(one) })
	}
	for range p.Publishers {
		running.Go(func() {
			for ctx.Err() == nil && time.Now().Before(end) {
				if int(count.Load())*p.Subscriptions-r.HandledCount() > p.Backlog*p.Subscriptions {
					time.Sleep(time.Millisecond)
					continue
				}
				one()
			}
		})
	}
	running.Wait()
	return int(count.Load()), context.Cause(ctx)
}

// pace begins one event every so often. What is late, because the processor was
// busy, is begun at once.
func (p Plan) pace(ctx context.Context, end time.Time, begin func()) {
	every := time.Second / time.Duration(p.PerSecond)
	for next := time.Now(); ctx.Err() == nil && next.Before(end); next = next.Add(every) {
		time.Sleep(time.Until(next))
		begin()
	}
}

// Recorder counts the events that were handled, and how long each took from the
// call that published it. It is safe for concurrent use.
type Recorder struct {
	handled atomic.Int64

	mu sync.Mutex
	// The following are protected by mu.
	began, last time.Time
	took        []time.Duration
}

// maxTook bounds how many times one measurement keeps.
const maxTook = 1 << 20

// Begin forgets everything and begins to count.
func (r *Recorder) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handled.Store(0)
	r.began, r.took = time.Now(), r.took[:0]
	r.last = r.began
}

// Handled says that an event was handled.
func (r *Recorder) Handled(stamp int64) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handled.Add(1)
	r.last = now
	if len(r.took) < maxTook {
		r.took = append(r.took, now.Sub(time.Unix(0, stamp)))
	}
}

// Report is what was recorded.
type Report struct {
	Handled int `json:"handled"`
	// PerSecond is from Begin to the last event that was handled.
	PerSecond float64 `json:"perSecond"`
	// Percentiles are how long events took, in microseconds: what 0, 1, 2 to 100 of
	// a hundred did not exceed. There are none where nothing was handled.
	Percentiles []int `json:"percentiles"`
}

// Report tells what was recorded since Begin.
func (r *Recorder) Report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := Report{Handled: r.HandledCount(), Percentiles: []int{}}
	if elapsed := r.last.Sub(r.began); elapsed > 0 {
		report.PerSecond = float64(report.Handled) / elapsed.Seconds()
	}
	if len(r.took) == 0 {
		return report
	}
	sorted := slices.Sorted(slices.Values(r.took))
	for percent := range 101 {
		report.Percentiles = append(report.Percentiles, int(sorted[(len(sorted)-1)*percent/100].Microseconds()))
	}
	return report
}

// HandledCount is how many were handled since Begin.
func (r *Recorder) HandledCount() int { return int(r.handled.Load()) }
