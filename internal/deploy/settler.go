package deploy

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// settler acknowledges the events of a subscription that handles several at once:
// in one commit all that were handled while the one before was made, and with
// them it takes as many new ones as there is room for. So an event costs a share
// of a commit, and the busier a subscription is, the smaller a share.
type settler struct {
	feed *feed

	mu sync.Mutex
	// The following are protected by mu. handled waits for the next commit, and
	// settling says that there is somebody who makes it.
	handled  []acknowledgement
	settling bool
}

// acknowledgement is an event that was handled, and who waits until it is
// settled.
type acknowledgement struct {
	at      topic.Settle
	settled chan struct{}
}

// acknowledge returns when an event is settled, or cannot be and is handed out
// again after its deadline.
func (s *settler) acknowledge(ctx context.Context, at topic.Settle) {
	one := acknowledgement{at: at, settled: make(chan struct{})}
	s.mu.Lock()
	s.handled = append(s.handled, one)
	leads := !s.settling
	s.settling = true
	s.mu.Unlock()
	if leads {
		s.feed.dispatcher.deliveries.Go(func() { s.run(ctx) })
	}
	<-one.settled
}

// run settles until nothing waits.
func (s *settler) run(ctx context.Context) {
	for {
		s.mu.Lock()
		batch := s.handled
		s.handled = nil
		s.settling = len(batch) > 0
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		s.settle(ctx, batch)
		for _, one := range batch {
			close(one.settled)
		}
	}
}

// settle acknowledges events and delivers those that it takes in their place.
func (s *settler) settle(ctx context.Context, batch []acknowledgement) {
	f := s.feed
	settlement := store.Settlement{Kind: store.Acknowledge, At: make([]topic.Settle, len(batch))}
	for i, one := range batch {
		settlement.At[i] = one.at
	}
	room := 0
	if f.taking.Err() == nil {
		room, _ = f.pool.reserve(f.group, maxTaken)
		defer f.pool.unreserve(f.group, room)
	}
	var page store.Page
	count := 0
	err := persist(ctx, func(ctx context.Context) (err error) {
		if room == 0 {
			count, err = f.dispatcher.db.Settle(ctx, f.topic, f.group, settlement)
			return err
		}
		count, page, err = f.dispatcher.db.SettleAndRead(ctx, f.topic, f.group, settlement, room)
		return err
	})
	f.done.Add(float64(count))
	switch {
	case err != nil:
		f.log.Warn("events cannot be settled and are handed out again after their deadline", slog.Int("events", len(batch)), slog.Any("error", err))
	case count < len(batch):
		f.log.Debug("events were settled by somebody else", slog.Int("events", len(batch)-count))
	}
	f.deliver(page)
}
