package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/value"
)

// appendBenchmarks measure lone appends, answered after the sync, with a number
// of them outstanding. The reference is a raw Pebble sequencer that batches
// the same bytes with the same syncs; with 4,096 outstanding also NATS
// JetStream embedded, with its default sync interval (it answers before the
// disk has the message) and with sync always.
func appendBenchmarks(size, outstanding int) []benchmark {
	name := func(reference string) string {
		return fmt.Sprintf("append %d B, %d outstanding, beside %s", size, outstanding, reference)
	}
	ours := func(d time.Duration) (result, error) { return appendTidemark(size, outstanding, d) }
	all := []benchmark{{
		name: name("raw pebble"), unit: "messages/s", tidemark: ours,
		reference: func(d time.Duration) (result, error) { return appendRaw(size, outstanding, d) },
	}}
	if outstanding == 4096 {
		all = append(all,
			benchmark{
				name: name("JetStream async, no sync"), unit: "messages/s", tidemark: ours,
				reference: func(d time.Duration) (result, error) { return appendJetStream(size, outstanding, false, d) },
			},
			benchmark{
				name: name("JetStream async, sync always"), unit: "messages/s", tidemark: ours,
				reference: func(d time.Duration) (result, error) { return appendJetStream(size, outstanding, true, d) },
			})
	}
	return all
}

// eventOf is a message whose encoded value has a given size, about. It is a
// value already, as the sequencer's payload is bytes already: turning a Go
// struct into one is measured by value's own benchmarks.
func eventOf(size int) value.Value {
	return value.Fields(value.Object{"v": value.String(strings.Repeat("x", size-4))})
}

// openTopic opens a store with an empty topic: in a temporary folder, or on
// PostgreSQL where that is measured.
func openTopic(clauses string) (db *tidemark.Database, cleanup func(), err error) {
	if onPostgres != nil {
		return onPostgres.openTopic(clauses)
	}
	dir, err := os.MkdirTemp("", "tidemark-bench-")
	if err != nil {
		return nil, nil, err
	}
	store, err := tidemark.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	db, err = store.Database(ctx, "bench", "bench")
	if err == nil {
		_, err = db.Exec(ctx, "DEFINE TOPIC events "+clauses+"; DEFINE COLLECTION effects;", nil)
	}
	return db, func() {
		_ = store.Close()
		_ = os.RemoveAll(dir)
	}, err
}

func appendTidemark(size, outstanding int, d time.Duration) (result, error) {
	db, cleanup, err := openTopic("")
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	topic, message := db.Topic("events"), eventOf(size)
	if outstanding == 1 {
		return oneByOne(d, func() error {
			_, _, err := topic.Append(context.Background(), message)
			return err
		})
	}
	return pipelined(outstanding, d, func(done func(error)) error {
		return topic.AppendAsync(context.Background(), message, func(_ tidemark.Message, _ bool, err error) { done(err) })
	})
}

// oneByOne runs an operation again and again.
func oneByOne(d time.Duration, operation func() error) (result, error) {
	var r result
	count, start := 0, time.Now()
	for time.Since(start) < d {
		began := time.Now()
		if err := operation(); err != nil {
			return r, err
		}
		r.latencies.add(time.Since(began))
		count++
	}
	r.perSecond = float64(count) / time.Since(start).Seconds()
	return r, nil
}

// pipelined keeps a number of operations outstanding.
func pipelined(outstanding int, d time.Duration, submit func(done func(error)) error) (result, error) {
	var (
		r        result
		mu       sync.Mutex
		failure  atomic.Pointer[error]
		finished atomic.Int64
	)
	slots := make(chan struct{}, outstanding)
	start := time.Now()
	for i := 0; time.Since(start) < d && failure.Load() == nil; i++ {
		slots <- struct{}{}
		began, sampled := time.Time{}, i%64 == 0
		if sampled {
			began = time.Now()
		}
		err := submit(func(err error) {
			if err != nil {
				failure.CompareAndSwap(nil, &err)
			}
			finished.Add(1)
			if sampled {
				mu.Lock()
				r.latencies.add(time.Since(began))
				mu.Unlock()
			}
			<-slots
		})
		if err != nil {
			return r, err
		}
	}
	for range outstanding {
		slots <- struct{}{}
	}
	r.perSecond = float64(finished.Load()) / time.Since(start).Seconds()
	if err := failure.Load(); err != nil {
		return r, *err
	}
	return r, nil
}

func appendRaw(size, outstanding int, d time.Duration) (result, error) {
	sequencer, cleanup, err := openSequencer()
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	payload := make([]byte, size+rawOverheadBytes)
	if outstanding == 1 {
		return oneByOne(d, func() error {
			done := make(chan error, 1)
			sequencer.submit(payload, func(err error) { done <- err })
			return <-done
		})
	}
	return pipelined(outstanding, d, func(done func(error)) error {
		sequencer.submit(payload, done)
		return nil
	})
}

func appendJetStream(size, outstanding int, syncAlways bool, d time.Duration) (result, error) {
	js, cleanup, err := openJetStream(syncAlways, outstanding)
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	return publishAsync(js, outstanding, make([]byte, size), d)
}

// publishAsync keeps publishes outstanding and counts what is acknowledged.
func publishAsync(js jetstream.JetStream, outstanding int, payload []byte, d time.Duration) (result, error) {
	var count int64
	start := time.Now()
	futures := make(chan jetstream.PubAckFuture, outstanding)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for future := range futures {
			select {
			case <-future.Ok():
				count++
			case err := <-future.Err():
				failed <- err
				return
			}
		}
	}()
	for time.Since(start) < d {
		future, err := js.PublishAsync("events", payload, jetstream.WithStallWait(time.Minute))
		if err != nil {
			return result{}, err
		}
		select {
		case futures <- future:
		case err := <-failed:
			return result{}, err
		}
	}
	close(futures)
	if err := <-failed; err != nil {
		return result{}, err
	}
	return result{perSecond: float64(count) / time.Since(start).Seconds()}, nil
}
