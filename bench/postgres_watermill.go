package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// Watermill's SQL publisher and subscriber over pgx, with payloads as bytes, as
// the fastest of its schemas has them, and without waits of its own: it polls
// every millisecond where there is nothing.

var watermillTopics atomic.Int64

// newWatermillTopic returns a topic of its own for one measurement.
func newWatermillTopic(ctx context.Context) (topic string, err error) {
	return fmt.Sprintf("bench_%d", watermillTopics.Add(1)), onPostgres.checkpoint(ctx)
}

func watermillSchema() watermillsql.SchemaAdapter {
	return watermillsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}
}

// watermillPayload is as long as an event's encoded value.
var watermillPayload = []byte(strings.Repeat("x", 128))

func newWatermillMessage() *message.Message {
	return message.NewMessage(watermill.NewUUID(), watermillPayload)
}

func newWatermillPublisher(db watermillsql.ContextExecutor, initialize bool) (*watermillsql.Publisher, error) {
	return watermillsql.NewPublisher(db,
		watermillsql.PublisherConfig{SchemaAdapter: watermillSchema(), AutoInitializeSchema: initialize}, watermill.NopLogger{})
}

// publishWatermill publishes one message a call, by as many goroutines as are
// to be outstanding.
func publishWatermill(outstanding int, d time.Duration) (result, error) {
	topic, err := newWatermillTopic(context.Background())
	if err != nil {
		return result{}, err
	}
	publisher, err := newWatermillPublisher(watermillsql.BeginnerFromPgx(onPostgres.pool), true)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = publisher.Close() }()
	if err := publisher.Publish(topic, newWatermillMessage()); err != nil {
		return result{}, err
	}
	return concurrently(outstanding, d, func(int) error { return publisher.Publish(topic, newWatermillMessage()) })
}

// consumeWatermill has a subscriber read a backlog and acknowledge each message
// at once.
func consumeWatermill(d time.Duration) (result, error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	topic, err := newWatermillTopic(ctx)
	if err != nil {
		return result{}, err
	}
	publisher, err := newWatermillPublisher(watermillsql.BeginnerFromPgx(onPostgres.pool), true)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = publisher.Close() }()
	batch := make([]*message.Message, 1000)
	for range backlog / 4 / len(batch) {
		for i := range batch {
			batch[i] = newWatermillMessage()
		}
		if err := publisher.Publish(topic, batch...); err != nil {
			return result{}, err
		}
	}
	subscriber, err := watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(onPostgres.pool), watermillsql.SubscriberConfig{
		ConsumerGroup: "reader", InitializeSchema: true, PollInterval: time.Millisecond,
		SchemaAdapter: watermillSchema(), OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NopLogger{})
	if err != nil {
		return result{}, err
	}
	defer func() { _ = subscriber.Close() }()
	start := time.Now()
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		return result{}, err
	}
	count := 0
	for ; time.Since(start) < d && count < backlog/4; count++ {
		m := <-messages
		m.Ack()
	}
	return result{perSecond: float64(count) / time.Since(start).Seconds()}, nil
}

// joinWatermill publishes in the application's transaction.
func joinWatermill(d time.Duration) (result, error) {
	topic, err := newWatermillTopic(context.Background())
	if err != nil {
		return result{}, err
	}
	publisher, err := newWatermillPublisher(watermillsql.BeginnerFromPgx(onPostgres.pool), true)
	if err == nil {
		err = publisher.Publish(topic, newWatermillMessage())
	}
	if err != nil {
		return result{}, err
	}
	return withApplication(d, func(_ context.Context, tx pgx.Tx) error {
		publisher, err := newWatermillPublisher(watermillsql.TxFromPgx(tx), false)
		if err != nil {
			return err
		}
		return publisher.Publish(topic, newWatermillMessage())
	})
}
