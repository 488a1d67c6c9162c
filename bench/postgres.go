package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

// onPostgres is the PostgreSQL of the rows that --postgres measures: one for the
// run, with fsync on, so that both sides of a row share it. It is nil while
// rows of the embedded engine are measured.
var onPostgres *postgresServer

type postgresServer struct {
	url string
	// pool is the references' and is as large as a store's.
	pool *pgxpool.Pool
}

// postgresConns is how many connections a store opens at most by default, and
// what its references are given.
const postgresConns = 32

// startPostgres starts the server of the run.
func startPostgres(ctx context.Context) (stop func(), err error) {
	onPostgres, stop, err = newPostgres(ctx)
	return stop, err
}

// newPostgres starts a server, and writes enough to it that its log has files to
// use again: a new server makes each, which would count against who comes first.
func newPostgres(ctx context.Context) (s *postgresServer, stop func(), err error) {
	cluster, remove, err := postgrestest.Open()
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", cluster.URL(), postgresConns))
	if err != nil {
		remove()
		return nil, nil, err
	}
	s = &postgresServer{url: cluster.URL(), pool: pool}
	stop = func() {
		pool.Close()
		remove()
	}
	_, err = pool.Exec(ctx, `
		CREATE TABLE warm AS SELECT n, repeat('x', 1000) FROM generate_series(1, $1) AS n`, warmRows)
	if err == nil {
		_, err = pool.Exec(ctx, "DROP TABLE warm")
	}
	if err == nil {
		err = s.checkpoint(ctx)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

// warmRows are about 400 MiB of PostgreSQL's log.
const warmRows = 400_000

// checkpoint writes out what the measurement before left dirty, so that the
// next one does not pay for it.
func (s *postgresServer) checkpoint(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "CHECKPOINT")
	return err
}

// database makes a database, for a node, which takes all of one.
func (s *postgresServer) database(ctx context.Context) (address string, drop func(), err error) {
	if err := s.checkpoint(ctx); err != nil {
		return "", nil, err
	}
	name := "node_" + postgrestest.Schema()
	if _, err := s.pool.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	drop = func() { _, _ = s.pool.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)") }
	parsed, err := url.Parse(s.url)
	if err != nil {
		return "", drop, err
	}
	parsed.Path = name
	return parsed.String(), drop, nil
}

// open opens one more store on a schema.
func (s *postgresServer) open(ctx context.Context, schema string) (*tidemark.Store, *tidemark.Database, error) {
	store, err := tidemark.OpenPostgres(ctx, s.url, tidemark.WithSchema(schema), tidemark.WithLog(quietLog))
	if err != nil {
		return nil, nil, err
	}
	db, err := store.Database(ctx, "bench", "bench")
	return store, db, err
}

// openTopic is what openTopic is for the embedded engine.
func (s *postgresServer) openTopic(clauses string) (db *tidemark.Database, cleanup func(), err error) {
	return s.openTopicIn(postgrestest.Schema(), clauses)
}

func (s *postgresServer) openTopicIn(schema, clauses string) (db *tidemark.Database, cleanup func(), err error) {
	ctx := context.Background()
	if err := s.checkpoint(ctx); err != nil {
		return nil, func() {}, err
	}
	store, db, err := s.open(ctx, schema)
	if err == nil {
		_, err = db.Exec(ctx, "DEFINE TOPIC events "+clauses+"; DEFINE COLLECTION effects;", nil)
	}
	return db, func() {
		if store != nil {
			_ = store.Close()
		}
		_, _ = s.pool.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
	}, err
}

// postgresBenchmarks are the rows of the embedded engine on a PostgreSQL,
// beside what else a program could use there.
func postgresBenchmarks() []benchmark {
	ours := func(outstanding int) func(time.Duration) (result, error) {
		return func(d time.Duration) (result, error) { return appendTidemark(128, outstanding, d) }
	}
	all := []benchmark{
		{name: "postgres: append 128 B, 1 outstanding, beside Watermill", unit: "messages/s",
			tidemark: ours(1), reference: func(d time.Duration) (result, error) { return publishWatermill(1, d) }},
		{name: "postgres: append 128 B, 4096 outstanding, beside Watermill", unit: "messages/s",
			tidemark: ours(4096), reference: func(d time.Duration) (result, error) { return publishWatermill(4096, d) }},
		{name: "postgres: append 128 B, 4096 outstanding, beside a bare loop of 1,000 rows", unit: "messages/s",
			tidemark: ours(4096), reference: appendBare},
		{name: "postgres: append 128 B, 4096 outstanding, three nodes beside one", unit: "messages/s",
			tidemark:  func(d time.Duration) (result, error) { return appendNodes(3, d) },
			reference: func(d time.Duration) (result, error) { return appendNodes(1, d) }},
		{name: "postgres: append 128 B, 4096 outstanding, over one connection to a node beside embedded", unit: "messages/s",
			tidemark: appendPostgresNode, reference: ours(4096)},
		{name: "postgres: INSERT of 1,000 messages, beside River's InsertMany", unit: "messages/s",
			tidemark: insertTidemark, reference: insertRiver},
		{name: "postgres: consume in batches of 100, beside Watermill's subscriber", unit: "messages/s",
			tidemark: consumePostgres, reference: consumeWatermill},
		{name: "postgres: InTx, a row of the application's and a message, beside Watermill in the transaction", unit: "transactions/s",
			tidemark: joinTidemark, reference: joinWatermill},
	}
	all = append(all, consumeBenchmarks()...)
	for _, workers := range []int{1, 16} {
		all = append(all, benchmark{
			name: fmt.Sprintf("postgres: group takes 100 and acknowledges 100, %d workers, beside River's work loop", workers), unit: "messages/s",
			tidemark:  func(d time.Duration) (result, error) { return groupTidemark(workers, d) },
			reference: workRiver,
		})
	}
	all = append(all, benchmark{
		name: "postgres: group with 10,000 in flight, acknowledged in random order, beside 100 in flight", unit: "messages/s",
		tidemark:  func(d time.Duration) (result, error) { return groupInFlight(10_000, d) },
		reference: func(d time.Duration) (result, error) { return groupInFlight(100, d) },
	})
	all = append(all, modulesOnPostgresBenchmarks()...)
	return append(all, heldBenchmarks()...)
}

// appendPostgresNode appends over one connection to a node on the PostgreSQL of
// the run.
func appendPostgresNode(d time.Duration) (result, error) {
	address, drop, err := onPostgres.database(context.Background())
	if err != nil {
		return result{}, err
	}
	defer drop()
	node, stop, err := startNodeOn("--postgres", address)
	if err != nil {
		return result{}, err
	}
	defer stop()
	return appendOver(node, 1, 4096, d)
}

// bareBatch is how many rows the bare loop inserts at a time.
const bareBatch = 1000

// appendBare inserts batches of rows under the lock of a tail's row, by one
// loop: the least that gives dense positions.
func appendBare(d time.Duration) (result, error) {
	ctx := context.Background()
	if err := onPostgres.checkpoint(ctx); err != nil {
		return result{}, err
	}
	_, err := onPostgres.pool.Exec(ctx, `
		DROP TABLE IF EXISTS bare, bare_tail;
		CREATE TABLE bare (topic int, position bigint, payload bytea, PRIMARY KEY (topic, position));
		CREATE TABLE bare_tail (topic int PRIMARY KEY, last bigint NOT NULL);
		INSERT INTO bare_tail VALUES (1, 0)`)
	if err != nil {
		return result{}, err
	}
	payloads, positions := make([][]byte, bareBatch), make([]int64, bareBatch)
	for i := range payloads {
		payloads[i] = make([]byte, 128+rawOverheadBytes)
	}
	r, err := oneByOne(d, func() error {
		return pgx.BeginFunc(ctx, onPostgres.pool, func(tx pgx.Tx) error {
			var last int64
			if err := tx.QueryRow(ctx, "SELECT last FROM bare_tail WHERE topic = 1 FOR UPDATE").Scan(&last); err != nil {
				return err
			}
			for i := range positions {
				positions[i] = last + int64(i) + 1
			}
			_, err := tx.Exec(ctx, "INSERT INTO bare SELECT 1, p, v FROM unnest($1::bigint[], $2::bytea[]) AS r (p, v)", positions, payloads)
			if err == nil {
				_, err = tx.Exec(ctx, "UPDATE bare_tail SET last = $1 WHERE topic = 1", last+bareBatch)
			}
			return err
		})
	})
	r.perSecond *= bareBatch
	return r, err
}

// appendNodes appends from several stores at once, to one topic, with 4,096
// outstanding in all.
func appendNodes(nodes int, d time.Duration) (result, error) {
	schema := postgrestest.Schema()
	first, cleanup, err := onPostgres.openTopicIn(schema, "")
	defer cleanup()
	if err != nil {
		return result{}, err
	}
	databases := []*tidemark.Database{first}
	for range nodes - 1 {
		store, db, err := onPostgres.open(context.Background(), schema)
		if err != nil {
			return result{}, err
		}
		defer func() { _ = store.Close() }()
		databases = append(databases, db)
	}
	var (
		running  sync.WaitGroup
		total    atomic.Int64
		failures = make(chan error, nodes)
	)
	message := eventOf(128)
	for _, db := range databases {
		running.Go(func() {
			topic := db.Topic("events")
			r, err := pipelined(4096/nodes, d, func(done func(error)) error {
				return topic.AppendAsync(context.Background(), message, func(_ tidemark.Message, _ bool, err error) { done(err) })
			})
			total.Add(int64(r.perSecond))
			if err != nil {
				failures <- err
			}
		})
	}
	running.Wait()
	close(failures)
	return result{perSecond: float64(total.Load())}, <-failures
}

// insertTidemark appends 1,000 messages a statement.
func insertTidemark(d time.Duration) (result, error) {
	db, cleanup, err := onPostgres.openTopic("")
	defer cleanup()
	if err != nil {
		return result{}, err
	}
	r, err := oneByOne(d, func() error { return fill(context.Background(), db, 1000) })
	r.perSecond *= 1000
	return r, err
}

// consumePostgres reads a backlog for a consumer, in batches of 100, as
// Watermill's subscriber does by default.
func consumePostgres(d time.Duration) (result, error) {
	db, cleanup, err := onPostgres.openTopic("")
	defer cleanup()
	if err != nil {
		return result{}, err
	}
	ctx := context.Background()
	if err := fill(ctx, db, backlog); err != nil {
		return result{}, err
	}
	return consumeBacklog(ctx, db, "reader", d)
}

func consumeBacklog(ctx context.Context, db *tidemark.Database, name string, d time.Duration) (result, error) {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	handled, start := 0, time.Now()
	err := db.Topic("events").Consume(ctx, name, func(_ context.Context, _ *tidemark.Tx, messages []tidemark.Message) error {
		handled += len(messages)
		if handled == backlog {
			stop()
		}
		return nil
	}, tidemark.ConsumeOptions{Batch: 100})
	return result{perSecond: float64(handled) / time.Since(start).Seconds()}, err
}

// joinTidemark writes a row of the application's own and a message in one
// transaction.
func joinTidemark(d time.Duration) (result, error) {
	db, cleanup, err := onPostgres.openTopic("")
	defer cleanup()
	if err != nil {
		return result{}, err
	}
	message := eventOf(128)
	return withApplication(d, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tidemark.InTx(ctx, db, tidemark.Pgx(tx), func(joined *tidemark.JoinedTx) error {
			return joined.Append(ctx, "events", message)
		})
		return err
	})
}

// withApplication runs transactions, by eight workers, that insert a row of the
// application's own and then do what is given.
func withApplication(d time.Duration, then func(ctx context.Context, tx pgx.Tx) error) (result, error) {
	const workers = 8
	ctx := context.Background()
	if _, err := onPostgres.pool.Exec(ctx, "DROP TABLE IF EXISTS application; CREATE TABLE application (id bigserial PRIMARY KEY, body bytea)"); err != nil {
		return result{}, err
	}
	return concurrently(workers, d, func(int) error {
		return pgx.BeginFunc(ctx, onPostgres.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO application (body) VALUES ($1)", make([]byte, 128)); err != nil {
				return err
			}
			return then(ctx, tx)
		})
	})
}

// concurrently runs an operation again and again, by a number of goroutines.
func concurrently(workers int, d time.Duration, operation func(worker int) error) (result, error) {
	var (
		r       result
		mu      sync.Mutex
		count   int
		failure error
		running sync.WaitGroup
	)
	start := time.Now()
	for worker := range workers {
		running.Go(func() {
			for time.Since(start) < d {
				began := time.Now()
				err := operation(worker)
				mu.Lock()
				count++
				r.latencies.add(time.Since(began))
				failure = errors.Join(failure, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	running.Wait()
	r.perSecond = float64(count) / time.Since(start).Seconds()
	return r, failure
}
