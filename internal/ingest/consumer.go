package ingest

import (
	"context"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// consumer is one declaration as this node runs it.
type consumer struct {
	database *store.Database
	store    *store.Store
	declared *store.Consumer
	log      *slog.Logger

	// cancel tells the members to finish their batches and return; ended is
	// closed when all have.
	cancel context.CancelFunc
	ended  chan struct{}

	mu sync.Mutex
	// The following are protected by mu.
	progress
	// trouble is the last failure that was logged, and when.
	trouble       string
	troubleLogged time.Time
}

// progress is what a consumer's report tells. It goes on when the consumer is
// declared again or resumed, but for halted and positions.
type progress struct {
	applied     int64
	quarantined int64
	// lapsed is how many messages were gone before they could be read: by
	// partition of a Kafka topic, under 0 of a topic of the store.
	lapsed      map[int32]int64
	halted      bool
	lastError   string
	lastErrorAt time.Time
	// positions are the next offsets of the partitions of a Kafka topic, and
	// ends the offsets that the broker was last seen to give next.
	positions, ends map[int32]int64
	rate            rate
}

// startConsumer starts the members of a declaration, once those of the one
// before it, if there was one, have returned.
func (sv *Supervisor) startConsumer(database *store.Database, declared *store.Consumer, before *consumer) *consumer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &consumer{
		database: database, store: sv.store, declared: declared, cancel: cancel, ended: make(chan struct{}),
		log: sv.log.With(
			slog.String("consumer", declared.Name), slog.String("kind", string(declared.Kind)),
			slog.String("database", database.Namespace+"/"+database.Name)),
	}
	c.progress = progress{lapsed: map[int32]int64{}, positions: map[int32]int64{}, ends: map[int32]int64{}}
	sv.done.Go(func() {
		defer close(c.ended)
		defer cancel()
		if before != nil {
			<-before.ended
			c.goOn(before)
		}
		c.log.Info("a declared consumer starts", slog.String("from", declared.From), slog.String("into", declared.Into),
			slog.Int("members", declared.Parallelism))
		var members sync.WaitGroup
		turn := make(chan struct{}, 1)
		for range declared.Parallelism {
			m := newMember(c, turn)
			members.Go(func() { m.run(ctx) })
		}
		members.Wait()
		c.log.Info("a declared consumer has stopped")
	})
	return c
}

// goOn takes over what the consumer's report told before it was declared again.
func (c *consumer) goOn(before *consumer) {
	if before.declared.ID != c.declared.ID {
		return
	}
	before.mu.Lock()
	p := before.progress
	p.lapsed = maps.Clone(p.lapsed)
	before.mu.Unlock()
	p.halted, p.positions, p.ends = false, map[int32]int64{}, map[int32]int64{}
	c.mu.Lock()
	c.progress = p
	c.mu.Unlock()
}

// stop tells the members to finish their batches and return.
func (c *consumer) stop() { c.cancel() }

// halt stops all members at a message that cannot be applied.
func (c *consumer) halt(at string, reason error) {
	c.mu.Lock()
	c.halted = true
	c.mu.Unlock()
	c.failed(at, reason)
	c.log.Error("a declared consumer halts at a message that cannot be applied; fix the cause and ALTER … CONSUMER … RESUME it",
		slog.String("at", at), slog.Any("error", reason))
	c.cancel()
}

// failed keeps the last error that the consumer met.
func (c *consumer) failed(at string, reason error) {
	text := reason.Error()
	if at != "" {
		text = at + ": " + text
	}
	now, err := c.store.Now(context.Background())
	if err != nil {
		now = time.Now().UTC()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastError, c.lastErrorAt = text, now
}

// sameTrouble is how long an error that stays is not logged again.
const sameTrouble = time.Minute

// troubled keeps an error that is no message's fault and is tried again, and
// logs it where it is news.
func (c *consumer) troubled(err error) {
	c.failed("", err)
	text, now := err.Error(), time.Now()
	c.mu.Lock()
	known := text == c.trouble && now.Sub(c.troubleLogged) < sameTrouble
	if !known {
		c.trouble, c.troubleLogged = text, now
	}
	c.mu.Unlock()
	if !known {
		c.log.Warn("a declared consumer failed and tries again", slog.Any("error", err))
	}
}

// count adds what a batch that is committed did.
func (c *consumer) count(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied += int64(b.applied)
	c.rate.add(time.Now(), int64(b.applied))
	c.quarantined += int64(b.quarantined)
}

// countLapsed adds messages that were gone before they could be read, and says
// so where people look.
func (c *consumer) countLapsed(partition int32, n int64, reason error) {
	c.mu.Lock()
	c.lapsed[partition] += n
	c.mu.Unlock()
	c.failed("", reason)
	c.log.Warn("messages were gone before a declared consumer could read them", slog.Int64("lapsed", n), slog.Any("error", reason))
}

func (c *consumer) reached(partition int32, next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.positions[partition] = next
}

// endsAt notes which offset the broker gives next in a partition.
func (c *consumer) endsAt(partition int32, next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends[partition] = next
}

func (c *consumer) left(partition int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.positions, partition)
	delete(c.ends, partition)
}

// lag is how many messages of a Kafka topic's partitions that are read here
// are not applied yet.
func (p *progress) lag() int64 {
	var lag int64
	for partition, end := range p.ends {
		if at, known := p.positions[partition]; known {
			lag += max(end-at, 0)
		}
	}
	return lag
}

// snapshot is a copy of what the report tells.
func (c *consumer) snapshot() progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.progress
	p.lapsed, p.positions, p.ends = maps.Clone(p.lapsed), maps.Clone(p.positions), maps.Clone(p.ends)
	return p
}

// report is what INFO tells under running.
func (c *consumer) report() value.Object {
	p := c.snapshot()
	report := value.Object{
		"running":       value.Bool(!p.halted),
		"applied":       value.Int(p.applied),
		"rate":          value.Float(p.rate.perSecond(time.Now())),
		"quarantined":   value.Int(p.quarantined),
		"halted":        value.Bool(p.halted),
		"last_error":    value.Null(),
		"last_error_at": value.Null(),
	}
	if p.lastError != "" {
		report["last_error"] = value.String(p.lastError)
		report["last_error_at"] = value.Datetime(p.lastErrorAt)
	}
	if c.declared.Kind == store.KafkaConsumer {
		report["positions"] = byPartition(p.positions)
		report["lag"] = value.Int(p.lag())
		if len(p.lapsed) > 0 {
			report["lapsed"] = byPartition(p.lapsed)
		}
	} else if len(p.lapsed) > 0 {
		report["lapsed"] = value.Int(p.lapsed[0])
	}
	return report
}

func byPartition(numbers map[int32]int64) value.Value {
	fields := value.Object{}
	for partition, n := range numbers {
		fields[strconv.Itoa(int(partition))] = value.Int(n)
	}
	return value.Fields(fields)
}
