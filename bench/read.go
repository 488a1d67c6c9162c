package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark"
)

// readBenchmarks measure a topic that is read from beginning to end in pages,
// beside a raw Pebble scan over the same keys and bytes.
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

func readTidemark(page int, d time.Duration) (result, error) {
	_, db, cleanup, err := openTopic("")
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	topic, message := db.Topic("events"), eventOf(128)
	failures := make(chan error, 1)
	slots := make(chan struct{}, 4096)
	for range readMessages {
		slots <- struct{}{}
		err := topic.AppendAsync(context.Background(), message, func(_ tidemark.Message, _ bool, err error) {
			if err != nil {
				select {
				case failures <- err:
				default:
				}
			}
			<-slots
		})
		if err != nil {
			return result{}, err
		}
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	select {
	case err := <-failures:
		return result{}, err
	default:
	}

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
	db, cleanup, err := openRaw()
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	payload := make([]byte, 128+rawOverheadBytes)
	batch := db.NewBatch()
	for i := range uint64(readMessages) {
		if err := batch.Set(rawKey(i+1), payload, nil); err != nil {
			return result{}, err
		}
		if batch.Len() > maxRawBatchBytes || i == readMessages-1 {
			if err := batch.Commit(pebble.Sync); err != nil {
				return result{}, err
			}
			batch = db.NewBatch()
		}
	}
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
	var touched int
	for ok := it.First(); ok; ok = it.Next() {
		touched += len(it.Key()) + len(it.Value())
		count++
	}
	return count, it.Close()
}
