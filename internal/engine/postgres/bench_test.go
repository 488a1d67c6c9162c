package postgres_test

import (
	"encoding/binary"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

// BenchmarkAppend commits batches of rows under ascending keys, and a row that
// every commit changes, as the committer does; also while a foreign
// transaction keeps dead rows alive.
func BenchmarkAppend(b *testing.B) {
	for _, bench := range []struct {
		name    string
		rows    int
		foreign bool
	}{{"1", 1, false}, {"1/foreign", 1, true}, {"1000", 1000, false}, {"1000/foreign", 1000, true}} {
		b.Run(bench.name, func(b *testing.B) {
			cluster := postgrestest.Shared(b)
			s := space(b, open(b, postgres.Options{URL: cluster.URL(), Schema: postgrestest.Schema()}), 1)
			if bench.foreign {
				foreign, err := pgx.Connect(ctx, cluster.URL())
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = foreign.Close(ctx) }()
				if _, err := foreign.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
					b.Fatal(err)
				}
			}
			value := make([]byte, 128)
			var position uint64
			for b.Loop() {
				_, err := s.Commit(ctx, func(c engine.Commit) error {
					if _, err := c.Get(ctx, []byte("place")); err != nil {
						return err
					}
					for range bench.rows {
						position++
						c.Set(binary.BigEndian.AppendUint64([]byte("m"), position), value)
					}
					c.Set([]byte("place"), binary.BigEndian.AppendUint64(nil, position))
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*bench.rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
