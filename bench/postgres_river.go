package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverJob is a job as large as an event.
type riverJob struct {
	V string `json:"v"`
}

func (riverJob) Kind() string { return "event" }

// riverWorker counts jobs.
type riverWorker struct {
	river.WorkerDefaults[riverJob]
	worked *atomic.Int64
}

func (w *riverWorker) Work(context.Context, *river.Job[riverJob]) error {
	w.worked.Add(1)
	return nil
}

// newRiver makes River's tables, empty, and a client that works with a thousand
// workers and fetches without a pause.
func newRiver(ctx context.Context) (client *river.Client[pgx.Tx], worked *atomic.Int64, err error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(onPostgres.pool), &rivermigrate.Config{Logger: quietLog})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		_, err = onPostgres.pool.Exec(ctx, "TRUNCATE river_job")
	}
	if err == nil {
		err = onPostgres.checkpoint(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	worked = new(atomic.Int64)
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{worked: worked})
	client, err = river.NewClient(riverpgxv5.New(onPostgres.pool), &river.Config{
		Logger: quietLog, Workers: workers,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}},
		FetchCooldown: time.Millisecond,
	})
	return client, worked, err
}

func riverJobs() []river.InsertManyParams {
	jobs := make([]river.InsertManyParams, 1000)
	for i := range jobs {
		jobs[i].Args = riverJob{strings.Repeat("x", 120)}
	}
	return jobs
}

// insertRiver inserts 1,000 jobs a call.
func insertRiver(d time.Duration) (result, error) {
	ctx := context.Background()
	client, _, err := newRiver(ctx)
	if err != nil {
		return result{}, err
	}
	jobs := riverJobs()
	r, err := oneByOne(d, func() error {
		_, err := client.InsertMany(ctx, jobs)
		return err
	})
	r.perSecond *= float64(len(jobs))
	return r, err
}

// riverBacklog is how many jobs are there to work.
const riverBacklog = 100_000

// workRiver works a backlog of jobs that do nothing.
func workRiver(d time.Duration) (result, error) {
	ctx := context.Background()
	client, worked, err := newRiver(ctx)
	if err != nil {
		return result{}, err
	}
	jobs := riverJobs()
	for range riverBacklog / len(jobs) {
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return result{}, err
		}
	}
	if err := client.Start(ctx); err != nil {
		return result{}, err
	}
	start := time.Now()
	for time.Since(start) < d && worked.Load() < riverBacklog {
		time.Sleep(time.Millisecond)
	}
	r := result{perSecond: float64(worked.Load()) / time.Since(start).Seconds()}
	return r, client.Stop(ctx)
}
