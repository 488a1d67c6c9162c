package postgres_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// readmeQueries are the SQL blocks of the README, for another schema.
func readmeQueries(t *testing.T, schema string) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		queries = append(queries, strings.ReplaceAll(block[1], "tidemark.", schema+"."))
	}
	return queries
}

// cells are the rows that psql printed, each with its cells.
func cells(printed string) [][]string {
	var rows [][]string
	for i, line := range strings.Split(printed, "\n") {
		if i < 2 || !strings.Contains(line, "|") {
			continue
		}
		row := strings.Split(line, "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	return rows
}

func TestTheReadmesQueriesShowTopicsReadably(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	s, err := store.Open(ctx, open(t, postgres.Options{URL: cluster.URL(), Schema: schema}), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.DefineNamespace(ctx, "shop", false))
	must(s.DefineDatabase(ctx, "shop", "orders", false))
	db, err := s.Database(ctx, "shop", "orders")
	must(err)
	transact := func(work func(*store.Tx) error) {
		t.Helper()
		tx, err := db.Begin(ctx)
		must(err)
		defer tx.Cancel()
		must(work(tx))
		_, err = tx.Commit(ctx)
		must(err)
	}
	transact(func(tx *store.Tx) error {
		placed := store.Table{Name: "placed", Kind: store.Topic}
		empty := store.Table{Name: "empty", Kind: store.Topic}
		other := store.Table{Name: "other", Kind: store.Collection}
		for _, table := range []store.Table{placed, empty, other} {
			if err := tx.DefineTable(ctx, table, store.Refuse); err != nil {
				return err
			}
		}
		return nil
	})
	transact(func(tx *store.Tx) error {
		return tx.DefineGroup(ctx, "placed", "mailer", topic.GroupDefinition{AckDeadline: time.Minute, InFlight: 300}, nil, store.Refuse)
	})
	var sealed store.Message
	traced, err := store.WithHeaders(ctx, store.Headers{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
	must(err)
	// With and without a key and headers, which the views pass over.
	for _, one := range []struct {
		ctx  context.Context
		text string
	}{{ctx, "first"}, {ctx, "second"}, {traced, "third"}} {
		messages, err := db.Append(one.ctx, "placed", store.NewMessage{Value: value.String(one.text)})
		must(err)
		sealed = messages[0]
	}
	_, err = db.Append(ctx, "placed", store.NewMessage{Key: value.Int(-7), Value: value.String("by number")})
	must(err)
	_, err = db.Append(traced, "placed", store.NewMessage{Key: value.String("evt-7"), Value: value.String("by text")})
	must(err)
	_, err = db.Read(ctx, "placed", store.ReadOptions{Consumer: "billing", Limit: 2}, 0)
	must(err)
	_, err = db.Read(ctx, "placed", store.ReadOptions{Consumer: "mailer", Limit: 3}, 0)
	must(err)

	queries := readmeQueries(t, schema)
	if len(queries) != 3 {
		t.Fatalf("the README has %d queries, not 3", len(queries))
	}
	lag := cells(cluster.Query(t, queries[0]))
	check(t, "lag", lag, [][]string{
		{"orders", "placed", "mailer", "group", "0", "5"},
		{"orders", "placed", "billing", "reader", "2", "3"},
	})
	newest := cells(cluster.Query(t, queries[1]))
	for _, row := range newest {
		appended, err := time.Parse("2006-01-02 15:04:05.999999-07", row[2])
		if err != nil || time.Since(appended).Abs() > time.Hour {
			t.Errorf("appended at %s: %v", row[2], err)
		}
		row[2] = ""
	}
	check(t, "newest messages", newest[:3], [][]string{
		{"5", "'evt-7'", "", "gby text"},
		{"4", "-7", "", "iby number"},
		{"3", strings.Trim(sealed.Key().String(), "u'"), "", "ethird"},
	})
	sizes := cells(cluster.Query(t, queries[2]))
	if len(sizes) != 2 {
		t.Fatalf("sizes: %q", sizes)
	}
	check(t, "size of placed", [][]string{sizes[0][:6]}, [][]string{{"orders", "placed", "1", "5", "5", "37 bytes"}} /* texts of 5 to 9 bytes, each with a head of one */)
	check(t, "size of empty", [][]string{sizes[1]}, [][]string{{"orders", "empty", "1", "0", "0", "0 bytes", ""}})
}

func check(t *testing.T, what string, got, want [][]string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || strings.Join(got[i], "|") != strings.Join(want[i], "|") {
			t.Fatalf("%s: got\n%q, want\n%q", what, got, want)
		}
	}
}
