package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// waitingFixture is a database in memory with the topic events and its group
// workers.
func waitingFixture(t *testing.T) *Database {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return waitingFixtureOn(t, e)
}

func waitingFixtureOn(t *testing.T, e engine.Engine) *Database {
	t.Helper()
	s, err := Open(t.Context(), e, Options{HousekeepingEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := errors.Join(s.DefineNamespace(t.Context(), "n", false), s.DefineDatabase(t.Context(), "n", "d", false)); err != nil {
		t.Fatal(err)
	}
	db, err := s.Database(t.Context(), "n", "d")
	if err != nil {
		t.Fatal(err)
	}
	for _, define := range []func(tx *Tx) error{
		func(tx *Tx) error {
			return tx.DefineTable(t.Context(), Table{Name: "events", Kind: Topic}, Refuse)
		},
		func(tx *Tx) error {
			return tx.DefineGroup(t.Context(), "events", "workers", topic.GroupDefinition{AckDeadline: time.Minute, InFlight: 100}, nil, Refuse)
		},
	} {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := define(tx); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// awaitParked waits until so many reads are parked.
func awaitParked(t *testing.T, db *Database, want int) {
	t.Helper()
	nodetest.Eventually(t, 10*time.Second, func() bool {
		db.committer.mu.Lock()
		defer db.committer.mu.Unlock()
		count := 0
		for _, reads := range db.committer.parked {
			count += len(reads)
		}
		return count == want
	}, "%d reads are parked", want)
}

func newestSequence(t *testing.T, db *Database) engine.Sequence {
	t.Helper()
	snapshot, err := db.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Release()
	return snapshot.Sequence()
}

func appendEvents(t *testing.T, db *Database, count int) {
	t.Helper()
	messages := make([]NewMessage, count)
	for i := range messages {
		messages[i] = NewMessage{Value: value.Int(int64(i))}
	}
	if _, err := db.Append(t.Context(), "events", messages...); err != nil {
		t.Fatal(err)
	}
}

func TestWhoWaitsIsHandedAMessageByTheCommitThatAppendsIt(t *testing.T) {
	for _, consumer := range []string{"workers", "a reader"} {
		t.Run(consumer, func(t *testing.T) {
			db := waitingFixture(t)
			read := make(chan Page, 1)
			go func() {
				page, err := db.Read(t.Context(), "events", ReadOptions{Consumer: consumer}, time.Minute)
				if err != nil {
					t.Error(err)
				}
				read <- page
			}()
			awaitParked(t, db, 1)
			before := newestSequence(t, db)
			appendEvents(t, db, 3)
			if page := <-read; len(page.Messages) != 3 || page.Messages[0].Position != 1 {
				t.Errorf("it is handed %v", page)
			}
			if after := newestSequence(t, db); after != before+1 {
				t.Errorf("append and hand-out took %d commits", after-before)
			}
			awaitParked(t, db, 0)
			again, err := db.Read(t.Context(), "events", ReadOptions{Consumer: consumer}, 0)
			if err != nil || len(again.Messages) != 0 {
				t.Errorf("what was handed out is read again: %v %v", again, err)
			}
		})
	}
}

func TestAReadIsParkedWhileTheCommitThatFoundNothingIsOnItsWay(t *testing.T) {
	db, disk := slowDisk(t)
	disk.hold()
	read := make(chan Page, 1)
	go func() {
		page, err := db.Read(t.Context(), "events", ReadOptions{Consumer: "workers"}, time.Minute)
		if err != nil {
			t.Error(err)
		}
		read <- page
	}()
	awaitParked(t, db, 1)
	disk.release()
	appendEvents(t, db, 1)
	if page := <-read; len(page.Messages) != 1 {
		t.Errorf("it is handed %v", page)
	}
}

func TestWaitingWorkersAreHandedEveryMessageOnce(t *testing.T) {
	const workers, messages = 8, 200
	db := waitingFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	seen := map[topic.Position]int{}
	all := make(chan struct{})
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for {
				page, err := db.Read(ctx, "events", ReadOptions{Consumer: "workers", Limit: 1}, time.Minute)
				if errors.Is(err, fault.Cancelled) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				settlement := Settlement{Kind: Acknowledge}
				for _, m := range page.Messages {
					settlement.At = append(settlement.At, topic.Settle{Position: m.Position, Delivery: m.Deliveries})
				}
				if _, err := db.Settle(t.Context(), "events", "workers", settlement); err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, m := range page.Messages {
					if seen[m.Position]++; len(seen) == messages {
						close(all)
					}
				}
				mu.Unlock()
			}
		})
	}
	for range messages / 2 {
		appendEvents(t, db, 2)
	}
	<-all
	stop()
	working.Wait()
	for position, count := range seen {
		if count != 1 {
			t.Errorf("message %d was handed out %d times", position, count)
		}
	}
	awaitParked(t, db, 0)
}

func TestWhoGivesUpWaitingTakesNothing(t *testing.T) {
	db := waitingFixture(t)
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := db.Read(ctx, "events", ReadOptions{Consumer: "workers"}, time.Minute)
		ended <- err
	}()
	awaitParked(t, db, 1)
	giveUp()
	if err := <-ended; !errors.Is(err, fault.Cancelled) {
		t.Errorf("it ends with %v", err)
	}
	awaitParked(t, db, 0)
	appendEvents(t, db, 1)
	page, err := db.Read(t.Context(), "events", ReadOptions{Consumer: "workers"}, 0)
	if err != nil || len(page.Messages) != 1 || page.Messages[0].Deliveries != 1 {
		t.Errorf("another is handed %v %v", page, err)
	}
}
