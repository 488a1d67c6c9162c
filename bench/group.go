package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemarkdb/tidemark"
)

// groupPage is how many messages a worker takes and acknowledges at a time.
const groupPage = 100

// groupBenchmarks measure groups: workers that take 100 messages and
// acknowledge them, beside JetStream's pull consumers that fetch 100 and
// acknowledge each (with its default sync interval, where ours syncs every
// answer), and the same with 10,000 in flight beside 100.
func groupBenchmarks() []benchmark {
	var all []benchmark
	for _, workers := range []int{1, 16} {
		all = append(all, benchmark{
			name: fmt.Sprintf("group takes 100 and acknowledges 100, %d workers, beside JetStream pull", workers), unit: "messages/s",
			tidemark:  func(d time.Duration) (result, error) { return groupTidemark(workers, d) },
			reference: func(d time.Duration) (result, error) { return groupJetStream(workers, d) },
		})
	}
	all = append(all, benchmark{
		name: "group with 10,000 in flight, acknowledged in random order, beside 100 in flight", unit: "messages/s",
		tidemark:  func(d time.Duration) (result, error) { return groupInFlight(10_000, d) },
		reference: func(d time.Duration) (result, error) { return groupInFlight(100, d) },
	})
	return append(all, benchmark{
		name: "append 128 B, 4096 outstanding, RETAIN BYTES 64 MiB, beside without", unit: "messages/s",
		tidemark:  func(d time.Duration) (result, error) { return appendClauses("RETAIN BYTES 67108864", d) },
		reference: func(d time.Duration) (result, error) { return appendClauses("", d) },
	})
}

// backlog is how many messages are there for a group to take; a measurement
// that has taken them all starts over.
const backlog = 400_000

func openGroup(inFlight int) (*tidemark.Database, *tidemark.Group, func(), error) {
	db, cleanup, err := openTopic("")
	if err != nil {
		return nil, nil, nil, err
	}
	ctx := context.Background()
	if err := fill(ctx, db, backlog); err != nil {
		return nil, nil, cleanup, err
	}
	_, err = db.Exec(ctx, "DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 1h IN FLIGHT $n", tidemark.Params{"n": inFlight})
	return db, db.Topic("events").Group("g"), cleanup, err
}

// startOver makes the group hand out everything again.
func startOver(ctx context.Context, db *tidemark.Database) error {
	_, err := db.Exec(ctx, "ALTER GROUP 'g' ON TOPIC events START AT 0", nil)
	return err
}

// groupTidemark has workers that take a page while the one before it is being
// acknowledged, as JetStream's client does, whose Ack does not wait.
func groupTidemark(workers int, d time.Duration) (result, error) {
	db, group, cleanup, err := openGroup(2 * workers * groupPage)
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	var (
		settled  atomic.Int64
		running  sync.WaitGroup
		failures = make(chan error, workers)
		over     sync.Mutex
	)
	ctx, start := context.Background(), time.Now()
	work := func() error {
		acknowledged := make(chan error, 1)
		acknowledged <- nil
		for time.Since(start) < d {
			page, err := group.Read(ctx, groupPage, 0)
			if err := errors.Join(err, <-acknowledged); err != nil {
				return err
			}
			if len(page.Messages) == 0 {
				over.Lock()
				err = startOver(ctx, db)
				over.Unlock()
				acknowledged <- err
				continue
			}
			go func() {
				count, err := group.Ack(ctx, page.Messages...)
				settled.Add(int64(count))
				acknowledged <- err
			}()
		}
		return <-acknowledged
	}
	for range workers {
		running.Go(func() {
			if err := work(); err != nil {
				failures <- err
			}
		})
	}
	running.Wait()
	close(failures)
	return result{perSecond: float64(settled.Load()) / time.Since(start).Seconds()}, <-failures
}

func groupInFlight(inFlight int, d time.Duration) (result, error) {
	db, group, cleanup, err := openGroup(inFlight)
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	ctx := context.Background()
	var held []tidemark.Message
	settled, start := 0, time.Now()
	for time.Since(start) < d {
		page, err := group.Read(ctx, min(inFlight-len(held), groupPage), 0)
		if err != nil {
			return result{}, err
		}
		held = append(held, page.Messages...)
		if len(page.Messages) == 0 {
			if err := startOver(ctx, db); err != nil {
				return result{}, err
			}
			held = nil
			continue
		}
		if len(held) < inFlight {
			start = time.Now() // Not full yet: the clock starts when it is.
			continue
		}
		rand.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		done := held[len(held)-groupPage:]
		if _, err := group.Ack(ctx, done...); err != nil {
			return result{}, err
		}
		settled += len(done)
		held = held[:len(held)-groupPage]
	}
	return result{perSecond: float64(settled) / time.Since(start).Seconds()}, nil
}

func groupJetStream(workers int, d time.Duration) (result, error) {
	js, cleanup, err := openJetStream(false, 4096)
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	ctx := context.Background()
	payload := make([]byte, 128)
	for range backlog {
		if _, err := js.PublishAsync("events", payload, jetstream.WithStallWait(time.Minute)); err != nil {
			return result{}, err
		}
	}
	<-js.PublishAsyncComplete()
	consumer, err := js.CreateConsumer(ctx, "events", jetstream.ConsumerConfig{
		Durable: "g", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 2 * workers * groupPage, AckWait: time.Hour,
	})
	if err != nil {
		return result{}, err
	}
	var (
		settled  atomic.Int64
		running  sync.WaitGroup
		failures = make(chan error, workers)
	)
	start := time.Now()
	for range workers {
		running.Go(func() {
			for time.Since(start) < d {
				batch, err := consumer.Fetch(groupPage, jetstream.FetchMaxWait(100*time.Millisecond))
				if err != nil {
					failures <- err
					return
				}
				count := 0
				for m := range batch.Messages() {
					if err := m.Ack(); err != nil {
						failures <- err
						return
					}
					count++
				}
				if err := batch.Error(); err != nil && !errors.Is(err, jetstream.ErrNoMessages) {
					failures <- err
					return
				}
				if count == 0 {
					return // The backlog is taken.
				}
				settled.Add(int64(count))
			}
		})
	}
	running.Wait()
	elapsed := time.Since(start)
	close(failures)
	return result{perSecond: float64(settled.Load()) / elapsed.Seconds()}, <-failures
}

func appendClauses(clauses string, d time.Duration) (result, error) {
	db, cleanup, err := openTopic(clauses)
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	topic, message := db.Topic("events"), eventOf(128)
	return pipelined(4096, d, func(done func(error)) error {
		return topic.AppendAsync(context.Background(), message, func(_ tidemark.Message, _ bool, err error) { done(err) })
	})
}
