package deploy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/internal/store"
)

// The bounds of a feed.
const (
	// maxTaken is how many events a feed takes at once.
	maxTaken = 1000
	// longestWait is how long a feed waits for an event before it begins to wait
	// anew.
	longestWait = time.Hour
	// The pauses after a failure of the store, doubling from the first to the
	// longest.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
	// failureEvery is how often a subscription that handles several events at
	// once writes down its newest failure: they would all write one row.
	failureEvery = time.Second
)

// feed takes the events of one subscription and hands them to runners.
type feed struct {
	assignment
	dispatcher *dispatcher
	log        *slog.Logger
	// taking ends when the feed takes no more events.
	taking context.Context
	stop   context.CancelFunc

	// outstanding is how many of its events are with runners, or are being
	// settled.
	outstanding atomic.Int64
	// settled holds a token when there are fewer of them.
	settled chan struct{}
	settler *settler
	// calls and done are the metrics of every event, looked up once.
	calls prometheus.Observer
	done  prometheus.Counter

	mu sync.Mutex
	// failureWritten is when the subscription's newest failure was written; it is
	// protected by mu.
	failureWritten time.Time
}

func startFeed(d *dispatcher, a assignment) *feed {
	f := &feed{
		assignment: a, dispatcher: d,
		log:     d.log.With(slog.String("subscription", a.group), slog.String("deployment", a.pool.deployment)),
		settled: make(chan struct{}, 1),
		calls:   d.host.metrics.calls.WithLabelValues(a.group),
		done:    d.host.metrics.events.WithLabelValues(a.group, "done"),
	}
	f.settler = &settler{feed: f}
	f.taking, f.stop = context.WithCancel(d.taking)
	d.feeding.Go(func() { f.run(f.taking) })
	return f
}

// run takes events until ctx ends.
func (f *feed) run(ctx context.Context) {
	f.log.Debug("a subscription is dispatched by this node")
	defer f.log.Debug("a subscription is not dispatched by this node any more")
	wait, failing := firstPause, false
	for ctx.Err() == nil {
		err := f.step(ctx)
		if err == nil {
			wait, failing = firstPause, false
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if !failing {
			f.log.Warn("the events of a subscription cannot be read; it is tried again", slog.Any("error", err))
		}
		failing = true
		pause(ctx, wait)
		wait = min(2*wait, longestPause)
	}
}

// step waits until the runners have room and there is an event, and takes what
// there is.
func (f *feed) step(ctx context.Context) error {
	f.awaitSettled(ctx)
	room := f.pool.awaitRoom(ctx, f.group, min(f.subscription.InFlight(), maxTaken))
	if room == 0 {
		return ctx.Err()
	}
	defer f.pool.unreserve(f.group, room)
	page, err := f.dispatcher.db.Read(ctx, f.topic, store.ReadOptions{Consumer: f.group, Limit: room}, longestWait)
	if err != nil {
		return err
	}
	f.deliver(page)
	return nil
}

// full reports whether as many events are on their way as may be.
func (f *feed) full() bool { return f.outstanding.Load() >= int64(f.subscription.InFlight()) }

// awaitSettled waits while as many events are on their way as may be: to look
// into the store, at each of its commits, would show the same. It looks all the
// same from time to time, since another node may have moved the subscription on.
func (f *feed) awaitSettled(ctx context.Context) {
	if !f.full() {
		return
	}
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for f.full() {
		select {
		case <-f.settled:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// settledOne says that an event is not on its way any more.
func (f *feed) settledOne() {
	f.outstanding.Add(-1)
	select {
	case f.settled <- struct{}{}:
	default:
	}
}

// deliver hands the events of a page to runners, without waiting for what becomes
// of them. What lapsed before them it logs.
func (f *feed) deliver(page store.Page) {
	if page.Lapsed > 0 {
		f.log.Warn("retention removed events before the subscription had them", slog.Uint64("lapsed", page.Lapsed))
	}
	for _, message := range page.Messages {
		f.deliverOne(message, page.HandedOut)
	}
}

// inOrder reports whether one event is handled after the other.
func (f *feed) inOrder() bool { return f.subscription.InFlight() == 1 }

// writesFailure reports whether a failure is written down as the subscription's
// newest.
func (f *feed) writesFailure() bool {
	if f.inOrder() {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.failureWritten) < failureEvery {
		return false
	}
	f.failureWritten = time.Now()
	return true
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
