package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemarkdb/tidemark"
)

// heldBenchmarks measure what a foreign transaction that is held open does to a
// store: its snapshot keeps every dead row alive. Two servers do the same work
// for as long as one of them has such a transaction open (--hold; the longer,
// the more dead rows), and then are measured in turns.
func heldBenchmarks() []benchmark {
	var all []benchmark
	for _, work := range []struct {
		name string
		do   work
	}{
		{"appends, 4096 outstanding", heldAppends},
		{"a consumer's reads", heldReads},
		{"acknowledgements", heldAcknowledgements},
	} {
		all = append(all, benchmark{
			name: fmt.Sprintf("postgres: %s, a foreign transaction held open for %v, beside without", work.name, flags.Hold),
			unit: "messages/s",
			both: func(d time.Duration) (held, free result, err error) { return compareHeld(d, work.do) },
		})
	}
	return all
}

// work is done on a database for a while.
type work func(db *tidemark.Database, d time.Duration) (result, error)

const (
	// heldBacklog is how many messages there are to read.
	heldBacklog = 100_000
	// heldTurns is how often each server is measured.
	heldTurns = 7
)

// compareHeld works on two servers, of which one has a foreign transaction open.
func compareHeld(d time.Duration, do work) (held, free result, err error) {
	ctx := context.Background()
	other, stop, err := newPostgres(ctx)
	if err != nil {
		return held, free, err
	}
	defer stop()
	servers := []*postgresServer{onPostgres, other}
	databases := make([]*tidemark.Database, len(servers))
	for i, server := range servers {
		db, cleanup, err := server.openTopic("")
		defer cleanup()
		if err == nil {
			err = fill(ctx, db, heldBacklog)
		}
		if err == nil {
			_, err = db.Exec(ctx, "DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 1h IN FLIGHT 1000", nil)
		}
		if err != nil {
			return held, free, err
		}
		databases[i] = db
	}
	foreign, err := servers[0].pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return held, free, err
	}
	defer func() { _ = foreign.Rollback(ctx) }()
	// It has a snapshot and an id, the two things that hold up a vacuum.
	if _, err := foreign.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
		return held, free, err
	}
	var failures [2]error
	var working sync.WaitGroup
	for i, db := range databases {
		working.Go(func() { _, failures[i] = do(db, flags.Hold) })
	}
	working.Wait()
	if err := errors.Join(failures[:]...); err != nil {
		return held, free, err
	}
	var measured [2][]result
	for range heldTurns {
		for i, db := range databases {
			r, err := do(db, d/heldTurns)
			if err != nil {
				return held, free, err
			}
			measured[i] = append(measured[i], r)
		}
	}
	return median(measured[0]), median(measured[1]), nil
}

func heldAppends(db *tidemark.Database, d time.Duration) (result, error) {
	topic, message := db.Topic("events"), eventOf(128)
	return pipelined(4096, d, func(done func(error)) error {
		return topic.AppendAsync(context.Background(), message, func(_ tidemark.Message, _ bool, err error) { done(err) })
	})
}

// heldReads reads the backlog for a consumer again and again.
func heldReads(db *tidemark.Database, d time.Duration) (result, error) {
	ctx := context.Background()
	handled, at, start := 0, 0, time.Now()
	for time.Since(start) < d {
		rows, err := db.Query(ctx, "READ FROM events FOR CONSUMER 'reader' LIMIT 100", nil)
		if err != nil {
			return result{}, err
		}
		handled += rows.Len()
		if at += rows.Len(); rows.Len() < 100 || at >= heldBacklog {
			if _, err := db.Query(ctx, "READ FROM events FOR CONSUMER 'reader' AFTER 0 LIMIT 1", nil); err != nil {
				return result{}, err
			}
			at = 0
		}
	}
	return result{perSecond: float64(handled) / time.Since(start).Seconds()}, nil
}

// heldAcknowledgements takes 100 and acknowledges them, again and again.
func heldAcknowledgements(db *tidemark.Database, d time.Duration) (result, error) {
	ctx := context.Background()
	group := db.Topic("events").Group("g")
	settled, start := 0, time.Now()
	for time.Since(start) < d {
		page, err := group.Read(ctx, groupPage, 0)
		if err != nil {
			return result{}, err
		}
		if len(page.Messages) == 0 {
			if err := startOver(ctx, db); err != nil {
				return result{}, err
			}
			continue
		}
		count, err := group.Ack(ctx, page.Messages...)
		if err != nil {
			return result{}, err
		}
		settled += count
	}
	return result{perSecond: float64(settled) / time.Since(start).Seconds()}, nil
}
