package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// A transaction whose connection is cut is told so, wherever it was in its
// reads: never that what it could not read is damaged or not there.
func TestATransactionThatIsCutOffInItsReadsIsUnavailable(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	_, direct := openStore(t, postgres.Options{URL: cluster.URL(), Schema: schema})
	defineTopics(t, direct, "events")
	define(t, direct, func(ctx context.Context, tx *store.Tx) error {
		return tx.DefineGroup(ctx, "events", "mailer", topic.GroupDefinition{AckDeadline: 1, InFlight: 10}, nil, store.Refuse)
	})
	for range 5 {
		appendOne(t, direct, "events")
	}
	p := newProxy(t, cluster.Port())
	_, db := openStore(t, postgres.Options{URL: p.url(), Schema: schema, DisableNotify: true, Patience: time.Second})
	use := func(tx *store.Tx) error {
		table, err := tx.Catalog().TopicTable("events")
		if err != nil {
			return err
		}
		if _, err := tx.Read(t.Context(), table, store.ReadOptions{Consumer: "mailer", Limit: 3}); err != nil {
			return err
		}
		if _, err := tx.Read(t.Context(), table, store.ReadOptions{Consumer: "billing", Limit: 3}); err != nil {
			return err
		}
		if _, err := tx.ReportTopic(t.Context(), table); err != nil {
			return err
		}
		rows := tx.Scan(t.Context(), table, store.ScanOptions{})
		for rows.Next() {
		}
		return rows.Close()
	}
	cuts := 0
	for after := int64(1); ; after++ {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.cutAfter(after)
		err = use(tx)
		tx.Cancel()
		p.heal()
		if err == nil {
			break
		}
		if cuts++; !errors.Is(err, fault.Unavailable) {
			t.Errorf("cut after %d statements: got %v, want Unavailable", after, err)
		}
	}
	if cuts < 8 {
		t.Errorf("the transaction was cut at %d places only", cuts)
	}
}
