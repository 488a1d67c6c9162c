package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark"
)

// readBenchmarks measure a topic that is read from beginning to end in pages,
// beside a raw Pebble scan of the same topic: of the same folder, opened
// without Tidemark.
func readBenchmarks() []benchmark {
	var all []benchmark
	for _, page := range []int{100, 1000} {
		all = append(all, benchmark{
			name: fmt.Sprintf("read 128 B in pages of %d, beside a raw pebble scan", page), unit: "messages/s",
			tidemark:  func(d time.Duration) (result, error) { return readTidemark(page, d) },
			reference: readRaw,
		})
	}
	return all
}

// readMessages is how many messages are read.
const readMessages = 200_000

// fillFolder makes a store with a topic of readMessages and closes it, so that
// both sides read from files.
func fillFolder() (dir string, cleanup func(), err error) {
	dir, err = os.MkdirTemp("", "tidemark-bench-")
	if err != nil {
		return "", nil, err
	}
	cleanup = func() { _ = os.RemoveAll(dir) }
	store, err := tidemark.Open(dir)
	if err != nil {
		return dir, cleanup, err
	}
	ctx := context.Background()
	db, err := store.Database(ctx, "bench", "bench")
	if err == nil {
		_, err = db.Exec(ctx, "DEFINE TOPIC events", nil)
	}
	if err == nil {
		err = fill(ctx, db, readMessages)
	}
	if closing := store.Close(); err == nil {
		err = closing
	}
	return dir, cleanup, err
}

func readTidemark(page int, d time.Duration) (result, error) {
	dir, cleanup, err := fillFolder()
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	store, err := tidemark.Open(dir)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = store.Close() }()
	db, err := store.Database(context.Background(), "bench", "bench")
	if err != nil {
		return result{}, err
	}
	topic := db.Topic("events")
	var r result
	count, after, start := 0, uint64(0), time.Now()
	for time.Since(start) < d {
		began := time.Now()
		answer, err := topic.Read(context.Background(), tidemark.ReadOptions{After: after, Limit: page})
		if err != nil {
			return r, err
		}
		r.latencies.add(time.Since(began))
		count += len(answer.Messages)
		after += uint64(len(answer.Messages))
		if len(answer.Messages) < page {
			after = 0
		}
	}
	r.perSecond = float64(count) / time.Since(start).Seconds()
	return r, nil
}

func readRaw(d time.Duration) (result, error) {
	dir, cleanup, err := fillFolder()
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}})
	if err != nil {
		return result{}, err
	}
	defer func() { _ = db.Close() }()
	count, start := 0, time.Now()
	for time.Since(start) < d {
		scanned, err := scanRaw(db)
		if err != nil {
			return result{}, err
		}
		count += scanned
	}
	return result{perSecond: float64(count) / time.Since(start).Seconds()}, nil
}

func scanRaw(db *pebble.DB) (count int, err error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return 0, err
	}
	var touched byte
	for ok := it.First(); ok; ok = it.Next() {
		value := it.Value()
		touched ^= it.Key()[0] ^ value[len(value)-1]
		count++
	}
	return count, it.Close()
}
