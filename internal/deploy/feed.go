package deploy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/internal/store"
)

// The bounds of a feed.
const (
	// maxTaken is how many events a feed takes at once.
	maxTaken = 1000
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

	// outstanding is how many of its events are with runners.
	outstanding atomic.Int64

	mu sync.Mutex
	// failureWritten is when the subscription's newest failure was written; it is
	// protected by mu.
	failureWritten time.Time
}

func startFeed(d *dispatcher, a assignment) *feed {
	f := &feed{
		assignment: a, dispatcher: d,
		log: d.log.With(slog.String("subscription", a.group), slog.String("deployment", a.pool.deployment)),
	}
	f.taking, f.stop = context.WithCancel(d.taking)
	d.feeding.Go(func() { f.run(f.taking) })
	return f
}

// run takes events until ctx ends.
func (f *feed) run(ctx context.Context) {
	f.log.Debug("a subscription is dispatched by this node")
	defer f.log.Debug("a subscription is not dispatched by this node any more")
	wait, failing := firstPause, false
	for ready := false; ctx.Err() == nil; {
		var err error
		if ready, err = f.step(ctx, ready); err == nil {
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

// step waits for an event, unless it is known that there is one, and takes what
// there is, as far as the runners have room. more says that there may be more.
func (f *feed) step(ctx context.Context, ready bool) (more bool, err error) {
	if !ready {
		if err := f.dispatcher.db.AwaitWork(ctx, f.topic, f.group); err != nil {
			return false, err
		}
	}
	room := f.pool.room(ctx, f.group)
	if room == 0 {
		return false, ctx.Err()
	}
	page, err := f.dispatcher.db.Read(ctx, f.topic, store.ReadOptions{Consumer: f.group, Limit: min(room, maxTaken)}, 0)
	if err != nil {
		return false, err
	}
	for _, message := range f.taken(page) {
		f.deliver(message)
	}
	// What is full is heard of when it is not any more.
	full := f.outstanding.Load() >= int64(f.subscription.InFlight())
	return len(page.Messages) > 0 && !full, nil
}

// taken are the events of a page. What lapsed before them it logs.
func (f *feed) taken(page store.Page) []store.Message {
	if page.Lapsed > 0 {
		f.log.Warn("retention removed events before the subscription had them", slog.Uint64("lapsed", page.Lapsed))
	}
	return page.Messages
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
