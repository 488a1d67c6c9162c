package tidemark_test

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

func TestTwoStoresOnOnePostgresAreOne(t *testing.T) {
	url, schema := postgrestest.Shared(t).URL(), tidemark.WithSchema(postgrestest.Schema())
	var databases [2]*tidemark.Database
	for i := range databases {
		store, err := tidemark.OpenPostgres(t.Context(), url, schema)
		check(t, err)
		t.Cleanup(func() { check(t, store.Close()) })
		databases[i], err = store.Database(t.Context(), "shop", "orders")
		check(t, err)
	}
	_, err := databases[0].Exec(t.Context(), "DEFINE TOPIC events", nil)
	check(t, err)

	// What one defined the other uses, and a wait on one is ended by an append
	// on the other.
	waited := make(chan error, 1)
	go func() {
		page, err := databases[1].Topic("events").Read(t.Context(), tidemark.ReadOptions{Wait: time.Minute})
		if err == nil && (len(page.Messages) != 1 || page.Messages[0].Position() != 1) {
			t.Errorf("read %v", page.Messages)
		}
		waited <- err
	}()
	_, _, err = databases[0].Topic("events").Append(t.Context(), "first")
	check(t, err)
	check(t, <-waited)

	// Appends on both give one dense order.
	for i := range 20 {
		message, _, err := databases[i%2].Topic("events").Append(t.Context(), i)
		check(t, err)
		if message.Position() != uint64(i+2) {
			t.Fatalf("append %d is at position %d", i, message.Position())
		}
	}
}
