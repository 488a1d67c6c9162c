package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/ingest/kafkatest"
)

// ingestBenchmarks measure declared consumers on 1 KiB messages, until the last
// one is in the table. A topic's rate stands beside lone appends of the same
// messages with 512 outstanding; Kafka's beside the program that would be
// written instead: franz-go, upserts into PostgreSQL in batches by pgx, and the
// offsets committed after them.
func ingestBenchmarks() []benchmark {
	return []benchmark{
		{
			name: "ingest: a topic into a table, 1 KiB, beside lone appends, 512 outstanding", unit: "records/s",
			tidemark:  ingestTopic,
			reference: func(d time.Duration) (result, error) { return appendTidemark(1024, 512, d) },
		},
		{
			name: "ingest: a Kafka topic into a table, 1 KiB, beside a program of franz-go and pgx", unit: "records/s",
			tidemark: ingestKafka, reference: ingestByHand,
		},
	}
}

// ingestRecords is how many records are read into the table.
const ingestRecords = 100_000

// record is what lands: under 1 KiB of JSON a message.
type record struct {
	Order int    `json:"order"`
	Total int    `json:"total"`
	Note  string `json:"note"`
}

func recordOf(i int) record { return record{Order: i, Total: 2 * i, Note: strings.Repeat("n", 980)} }

const intoRows = ` INTO rows IDENTITY order MAP total AS total, note AS note ON FAILURE stop`

func ingestTopic(time.Duration) (result, error) {
	db, cleanup, err := openTopic("")
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	ctx := context.Background()
	if _, err := db.Exec(ctx, "DEFINE TABLE rows (total int, note string); DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s IN FLIGHT 1000", nil); err != nil {
		return result{}, err
	}
	for begin := 0; begin < ingestRecords; begin += 1000 {
		rows := make([]record, 1000)
		for i := range rows {
			rows[i] = recordOf(begin + i)
		}
		if _, err := db.Exec(ctx, "INSERT INTO events $rows", tidemark.Params{"rows": rows}); err != nil {
			return result{}, err
		}
	}
	return ingested(ctx, db, "DEFINE TOPIC CONSUMER c FROM events GROUP 'g'"+intoRows)
}

// ingested declares a consumer and waits until the last record is there.
func ingested(ctx context.Context, db *tidemark.Database, declaration string) (result, error) {
	start := time.Now()
	if _, err := db.Exec(ctx, declaration, nil); err != nil {
		return result{}, err
	}
	for {
		last, err := db.Query(ctx, fmt.Sprintf("SELECT total FROM rows:%d", ingestRecords-1), nil)
		if err != nil {
			return result{}, err
		}
		if last.Len() > 0 {
			return result{perSecond: ingestRecords / time.Since(start).Seconds()}, nil
		}
		if time.Since(start) > time.Minute {
			return result{}, fmt.Errorf("the last record does not arrive")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// fillBroker starts a broker with a topic of ingestRecords.
func fillBroker() (address string, cleanup func(), err error) {
	dir, err := os.MkdirTemp("", "tidemark-bench-")
	if err != nil {
		return "", nil, err
	}
	broker, err := kafkatest.Open(filepath.Clean(dir))
	if err != nil {
		return "", nil, err
	}
	cleanup = func() {
		broker.Kill()
		_ = os.RemoveAll(dir)
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(broker.Address()), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		return "", cleanup, err
	}
	defer producer.Close()
	ctx := context.Background()
	if _, err := kadm.NewClient(producer).CreateTopic(ctx, 1, 1, nil, "orders"); err != nil {
		return "", cleanup, err
	}
	failed := make(chan error, 1)
	for i := range ingestRecords {
		payload, err := json.Marshal(recordOf(i))
		if err != nil {
			return "", cleanup, err
		}
		producer.Produce(ctx, &kgo.Record{Value: payload}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := producer.Flush(ctx); err != nil {
		return "", cleanup, err
	}
	select {
	case err = <-failed:
	default:
	}
	return broker.Address(), cleanup, err
}

func ingestKafka(time.Duration) (result, error) {
	address, stop, err := fillBroker()
	if err != nil {
		return result{}, err
	}
	defer stop()
	db, cleanup, err := openTopic("")
	if err != nil {
		return result{}, err
	}
	defer cleanup()
	ctx := context.Background()
	if _, err := db.Exec(ctx, "DEFINE TABLE rows (total int, note string)", nil); err != nil {
		return result{}, err
	}
	return ingested(ctx, db, "DEFINE KAFKA CONSUMER c FROM '"+address+"' TOPIC 'orders' GROUP 'g' FORMAT json"+intoRows)
}

// ingestByHand is the plain program.
func ingestByHand(time.Duration) (result, error) {
	address, stop, err := fillBroker()
	if err != nil {
		return result{}, err
	}
	defer stop()
	cluster, remove, err := postgrestest.Open()
	if err != nil {
		return result{}, err
	}
	defer remove()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, cluster.URL())
	if err != nil {
		return result{}, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "CREATE TABLE rows (id bigint PRIMARY KEY, total bigint, note text)"); err != nil {
		return result{}, err
	}
	start := time.Now()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumerGroup("by-hand"), kgo.ConsumeTopics("orders"),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return result{}, err
	}
	defer consumer.Close()
	for count := 0; count < ingestRecords; {
		fetches := consumer.PollRecords(ctx, 1000)
		if err := fetches.Err(); err != nil {
			return result{}, err
		}
		upserts := &pgx.Batch{}
		for _, message := range fetches.Records() {
			var r record
			if err := json.Unmarshal(message.Value, &r); err != nil {
				return result{}, err
			}
			upserts.Queue("INSERT INTO rows VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET total = excluded.total, note = excluded.note", r.Order, r.Total, r.Note)
		}
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return tx.SendBatch(ctx, upserts).Close() }); err != nil {
			return result{}, err
		}
		if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
			return result{}, err
		}
		count += fetches.NumRecords()
	}
	return result{perSecond: ingestRecords / time.Since(start).Seconds()}, nil
}
