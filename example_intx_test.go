package tidemark_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

// openBilling opens a store on the PostgreSQL in which the application has a
// table of its own.
func openBilling(ctx context.Context) (db *tidemark.Database, pool *pgxpool.Pool, done func()) {
	url := postgrestest.Shared(new(testing.T)).URL()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "DROP TABLE IF EXISTS bills; CREATE TABLE bills (number int PRIMARY KEY, total int)"); err != nil {
		log.Fatal(err)
	}
	store, err := tidemark.OpenPostgres(ctx, url, tidemark.WithSchema(postgrestest.Schema()))
	if err != nil {
		log.Fatal(err)
	}
	db, err = store.Database(ctx, "shop", "billing")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(ctx, "DEFINE TOPIC events", nil); err != nil {
		log.Fatal(err)
	}
	return db, pool, func() {
		pool.Close()
		if err := store.Close(); err != nil {
			log.Fatal(err)
		}
	}
}

// A bill and the message that tells of it commit together.
func ExampleInTx() {
	ctx := context.Background()
	db, pool, done := openBilling(ctx)
	defer done()

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO bills VALUES (1001, 40)"); err != nil {
			return err
		}
		_, err := tidemark.InTx(ctx, db, tidemark.Pgx(tx), func(joined *tidemark.JoinedTx) error {
			return joined.Append(ctx, "events", map[string]any{"billed": 1001})
		})
		return err // nil commits: soon after, as InTx asks for.
	})
	if err != nil {
		log.Fatal(err)
	}

	page, err := db.Topic("events").Read(ctx, tidemark.ReadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range page.Messages {
		v, _ := m.Value()
		fmt.Println(m.Position(), v)
	}
	// Output: 1 { billed: 1001 }
}

// A consumer whose effect is a row of the application's: the row and the
// consumer's position commit together, so each message has one row, whatever
// fails.
func ExampleInTx_consumer() {
	ctx := context.Background()
	db, pool, done := openBilling(ctx)
	defer done()
	for _, total := range []int{40, 60} {
		if _, _, err := db.Topic("events").Append(ctx, total); err != nil {
			log.Fatal(err)
		}
	}

	handled := 0
	for handled < 2 {
		if err := tidemark.Await(ctx, db, "events", "billing", time.Minute); err != nil {
			log.Fatal(err)
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tidemark.InTx(ctx, db, tidemark.Pgx(tx), func(joined *tidemark.JoinedTx) error {
				page, err := joined.ReadFor(ctx, "events", "billing", 100)
				for _, m := range page.Messages {
					var total int
					if err := m.Scan(&total); err != nil {
						return err
					}
					if _, err := tx.Exec(ctx, "INSERT INTO bills VALUES ($1, $2)", m.Position(), total); err != nil {
						return err
					}
				}
				handled += len(page.Messages)
				return err
			})
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}

	var sum int
	if err := pool.QueryRow(ctx, "SELECT sum(total) FROM bills").Scan(&sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum)
	// Output: 100
}
