package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

// newHost begins a transaction on a connection of its own.
func newHost(t *testing.T) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(ctx, postgrestest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) })
	host, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// setInHost sets a key in a host's transaction.
func setInHost(t *testing.T, e *postgres.Engine, s engine.Space, host pgx.Tx, key, value string) {
	t.Helper()
	join, err := e.Join(ctx, postgres.PgxHost(host))
	if err == nil {
		err = join.Begin(ctx)
	}
	if err == nil {
		err = join.Commit(ctx, s, func(c engine.Commit) error {
			c.Set([]byte(key), []byte(value))
			return nil
		})
	}
	if err == nil {
		err = join.Done(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func openForJoin(t *testing.T, options postgres.Options) (*postgres.Engine, engine.Space) {
	t.Helper()
	options.URL, options.Schema = postgrestest.Shared(t).URL(), postgrestest.Schema()
	e := open(t, options)
	s := space(t, e, 1)
	set(t, s, "first", "1")
	return e, s
}

func TestAHostThatSaysNothingHoldsTheRowNoLonger(t *testing.T) {
	e, s := openForJoin(t, postgres.Options{HoldTimeout: 300 * time.Millisecond})
	host := newHost(t)
	setInHost(t, e, s, host, "joined", "1")
	set(t, s, "after", "1") // It waits for PostgreSQL to end the host.
	if err := host.Commit(ctx); err == nil {
		t.Fatal("the host committed")
	}
	if get(t, s, "joined") != "" || get(t, s, "after") != "1" {
		t.Fatal("the host's commit is there, or that of the one that waited is not")
	}
}

func TestWhoWaitsForAHostIsToldOfTheRule(t *testing.T) {
	e, s := openForJoin(t, postgres.Options{HoldTimeout: 300 * time.Millisecond, Patience: shortPatience})
	host := newHost(t)
	setInHost(t, e, s, host, "joined", "1")
	// A host that works on is not ended.
	worked := make(chan error, 1)
	go func() {
		_, err := host.Exec(ctx, "SELECT pg_sleep(6)")
		worked <- err
	}()
	_, err := s.Commit(ctx, func(engine.Commit) error { return nil })
	if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "holds the database's row") || !strings.Contains(err.Error(), "InTx") {
		t.Errorf("who waited was told %v", err)
	}
	// Another that joins waits as long and is told the same.
	other := newHost(t)
	join, err := e.Join(ctx, postgres.PgxHost(other))
	if err == nil {
		err = join.Begin(ctx)
	}
	if err == nil {
		err = join.Commit(ctx, s, func(engine.Commit) error { return nil })
	}
	if !errors.Is(err, fault.Unavailable) {
		t.Errorf("the other host was told %v", err)
	}
	if err := <-worked; err != nil {
		t.Fatal(err)
	}
	if err := host.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if get(t, s, "joined") != "1" {
		t.Fatal("the host's commit is not there")
	}
}

func TestAHostHasItsSettingsBack(t *testing.T) {
	e, s := openForJoin(t, postgres.Options{})
	host := newHost(t)
	settings := func() (planner, lock, synchronous, idle string) {
		t.Helper()
		err := host.QueryRow(ctx, `SELECT current_setting('enable_seqscan'), current_setting('lock_timeout'),
			current_setting('synchronous_commit'), current_setting('idle_in_transaction_session_timeout')`).Scan(&planner, &lock, &synchronous, &idle)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if _, err := host.Exec(ctx, "SET LOCAL lock_timeout = '77s'; SET LOCAL synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	setInHost(t, e, s, host, "joined", "1")
	planner, lock, synchronous, idle := settings()
	if planner != "on" || lock != "77s" {
		t.Errorf("after a join enable_seqscan is %s and lock_timeout %s", planner, lock)
	}
	// What nobody may see before it is durable stays so until the host's end.
	if synchronous != "local" || idle != "5s" {
		t.Errorf("after a join synchronous_commit is %s and idle_in_transaction_session_timeout %s", synchronous, idle)
	}
	join, err := e.Join(ctx, postgres.PgxHost(host))
	if err == nil {
		err = join.Begin(ctx)
	}
	refused := errors.New("refused")
	if err == nil {
		err = join.Commit(ctx, s, func(engine.Commit) error { return refused })
	}
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if err := join.Undo(ctx); err != nil {
		t.Fatal(err)
	}
	if planner, lock, _, _ = settings(); planner != "on" || lock != "77s" {
		t.Errorf("after a refusal enable_seqscan is %s and lock_timeout %s", planner, lock)
	}
}
