package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// The times that a Kafka member gives a broker.
const (
	// reachTimeout is how long the first contact may take.
	reachTimeout = 10 * time.Second
	// offsetTimeout is how long committing offsets may take; until it is over
	// no further batch is applied, and no rebalance goes on.
	offsetTimeout = 5 * time.Second
	// leaveTimeout is how long leaving the group is waited for.
	leaveTimeout = time.Second
)

// kafkaSource reads a Kafka topic as one member of its consumer group.
//
// The store's commit comes first and the offset's after it, so a crash between
// the two costs a message that comes again, never one that is lost. A rebalance
// waits until what was polled is dealt with. A member that the broker has given
// up on may not know it; it is fenced by the store instead: whoever is given a
// partition writes its name into the partition's owner row, and each batch
// commits only while that name stands there.
type kafkaSource struct {
	*consumer
	client *kgo.Client

	// polled are the records that the store has not committed, taken how many
	// of them are in the batch that was begun.
	polled []*kgo.Record
	taken  int
	tx     *store.Tx

	mu sync.Mutex
	// The following are protected by mu, for the client's goroutines change
	// them when partitions come and go.
	owners map[int32]store.Owner
	// next are the offsets that are expected next, -1 for a partition that
	// starts at its oldest message.
	next map[int32]int64
	// uncommitted are the offsets that the store has passed and the broker has
	// not been told of.
	uncommitted map[int32]kgo.EpochOffset
}

// openKafka joins the consumer's group at the broker.
func openKafka(ctx context.Context, c *consumer) (source, error) {
	options, err := kafkaOptions(c.declared)
	if err != nil {
		return nil, err
	}
	k := &kafkaSource{
		consumer: c,
		owners:   map[int32]store.Owner{}, next: map[int32]int64{}, uncommitted: map[int32]kgo.EpochOffset{},
	}
	options = append(options,
		kgo.AdjustFetchOffsetsFn(k.assigned),
		kgo.OnPartitionsRevoked(k.left),
		kgo.OnPartitionsLost(k.left),
		kgo.WithHooks(kafkaErrors{c}),
	)
	if k.client, err = kgo.NewClient(options...); err != nil {
		return nil, fmt.Errorf("the Kafka client cannot be set up: %w", err)
	}
	reach, done := context.WithTimeout(ctx, reachTimeout)
	defer done()
	if err := k.client.Ping(reach); err != nil {
		k.client.CloseAllowingRebalance()
		return nil, fmt.Errorf("no broker of %v answers: %w", c.declared.Brokers, err)
	}
	return k, nil
}

// assigned makes this member the owner of the partitions that it was given,
// before anything of them is fetched.
func (k *kafkaSource) assigned(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	partitions := offsets[k.declared.From]
	var owner store.Owner
	_, _ = rand.Read(owner[:])
	err := session.Rerun(ctx, func() error {
		tx, err := k.database.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Cancel()
		for _, partition := range slices.Sorted(maps.Keys(partitions)) {
			if err := tx.Own(ctx, k.declared.ID, partition, owner); err != nil {
				return err
			}
		}
		_, err = tx.Commit(ctx)
		return err
	})
	if err != nil {
		k.failed("", err)
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for partition, offset := range partitions {
		k.owners[partition] = owner
		k.next[partition] = max(offset.EpochOffset().Offset, -1)
		if next := k.next[partition]; next >= 0 {
			k.reached(partition, next)
		}
	}
	return offsets, nil
}

// left forgets partitions that went to another member.
func (k *kafkaSource) left(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, partition := range topics[k.declared.From] {
		k.forget(partition)
	}
}

// forget is called with mu held.
func (k *kafkaSource) forget(partition int32) {
	delete(k.owners, partition)
	delete(k.next, partition)
	delete(k.uncommitted, partition)
	k.consumer.left(partition)
}

func (k *kafkaSource) wait(ctx context.Context) error {
	for len(k.polled) == 0 {
		if err := k.commitOffsets(ctx); err != nil {
			k.failed("committing offsets", err)
		}
		k.client.AllowRebalance()
		if err := k.poll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// poll asks for records, for so long that what the broker was not told of is
// told again soon.
func (k *kafkaSource) poll(ctx context.Context) error {
	polling, done := context.WithTimeout(ctx, offsetTimeout)
	defer done()
	fetches := k.client.PollRecords(polling, maxBatch)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var failed error
	fetches.EachError(func(_ string, partition int32, err error) {
		var lost *kgo.ErrDataLoss
		switch {
		case errors.Is(err, context.DeadlineExceeded):
		case errors.As(err, &lost):
			k.countLapsed(partition, max(lost.ConsumedTo-lost.ResetTo, 0),
				fmt.Errorf("partition %d: the broker lost messages after offset %d, and is read again from %d", partition, lost.ResetTo, lost.ResetTo))
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			k.failed("", fmt.Errorf("topic %s: %w", k.declared.From, err))
			pause(ctx, longestPause)
		default:
			failed = fmt.Errorf("partition %d: %w", partition, err)
		}
	})
	if failed != nil {
		return failed
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		k.endsAt(p.Partition, p.HighWatermark)
		k.take(p.Partition, p.LogStartOffset, p.Records)
	})
	return nil
}

// take takes over what was polled of a partition, and tells of offsets that
// were gone before they could be read.
func (k *kafkaSource) take(partition int32, oldest int64, records []*kgo.Record) {
	if len(records) == 0 {
		return
	}
	k.mu.Lock()
	next, owned := k.next[partition]
	if owned {
		k.next[partition] = records[len(records)-1].Offset + 1
	}
	k.mu.Unlock()
	if !owned {
		return
	}
	k.polled = append(k.polled, records...)
	first := records[0].Offset
	switch {
	case next < 0:
	case first < next:
		k.countLapsed(partition, 0, fmt.Errorf("partition %d: offset %d is out of range; it is read again from %d, the oldest there is", partition, next, first))
	case oldest > next:
		k.countLapsed(partition, oldest-next, fmt.Errorf("partition %d: offset %d is out of range; %d messages were gone before they were read, and the oldest there is is %d", partition, next, oldest-next, oldest))
	}
}

// begin drops what this member does not own any more.
func (k *kafkaSource) begin(ctx context.Context, tx *store.Tx, _ *store.Table) error {
	k.tx, k.taken = tx, 0
	k.mu.Lock()
	defer k.mu.Unlock()
	owned := map[int32]bool{}
	for _, record := range k.polled {
		if _, known := owned[record.Partition]; known {
			continue
		}
		owner, mine := k.owners[record.Partition]
		if mine {
			var err error
			if mine, err = tx.Owns(ctx, k.declared.ID, record.Partition, owner); err != nil {
				return err
			}
		}
		owned[record.Partition] = mine
		if !mine {
			k.log.Warn("a partition was given to another member; its batch is dropped", slog.Int("partition", int(record.Partition)))
			k.forget(record.Partition)
		}
	}
	k.polled = slices.DeleteFunc(k.polled, func(r *kgo.Record) bool { return !owned[r.Partition] })
	return nil
}

func (k *kafkaSource) read(_ context.Context, limit int) ([]message, error) {
	records := k.polled[k.taken:]
	records = records[:min(limit, len(records))]
	messages := make([]message, len(records))
	for i, record := range records {
		content, err := readPayload(k.declared, record.Value)
		messages[i] = message{
			content: content, unreadable: err, sizeBytes: len(record.Value),
			partition: record.Partition, offset: record.Offset, payload: record.Value,
		}
	}
	k.taken += len(records)
	return messages, nil
}

// superseded is never so: a partition is read in order by one member, and
// nothing of it is handed back.
func (k *kafkaSource) superseded(*message) (bool, error) { return false, nil }

// settle has nothing to do: the offset is committed after the store.
func (k *kafkaSource) settle(context.Context, []message) error { return nil }

func (k *kafkaSource) setAside(ctx context.Context, m *message, reason error) (forGood bool, err error) {
	now, err := k.store.Now(ctx)
	if err != nil {
		return false, err
	}
	return true, k.tx.Park(ctx, k.declared.ID, store.Parked{
		Partition: m.partition, Offset: m.offset, Reason: reason.Error(), Payload: m.payload, At: now,
	})
}

func (k *kafkaSource) finish(context.Context) error { return nil }

// committed tells the broker how far the store has come. Where it cannot be
// told now it is told later, and the worst is a message that comes again.
func (k *kafkaSource) committed(ctx context.Context) error {
	k.mu.Lock()
	for _, record := range k.polled[:k.taken] {
		k.uncommitted[record.Partition] = kgo.EpochOffset{Epoch: record.LeaderEpoch, Offset: record.Offset + 1}
	}
	for partition, offset := range k.uncommitted {
		k.reached(partition, offset.Offset)
	}
	k.mu.Unlock()
	k.polled = k.polled[k.taken:]
	k.taken = 0
	if err := k.commitOffsets(ctx); err != nil {
		k.failed("committing offsets", err)
	}
	return nil
}

func (k *kafkaSource) commitOffsets(ctx context.Context) error {
	k.mu.Lock()
	offsets := maps.Clone(k.uncommitted)
	k.mu.Unlock()
	if len(offsets) == 0 {
		return nil
	}
	ctx, done := context.WithTimeout(ctx, offsetTimeout)
	defer done()
	failed := k.tellBroker(ctx, offsets)
	k.mu.Lock()
	defer k.mu.Unlock()
	for partition, offset := range offsets {
		if failed == nil && k.uncommitted[partition] == offset {
			delete(k.uncommitted, partition)
		}
	}
	return failed
}

func (k *kafkaSource) describe(m *message) string {
	return fmt.Sprintf("offset %d of partition %d of Kafka topic %s", m.offset, m.partition, k.declared.From)
}

func (k *kafkaSource) close() {
	// Leaving tells the broker to give the partitions away at once. One that is
	// gone is not waited for: the client ends by itself when it has given up,
	// and uses nothing but its own connections until then.
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		k.client.CloseAllowingRebalance()
	}()
	timer := time.NewTimer(leaveTimeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for partition := range k.owners {
		k.forget(partition)
	}
}
