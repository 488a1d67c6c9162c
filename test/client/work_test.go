package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/fault"
)

// quiet are options of a worker whose failures are meant.
func quiet() tidemark.WorkOptions {
	return tidemark.WorkOptions{Failed: func(tidemark.Message, error) {}}
}

// group is what INFO tells of the group g of the topic mail.
func (u *user) group() (g struct {
	Committed int `json:"committed"`
	InFlight  int `json:"in_flight"`
}) {
	u.Helper()
	rows, err := u.db.Query(u.Context(), "INFO FOR TOPIC mail", nil)
	check(u.T, err)
	info, _ := rows.All()[0].Value.AsObject()
	groups, _ := info["groups"].AsObject()
	check(u.T, groups["g"].Scan(&g))
	return g
}

var workPromises = []promise{
	{"every message is worked on, IN FLIGHT at once", func(u *user) {
		const count, inFlight = 60, 7
		u.exec("DEFINE TOPIC mail; DEFINE GROUP 'g' ON TOPIC mail ACK DEADLINE 1h IN FLIGHT 7")
		var mu sync.Mutex
		seen, running, most := map[uint64]int{}, 0, 0
		ctx, stop := context.WithCancel(u.Context())
		worked := make(chan error)
		full := make(chan struct{})
		go func() {
			worked <- u.db.Topic("mail").Group("g").Work(ctx, func(_ context.Context, m tidemark.Message) error {
				mu.Lock()
				seen[m.Position()]++
				running++
				if running > most {
					if most = running; most == inFlight {
						close(full)
					}
				}
				mu.Unlock()
				<-full // nobody returns before as many run as may
				mu.Lock()
				running--
				last := len(seen) == count
				mu.Unlock()
				if last {
					stop()
				}
				return nil
			}, tidemark.WorkOptions{})
		}()
		for n := range count {
			check(u.T, u.db.Topic("mail").AppendAsync(u.Context(), n, func(tidemark.Message, bool, error) {}))
		}
		check(u.T, <-worked)
		if len(seen) != count || most != inFlight {
			u.Fatalf("%d of %d, %d at once", len(seen), count, most)
		}
		for position, times := range seen {
			if times != 1 {
				u.Fatalf("message %d was worked on %d times", position, times)
			}
		}
		if g := u.group(); g.Committed != count || g.InFlight != 0 {
			u.Fatalf("the group: %+v", g)
		}
	}},
	{"what a worker returns settles its message", func(u *user) {
		u.exec(`DEFINE TOPIC dead; DEFINE TOPIC mail; INSERT INTO mail ['done', 'fails', 'later', 'never', 'panics'];
			DEFINE GROUP 'g' ON TOPIC mail ACK DEADLINE 1h IN FLIGHT 10 DELIVERIES 5 DEAD LETTER TO dead`)
		ctx, stop := context.WithCancel(u.Context())
		var mu sync.Mutex
		var failures []string
		var settled atomic.Int64
		options := tidemark.WorkOptions{Failed: func(m tidemark.Message, err error) {
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, fmt.Sprintf("%d: %.25s", m.Position(), err))
		}}
		err := u.db.Topic("mail").Group("g").Work(ctx, func(_ context.Context, m tidemark.Message) error {
			var what string
			check(u.T, m.Scan(&what))
			if settled.Add(1) == 8 {
				stop()
			}
			switch {
			case what == "never":
				return tidemark.Reject("it never will")
			case m.Deliveries() > 1:
				return nil
			case what == "fails":
				return errors.New("not now")
			case what == "later":
				return tidemark.Nack(20 * time.Millisecond)
			case what == "panics":
				panic("out of range")
			}
			return nil
		}, options)
		check(u.T, err)
		if len(failures) != 4 {
			u.Fatalf("told of %q", failures)
		}
		if g := u.group(); g.Committed != 5 || g.InFlight != 0 {
			u.Fatalf("the group: %+v", g)
		}
		page, err := u.db.Topic("dead").Read(u.Context(), tidemark.ReadOptions{})
		if err != nil || len(page.Messages) != 1 {
			u.Fatalf("dead letters %v %v", page, err)
		}
	}},
	{"a message is extended while it is worked on", func(u *user) {
		u.exec("DEFINE TOPIC mail; CREATE mail = 1; DEFINE GROUP 'g' ON TOPIC mail ACK DEADLINE 1500ms IN FLIGHT 10")
		ctx, stop := context.WithCancel(u.Context())
		var times atomic.Int64
		check(u.T, u.db.Topic("mail").Group("g").Work(ctx, func(ctx context.Context, m tidemark.Message) error {
			times.Add(1)
			select {
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
				u.Errorf("the message was lost: %v", context.Cause(ctx))
			}
			stop()
			return nil
		}, tidemark.WorkOptions{}))
		if g := u.group(); times.Load() != 1 || g.Committed != 1 {
			u.Fatalf("worked on %d times; the group: %+v", times.Load(), g)
		}
	}},
	{"a worker whose message another has is told", func(u *user) {
		u.exec("DEFINE TOPIC mail; CREATE mail = 1; DEFINE GROUP 'g' ON TOPIC mail ACK DEADLINE 200ms IN FLIGHT 10")
		ctx, stop := context.WithCancel(u.Context())
		err := u.db.Topic("mail").Group("g").Work(ctx, func(ctx context.Context, m tidemark.Message) error {
			// START AT forgets who holds what.
			u.exec("ALTER GROUP 'g' ON TOPIC mail START AT 1")
			<-ctx.Done()
			want(u.T, context.Cause(ctx), fault.Timeout)
			stop()
			return ctx.Err()
		}, quiet())
		check(u.T, err)
	}},
	{"a worker that is told to stop finishes or releases", func(u *user) {
		u.exec("DEFINE TOPIC mail; INSERT INTO mail [1, 2]; DEFINE GROUP 'g' ON TOPIC mail ACK DEADLINE 1h DELIVERIES 1 IN FLIGHT 2")
		ctx, stop := context.WithCancel(u.Context())
		var begun sync.WaitGroup
		begun.Add(2)
		options := quiet()
		options.Drain = 50 * time.Millisecond
		err := u.db.Topic("mail").Group("g").Work(ctx, func(handling context.Context, m tidemark.Message) error {
			begun.Done()
			begun.Wait()
			stop()
			if m.Position() == 1 {
				if handling.Err() != nil {
					u.Error("it has no time to finish")
				}
				return nil
			}
			<-handling.Done()
			return handling.Err()
		}, options)
		check(u.T, err)
		// The second is handed out again at once, and its one delivery was not
		// counted.
		page, err := u.db.Topic("mail").Group("g").Read(u.Context(), 10, 0)
		if err != nil || len(page.Messages) != 1 || page.Messages[0].Position() != 2 {
			u.Fatalf("%v %v", page, err)
		}
	}},
	{"a worker without a group is told", func(u *user) {
		u.exec("DEFINE TOPIC mail")
		worker := func(context.Context, tidemark.Message) error { return nil }
		want(u.T, u.db.Topic("mail").Group("g").Work(u.Context(), worker, quiet()), fault.NotAGroup)
		want(u.T, u.db.Topic("nothing").Group("g").Work(u.Context(), worker, quiet()), fault.NotFound)
		u.exec("DEFINE GROUP 'g' ON TOPIC mail ACK DEADLINE 1h")
		dropped := make(chan error)
		go func() { dropped <- u.db.Topic("mail").Group("g").Work(u.Context(), worker, quiet()) }()
		u.exec("DROP TOPIC mail")
		want(u.T, <-dropped, fault.NotFound)
	}},
}
