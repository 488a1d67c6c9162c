package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemarkdb/tidemark/bench/load"
)

// eventBytes is how large a reference's event is, stamp included.
const eventBytes = 128

// stamped is an event of a reference.
func stamped(stamp int64) []byte {
	payload := make([]byte, eventBytes)
	binary.BigEndian.PutUint64(payload, uint64(stamp))
	return payload
}

func stampOf(payload []byte) int64 { return int64(binary.BigEndian.Uint64(payload)) }

// carryJetStream publishes to a stream on disk that syncs every message, over
// TCP, and consumes it with one durable consumer a subscription that acknowledges
// each message. In order, one message is out at a time.
func carryJetStream(l moduleLoad) (report load.Report, err error) {
	url, stop, err := openJetStreamTCP(true)
	if err != nil {
		return report, err
	}
	defer stop()
	js, closing, err := dialJetStream(url, 10*modulePublishers)
	if err != nil {
		return report, err
	}
	defer closing()
	ctx := context.Background()
	var recorder load.Recorder
	for n := range l.subscriptions {
		config := jetstream.ConsumerConfig{Durable: fmt.Sprintf("taking%d", n), AckPolicy: jetstream.AckExplicitPolicy}
		if l.inOrder {
			config.MaxAckPending = 1
		}
		consumer, err := js.CreateConsumer(ctx, "events", config)
		if err != nil {
			return report, err
		}
		consuming, err := consumer.Consume(func(m jetstream.Msg) {
			recorder.Handled(stampOf(m.Data()))
			_ = m.Ack()
		})
		if err != nil {
			return report, err
		}
		defer consuming.Stop()
	}
	return carried(l, &recorder, func(ctx context.Context, stamp int64) error {
		future, err := js.PublishAsync("events", stamped(stamp), jetstream.WithStallWait(time.Minute))
		if err != nil {
			return err
		}
		select {
		case <-future.Ok():
			return nil
		case err := <-future.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// carryChannels publishes through Watermill's Go channels, each publisher waiting
// until its event was handled: without, nothing would bound what waits in memory.
func carryChannels(l moduleLoad) (load.Report, error) {
	channels := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	defer func() { _ = channels.Close() }()
	return carryWatermill(l, "events", channels, func(int) (message.Subscriber, error) { return channels, nil })
}

// carryWatermillSQL publishes through Watermill on the PostgreSQL of the run.
func carryWatermillSQL(l moduleLoad) (report load.Report, err error) {
	topic, err := newWatermillTopic(context.Background())
	if err != nil {
		return report, err
	}
	publisher, err := newWatermillPublisher(watermillsql.BeginnerFromPgx(onPostgres.pool), true)
	if err != nil {
		return report, err
	}
	defer func() { _ = publisher.Close() }()
	return carryWatermill(l, topic, publisher, func(n int) (message.Subscriber, error) {
		return watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(onPostgres.pool), watermillsql.SubscriberConfig{
			ConsumerGroup: fmt.Sprintf("taking%d", n), InitializeSchema: true, PollInterval: time.Millisecond,
			SchemaAdapter: watermillSchema(), OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		}, watermill.NopLogger{})
	})
}

// carryWatermill runs a router with a handler a subscription.
func carryWatermill(l moduleLoad, topic string, publisher message.Publisher, subscriber func(n int) (message.Subscriber, error)) (report load.Report, err error) {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: stallTime}, watermill.NopLogger{})
	if err != nil {
		return report, err
	}
	var recorder load.Recorder
	for n := range l.subscriptions {
		from, err := subscriber(n)
		if err != nil {
			return report, err
		}
		router.AddConsumerHandler(fmt.Sprintf("taking%d", n), topic, from, func(m *message.Message) error {
			recorder.Handled(stampOf(m.Payload))
			return nil
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	defer func() { _ = router.Close() }()
	select {
	case <-router.Running():
	case err := <-ended:
		return report, err
	case <-time.After(stallTime):
		return report, fmt.Errorf("the router of Watermill does not start within %s", stallTime)
	}
	return carried(l, &recorder, func(_ context.Context, stamp int64) error {
		return publisher.Publish(topic, message.NewMessage(watermill.NewUUID(), stamped(stamp)))
	})
}
