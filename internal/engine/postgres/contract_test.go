package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/enginetest"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

func TestContract(t *testing.T) {
	cluster := postgrestest.Shared(t)
	enginetest.Run(t, func(*testing.T) enginetest.Place {
		options := postgres.Options{URL: cluster.URL(), Schema: postgrestest.Schema()}
		return enginetest.Place{
			Open: func(t *testing.T) engine.Engine { return open(t, options) },
			Crash: func(t *testing.T) {
				cluster.Crash()
				cluster.Start(t)
			},
		}
	})
}

// open opens a store, which the test closes or not.
func open(t testing.TB, options postgres.Options) *postgres.Engine {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := postgres.Open(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // Most tests have closed it.
	return e
}
