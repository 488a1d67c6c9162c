package tidemark_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark"
)

// Paid is the event of README.md's program.
type Paid struct {
	Order string `json:"order"`
	Total int    `json:"total"`
}

func TestTheReadmesProgramKeepsItsPromise(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, stop := context.WithCancel(t.Context())

	store, err := tidemark.Open("./data")
	check(t, err)
	defer func() { check(t, store.Close()) }()
	db, err := store.Database(ctx, "shop", "orders")
	check(t, err)
	_, err = db.Exec(ctx, "DEFINE TOPIC IF NOT EXISTS events; DEFINE COLLECTION IF NOT EXISTS invoices", nil)
	check(t, err)

	// Publish. The answer comes when the message is on the disk.
	message, _, err := db.Topic("events").Append(ctx, Paid{Order: "o-17", Total: 40})
	check(t, err)
	fmt.Println("appended at position", message.Position())
	if message.Position() != 1 {
		t.Fatalf("appended at %d", message.Position())
	}

	// Read. The invoice and the position of billing are one commit.
	err = db.Topic("events").Consume(ctx, "billing", func(ctx context.Context, tx *tidemark.Tx, messages []tidemark.Message) error {
		defer stop()
		for _, message := range messages {
			var paid Paid
			if err := message.Scan(&paid); err != nil {
				return err
			}
			if err := tx.Put(ctx, "invoices", paid.Order, map[string]any{"total": paid.Total}); err != nil {
				return err
			}
		}
		return nil
	}, tidemark.ConsumeOptions{})
	check(t, err)

	rows, err := db.Query(t.Context(), "SELECT * FROM invoices", nil)
	check(t, err)
	if rows.Len() != 1 || rows.All()[0].ID.String() != "invoices:'o-17'" {
		t.Fatalf("invoices %v", rows)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
