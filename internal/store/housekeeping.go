package store

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// keepHouse does what Housekeep does until ctx ends, for the databases that are
// this node's to keep among all that have the store open.
func (s *Store) keepHouse(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.housekeep(ctx, s.nodes.keeps); err != nil && ctx.Err() == nil {
			s.log.Warn("housekeeping failed and will be tried again", slog.Any("error", err))
		}
	}
}

// Housekeep does once what runs by time: it lets go what RETAIN no longer
// keeps, removes the rows of messages that were let go, and forgets
// deduplication keys whose window is over.
func (s *Store) Housekeep(ctx context.Context) error {
	return s.housekeep(ctx, func(engine.SpaceID) bool { return true })
}

func (s *Store) housekeep(ctx context.Context, keeps func(engine.SpaceID) bool) error {
	databases, err := s.everyDatabase(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, database := range databases {
		if !keeps(database.id) {
			continue
		}
		if err := database.housekeep(ctx); err != nil && !errors.Is(err, fault.NotFound) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (db *Database) housekeep(ctx context.Context) error {
	snapshot, err := db.snapshot(ctx)
	if err != nil {
		return err
	}
	defer snapshot.Release()
	catalog, err := db.catalogOf(ctx, snapshot)
	if err != nil {
		return err
	}
	now, err := db.Now(ctx)
	if err != nil {
		return err
	}
	for _, table := range catalog.Tables() {
		if table.Kind != Topic {
			continue
		}
		if err := db.keepTopic(ctx, snapshot, table, now); err != nil {
			return err
		}
	}
	return nil
}

// keepTopic does what one topic needs. A topic without bounds costs one look
// for a row that is not there.
func (db *Database) keepTopic(ctx context.Context, r engine.Reader, table *Table, now time.Time) error {
	let, err := r.Get(ctx, objectKey(rowTopicState, table.ID))
	if err != nil {
		return err
	}
	if let.Sequence != 0 || table.Topic.Retain != 0 {
		t, err := loadTail(ctx, r, table.ID)
		if err != nil {
			return err
		}
		if err := db.letGoByAge(ctx, r, table, t, now); err != nil {
			return err
		}
		if err := db.sweep(ctx, r, table, t); err != nil {
			return err
		}
	}
	if table.Topic.Deduplicate == nil {
		return nil
	}
	return db.forgetKeys(ctx, r, table, now.Add(-table.Topic.Deduplicate.Window))
}

// letGoByAge moves a topic's first position past what RETAIN keeps no longer.
func (db *Database) letGoByAge(ctx context.Context, r engine.Reader, table *Table, t tail, now time.Time) error {
	retain := table.Topic.Retain
	if retain == 0 || t.messages() == 0 {
		return nil
	}
	source := snapshotSource{ctx, r}
	first, err := topic.FirstWithinAge(t.first, t.last, retain, now, appendedAt(source, table))
	if err != nil || first == t.first {
		return err
	}
	head, err := headAt(source, table, first-1)
	if err != nil {
		return err
	}
	return db.operate(ctx, func(s *sealing) error {
		// The topic may have been dropped, altered or trimmed meanwhile.
		current, ok := s.catalog.topicByID(table.Name, table.ID)
		if !ok || current.Topic.Retain != retain {
			return nil
		}
		newest, err := s.topic(current)
		if err != nil {
			return err
		}
		if first > newest.first {
			s.letGo(newest, first, head.totalBytes)
		}
		return nil
	})
}

// sweepStep bounds how many messages with named identities one commit sweeps.
const sweepStep = 10_000

// sweep removes the rows of messages that a topic let go, with the identities
// that named them.
func (db *Database) sweep(ctx context.Context, r engine.Reader, table *Table, t tail) error {
	for t.swept+1 < t.first {
		to := t.first - 1
		var identities [][]byte
		if t.named {
			to = min(to, t.swept+sweepStep)
			var err error
			if identities, err = namedIdentities(ctx, r, table, t.swept+1, to); err != nil {
				return err
			}
		}
		if err := db.removeSwept(ctx, table, to, identities); err != nil {
			return err
		}
		t.swept = to
	}
	return nil
}

// namedIdentities are the index rows of the messages of a range.
func namedIdentities(ctx context.Context, r engine.Reader, table *Table, from, to topic.Position) ([][]byte, error) {
	var keys [][]byte
	cursor := snapshotSource{ctx, r}.messages(table, from, to)
	for cursor.next() {
		head, _, err := decodeMessageRow(cursor.row())
		if err != nil {
			_ = cursor.close()
			return nil, corrupt(table.Name, cursor.position(), err)
		}
		if head.namedKey != nil {
			keys = append(keys, objectSuffixKey(rowIdentity, table.ID, head.namedKey))
		}
	}
	return keys, cursor.close()
}

func (db *Database) removeSwept(ctx context.Context, table *Table, to topic.Position, identities [][]byte) error {
	return db.operate(ctx, func(s *sealing) error {
		current, ok := s.catalog.topicByID(table.Name, table.ID)
		if !ok {
			return nil
		}
		newest, err := s.topic(current)
		if err != nil || newest.swept >= to {
			return err
		}
		for _, key := range identities {
			row, found, err := s.get(key)
			if err != nil {
				return err
			}
			// The identity may name a later message by now.
			if found && decodePosition(row) <= to {
				s.remove(key)
			}
		}
		s.commit.DeleteRange(positionRange(rowMessage, table.ID, newest.swept+1, to+1))
		s.wrote = true
		newest.swept, newest.stateChanged = to, true
		s.touch(newest)
		return nil
	})
}

// forgetStep bounds how many deduplication keys one commit forgets.
const forgetStep = 10_000

// forgetKeys removes deduplication keys that were published at a time or
// before it, since their window is over.
func (db *Database) forgetKeys(ctx context.Context, r engine.Reader, table *Table, over time.Time) error {
	prefix := objectKey(rowExpiry, table.ID)
	due := engine.Range{From: prefix, To: append(objectKey(rowExpiry, table.ID), encodeTime(over.Add(1))...)}
	for {
		var expired [][]byte
		it := r.Scan(ctx, due, false, forgetStep)
		for len(expired) < forgetStep && it.Next() {
			expired = append(expired, append([]byte(nil), it.Key()...))
		}
		if err := it.Close(); err != nil || len(expired) == 0 {
			return err
		}
		if err := db.forget(ctx, table, expired, len(prefix)); err != nil {
			return err
		}
		if len(expired) < forgetStep {
			return nil
		}
		due.From = slices.Concat(expired[len(expired)-1], []byte{0})
	}
}

func (db *Database) forget(ctx context.Context, table *Table, expired [][]byte, prefix int) error {
	return db.operate(ctx, func(s *sealing) error {
		current, ok := s.catalog.topicByID(table.Name, table.ID)
		if !ok {
			return nil
		}
		for _, expiry := range expired {
			at, key := expiry[prefix:prefix+8], objectSuffixKey(rowDeduplication, table.ID, expiry[prefix+8:])
			if window := current.Topic.Deduplicate; window != nil && window.Holds(decodeTime(at), s.now()) {
				continue
			}
			row, found, err := s.get(key)
			if err != nil {
				return err
			}
			// The key may have been published again since.
			if found && string(row) == string(at) {
				s.remove(key)
			}
			s.remove(expiry)
		}
		return nil
	})
}
