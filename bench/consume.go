package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark"
)

// consumeBenchmarks measure transactions of one message read for a consumer
// and one record written, by readers of different names.
func consumeBenchmarks() []benchmark {
	var all []benchmark
	for _, readers := range []int{1, 64} {
		all = append(all, benchmark{
			name: fmt.Sprintf("read one for a consumer and write a record, %d readers", readers), unit: "transactions/s",
			tidemark: func(d time.Duration) (result, error) { return consumeTidemark(readers, d) },
		})
	}
	return all
}

func consumeTidemark(readers int, d time.Duration) (result, error) {
	db, cleanup, err := openTopic("")
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	ctx := context.Background()
	if err := fill(ctx, db, 20_000); err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var (
		r        result
		mu       sync.Mutex
		handled  int
		workers  sync.WaitGroup
		failures = make(chan error, readers)
	)
	start := time.Now()
	for i := range readers {
		workers.Go(func() {
			began := time.Now()
			err := db.Topic("events").Consume(ctx, fmt.Sprintf("reader-%d", i), func(ctx context.Context, tx *tidemark.Tx, messages []tidemark.Message) error {
				mu.Lock()
				handled++
				r.latencies.add(time.Since(began))
				mu.Unlock()
				began = time.Now()
				return tx.Put(ctx, "effects", fmt.Sprintf("%d-%d", i, messages[0].Position()), map[string]any{"done": true})
			}, tidemark.ConsumeOptions{Batch: 1})
			if err != nil {
				failures <- err
			}
		})
	}
	workers.Wait()
	close(failures)
	r.perSecond = float64(handled) / time.Since(start).Seconds()
	return r, <-failures
}

// fill appends messages to the topic.
func fill(ctx context.Context, db *tidemark.Database, count int) error {
	rows := make([]any, 1000)
	for i := range rows {
		rows[i] = eventOf(128)
	}
	for range count / len(rows) {
		if _, err := db.Exec(ctx, "INSERT INTO events $rows", tidemark.Params{"rows": rows}); err != nil {
			return err
		}
	}
	return nil
}
