package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

// promptly is how long something may take that others bring about.
const promptly = 10 * time.Second

// shortPatience is that of a store whose test waits until it has run out. A disk
// that many share was seen to stall for half a second.
const shortPatience = 2 * time.Second

// throughProxy is a way to a cluster that a test cuts, and the URL of it.
func throughProxy(t *testing.T, cluster *postgrestest.Cluster) (*nodetest.Proxy, string) {
	t.Helper()
	p := nodetest.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", cluster.Port()), nil)
	return p, "postgres://postgres@" + p.Address() + "/postgres"
}

// The outcome of a commit whose connection is lost is found out: one that
// PostgreSQL took is not made again, and one that it did not take is.
func TestACommitCutOffFromItsAnswerIsMadeOnce(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	for name, test := range map[string]struct {
		id       engine.SpaceID
		lose     func(*nodetest.Proxy)
		wantRuns int
	}{
		"the answer is lost":  {1, func(p *nodetest.Proxy) { p.LoseAnswers.Store(true) }, 1},
		"the request is lost": {2, func(p *nodetest.Proxy) { p.LoseRequests.Store(true) }, 2},
		"the connection is":   {3, (*nodetest.Proxy).Break, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p, url := throughProxy(t, cluster)
			// Without notifications, so that nothing else is answered.
			s := space(t, open(t, postgres.Options{URL: url, Schema: schema, DisableNotify: true}), test.id)
			const before = 3 // So that the statements are prepared, and COMMIT goes in one request.
			for range before {
				if _, err := s.Commit(ctx, count); err != nil {
					t.Fatal(err)
				}
			}
			runs := 0
			sequence, err := s.Commit(ctx, func(c engine.Commit) error {
				if err := count(c); err != nil {
					return err
				}
				if runs++; runs == 1 {
					test.lose(p)
					seen := p.Answered.Load()
					time.AfterFunc(200*time.Millisecond, func() {
						if answered := p.Answered.Load() > seen; answered != (test.wantRuns == 1) && name != "the connection is" {
							t.Errorf("the server answered: %v", answered)
						}
						p.Break()
					})
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := get(t, s, "counter"); runs != test.wantRuns || sequence != before+1 || got != strconv.Itoa(before+1) {
				t.Fatalf("%d runs, commit %d, the counter is %s; want %d runs and twice %d", runs, sequence, got, test.wantRuns, before+1)
			}
		})
	}
}

// While the lost transaction is still running, its outcome is waited for.
func TestTheOutcomeOfACommitThatIsStillRunningIsWaitedFor(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	p, url := throughProxy(t, cluster)
	s := space(t, open(t, postgres.Options{URL: url, Schema: schema}), 1)
	for range 3 {
		if _, err := s.Commit(ctx, count); err != nil {
			t.Fatal(err)
		}
	}
	// A constraint that takes its time when the transaction commits. pgx asks
	// for a statement to be cancelled whose connection it loses; the proxy turns
	// that away, so that the transaction does commit.
	cluster.SQL(t, fmt.Sprintf(`
		CREATE FUNCTION %[1]s.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON %[1]s.commits DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION %[1]s.slow()`, schema))
	runs := 0
	sequence, err := s.Commit(ctx, func(c engine.Commit) error {
		if runs++; runs == 1 {
			time.AfterFunc(300*time.Millisecond, func() {
				p.Cut()
				time.AfterFunc(200*time.Millisecond, p.Heal)
			})
		}
		return count(c)
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster.SQL(t, "DROP TRIGGER slow ON "+schema+".commits")
	if got := get(t, s, "counter"); runs != 1 || sequence != 4 || got != "4" {
		t.Fatalf("%d runs, commit %d, the counter is %s; want 1, 4 and 4", runs, sequence, got)
	}
}

// Connections are cut at random while several goroutines commit and read.
func TestCommitsUnderRandomCutsAreMadeOnceEach(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	p, url := throughProxy(t, cluster)
	s := space(t, open(t, postgres.Options{URL: url, Schema: schema}), 1)
	stop := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(10+rand.IntN(60)) * time.Millisecond):
			}
			if rand.IntN(2) == 0 {
				p.LoseAnswers.Store(true)
				time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond) // So that answers do get lost, a few or more.
			}
			p.Break()
		}
	})
	const committers, each = 4, 40
	seen := map[engine.Sequence]bool{}
	var mu sync.Mutex
	var committing sync.WaitGroup
	for range committers {
		committing.Go(func() {
			for range each {
				sequence, err := s.Commit(ctx, count)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[sequence] {
					t.Errorf("two commits are %d", sequence)
				}
				seen[sequence] = true
				mu.Unlock()
			}
		})
	}
	committing.Wait()
	close(stop)
	cutting.Wait()
	want := strconv.Itoa(committers * each)
	if got := get(t, s, "counter"); got != want || len(seen) != committers*each {
		t.Fatalf("the counter is %s, %d sequences; want %s", got, len(seen), want)
	}
}

func TestWhilePostgreSQLIsDownCallsAreUnavailableAndAfterwardsTheyGoOn(t *testing.T) {
	cluster := postgrestest.Shared(t)
	e := open(t, postgres.Options{URL: cluster.URL(), Schema: postgrestest.Schema(), Patience: shortPatience})
	s := space(t, e, 1)
	set(t, s, "a", "before")
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	changed := s.Changed(1)
	cluster.Stop()
	_, commitErr := s.Commit(ctx, count)
	_, snapshotErr := s.Snapshot(ctx)
	_, readErr := snapshot.Get(ctx, []byte("a"))
	_, nowErr := e.Now(ctx)
	for call, err := range map[string]error{"Commit": commitErr, "Snapshot": snapshotErr, "Get": readErr, "Now": nowErr} {
		if !errors.Is(err, fault.Unavailable) {
			t.Errorf("%s: got %v, want Unavailable", call, err)
		}
	}
	snapshot.Release()
	cluster.Start(t)
	if got := get(t, s, "a"); got != "before" {
		t.Fatalf("afterwards it shows %q", got)
	}
	if sequence := set(t, s, "a", "after"); sequence != 2 {
		t.Fatalf("the next commit is %d, want 2", sequence)
	}
	select {
	case <-changed:
	case <-time.After(5 * time.Second):
		t.Fatal("who waited over the outage was not woken")
	}
}

// refuse makes inserting entries fail with a SQLSTATE, until it is called with
// "".
func refuse(t *testing.T, cluster *postgrestest.Cluster, schema, state string) {
	t.Helper()
	cluster.SQL(t, fmt.Sprintf("DROP TRIGGER IF EXISTS refuse ON %s.entries", schema))
	if state != "" {
		cluster.SQL(t, fmt.Sprintf(`
			CREATE OR REPLACE FUNCTION %[1]s.refuse() RETURNS trigger LANGUAGE plpgsql AS
				$$BEGIN IF NEW.key = 'z' THEN RAISE EXCEPTION 'refused' USING ERRCODE = '%[2]s'; END IF; RETURN NEW; END$$;
			CREATE TRIGGER refuse BEFORE INSERT ON %[1]s.entries FOR EACH ROW EXECUTE FUNCTION %[1]s.refuse()`, schema, state))
	}
}

func TestACommitThatPostgreSQLRefusesLeavesNothing(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	s := space(t, open(t, postgres.Options{URL: cluster.URL(), Schema: schema, Patience: shortPatience}), 1)
	set(t, s, "a", "before")
	for _, state := range []string{
		"53100", // disk full
		"53200", // out of memory
		"57014", // statement timeout
		"55P03", // lock timeout
		"58030", // I/O error
		"40001", // serialization failure, for longer than the patience
	} {
		refuse(t, cluster, schema, state)
		_, err := s.Commit(ctx, func(c engine.Commit) error {
			c.DeleteRange(engine.Range{})
			c.Set([]byte("a"), []byte("after"))
			c.Set([]byte("z"), nil)
			return nil
		})
		if !errors.Is(err, fault.Unavailable) {
			t.Errorf("SQLSTATE %s: got %v, want Unavailable", state, err)
		}
		refuse(t, cluster, schema, "")
		if got := get(t, s, "a"); got != "before" {
			t.Fatalf("SQLSTATE %s: the commit left %q", state, got)
		}
	}
	if sequence := set(t, s, "z", ""); sequence != 2 {
		t.Fatalf("the next commit is %d, want 2", sequence)
	}
}

func TestASerializationFailureRunsTheFormAgain(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	s := space(t, open(t, postgres.Options{URL: cluster.URL(), Schema: schema}), 1)
	set(t, s, "counter", "0")
	refuse(t, cluster, schema, "40001")
	runs := 0
	_, err := s.Commit(ctx, func(c engine.Commit) error {
		if runs++; runs == 3 {
			return count(c)
		}
		c.Set([]byte("z"), nil)
		return count(c)
	})
	if got := get(t, s, "counter"); err != nil || runs != 3 || got != "1" {
		t.Fatalf("%v after %d runs, the counter is %s", err, runs, got)
	}
}

func TestAPrimaryThatIsReadOnlyIsUnavailableAndGoesOnWhenItIsNot(t *testing.T) {
	cluster := postgrestest.Shared(t)
	s := space(t, open(t, postgres.Options{
		URL: cluster.URL() + "&application_name=was_writable", Schema: postgrestest.Schema(), Patience: shortPatience, DisableNotify: true,
	}), 1)
	set(t, s, "a", "before")
	readOnly := func(value string) {
		cluster.SQL(t, "ALTER SYSTEM SET default_transaction_read_only = "+value)
		cluster.SQL(t, "SELECT pg_reload_conf()")
		nodetest.Eventually(t, promptly, func() bool {
			return strings.Contains(cluster.Query(t, "SHOW default_transaction_read_only"), value)
		}, "the setting is in force")
	}
	backend := func() string {
		return cluster.Query(t, "SELECT pid FROM pg_stat_activity WHERE application_name = 'was_writable'")
	}
	before := backend()
	readOnly("on")
	defer cluster.SQL(t, "ALTER SYSTEM RESET default_transaction_read_only")
	_, err := s.Commit(ctx, count)
	if !errors.Is(err, fault.Unavailable) || !errors.Is(err, engine.ErrNotWriter) {
		t.Errorf("got %v, want Unavailable with ErrNotWriter", err)
	}
	if kept := backend(); !strings.Contains(before, "(1 row)") || !strings.Contains(kept, "(0 rows)") {
		t.Errorf("connections before the refusal:\n%safter it:\n%s", before, kept)
	}
	readOnly("off")
	if sequence := set(t, s, "a", "after"); sequence != 2 {
		t.Fatalf("the next commit is %d, want 2", sequence)
	}
}

func TestSnapshotsAreBoundedAndLeaveConnectionsToCommits(t *testing.T) {
	e := open(t, postgres.Options{
		URL: postgrestest.Shared(t).URL(), Schema: postgrestest.Schema(), MaxConns: 8, Patience: shortPatience,
	})
	s := space(t, e, 1)
	var held []engine.Snapshot
	var err error
	for err == nil && len(held) < 10 {
		var snapshot engine.Snapshot
		if snapshot, err = s.Snapshot(ctx); err == nil {
			held = append(held, snapshot)
		}
	}
	if len(held) != 4 || !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "4 snapshots are open") {
		t.Fatalf("%d snapshots, then %v; want 4, then Unavailable that says so", len(held), err)
	}
	if sequence := set(t, s, "a", "b"); sequence != 1 {
		t.Fatalf("commit %d, want 1", sequence)
	}
	for _, snapshot := range held {
		snapshot.Release()
	}
	if got := get(t, s, "a"); got != "b" {
		t.Fatalf("after they were released a snapshot shows %q", got)
	}
}

func TestAServerWithoutConnectionsLeftIsUnavailable(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	cluster.SQL(t, "CREATE ROLE crowded LOGIN CONNECTION LIMIT 1")
	cluster.SQL(t, "GRANT CREATE ON DATABASE postgres TO crowded")
	options := postgres.Options{URL: strings.Replace(cluster.URL(), "postgres@", "crowded@", 1), Schema: schema, Patience: shortPatience, DisableNotify: true}
	s := space(t, open(t, options), 1)
	set(t, s, "a", "b")
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, count); !errors.Is(err, fault.Unavailable) {
		t.Errorf("got %v, want Unavailable", err)
	}
	snapshot.Release()
	if sequence := set(t, s, "a", "c"); sequence != 2 {
		t.Fatalf("commit %d, want 2", sequence)
	}
}

// As after a failover to a standby that had not received everything.
func TestAnEngineThatSeesAnAcknowledgedCommitLostRefusesToGoOn(t *testing.T) {
	cluster := postgrestest.Shared(t)
	for name, reading := range map[string]bool{"when it commits": false, "when it reads": true} {
		t.Run(name, func(t *testing.T) {
			options := postgres.Options{URL: cluster.URL(), Schema: postgrestest.Schema(), Patience: time.Second}
			e, other := open(t, options), open(t, options)
			s := space(t, e, 1)
			for range 3 {
				set(t, s, "a", "b")
			}
			cluster.SQL(t, "DELETE FROM "+options.Schema+".commits WHERE sequence = 3")
			if !reading {
				set(t, space(t, other, 1), "a", "c") // Another commit 3.
			}
			_, snapshotErr := s.Snapshot(ctx)
			_, commitErr := s.Commit(ctx, count)
			for call, err := range map[string]error{"Snapshot": snapshotErr, "Commit": commitErr} {
				if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "lost commits") {
					t.Errorf("%s: got %v, want Unavailable that says so", call, err)
				}
			}
			set(t, space(t, open(t, options), 1), "a", "d")
		})
	}
}

// The old versions of rows that somebody's old snapshot keeps are not walked
// over, which makes every commit slower than the one before.
func TestAForeignTransactionHeldOpenDoesNotMakeLookupsReadMore(t *testing.T) {
	cluster, schema := postgrestest.Shared(t), postgrestest.Schema()
	s := space(t, open(t, postgres.Options{URL: cluster.URL(), Schema: schema}), 1)
	// Large enough that few versions share a page.
	value := strings.Repeat("v", 1900)
	set(t, s, "counter", value)
	// With others beside it, and as the planner knows them.
	_, err := s.Commit(ctx, func(c engine.Commit) error {
		for i := range 1000 {
			c.Set([]byte(strconv.Itoa(i)), []byte("v"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster.SQL(t, "ANALYZE "+schema+".entries")
	foreign, err := pgx.Connect(ctx, cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Close(ctx) }()
	if _, err := foreign.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
		t.Fatal(err)
	}
	const commits = 500
	for range commits {
		set(t, s, "counter", value)
	}
	if dead := cluster.Query(t, "SELECT count(*) FROM "+schema+".entries"); !strings.Contains(dead, "1\n") {
		t.Fatalf("live rows:\n%s", dead)
	}
	const planner = `SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; `
	queries := postgres.Lookups(schema, "counter")
	for what, query := range queries {
		queries[what] = planner + "EXPLAIN (ANALYZE, BUFFERS) " + query
	}
	queries["and remove a key's row"] = planner + "SET plan_cache_mode = force_generic_plan; PREPARE removal AS " + postgres.Removal(schema) +
		"; BEGIN; EXPLAIN (ANALYZE, BUFFERS) EXECUTE removal (1, ARRAY['counter'::bytea]); ROLLBACK"
	for what, query := range queries {
		plan := cluster.Query(t, query)
		_, rest, _ := strings.Cut(plan, "shared hit=")
		var pages int
		if _, err := fmt.Sscanf(rest, "%d", &pages); err != nil || pages > 20 {
			t.Errorf("to find %s, %d pages are read (%v) after %d commits:\n%s", what, pages, err, commits, plan)
		}
	}
}
