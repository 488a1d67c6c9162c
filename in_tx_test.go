package tidemark_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

// application is a program with tables of its own on the PostgreSQL that
// carries its store.
type application struct {
	t           *testing.T
	url, schema string
	db          *tidemark.Database
	pool        *pgxpool.Pool
	sql         *sql.DB
}

// newApplication opens a store with a topic, and makes the application's table.
func newApplication(t *testing.T) *application {
	t.Helper()
	a := &application{t: t, url: postgrestest.Shared(t).URL(), schema: postgrestest.Schema()}
	a.db = a.open()
	_, err := a.db.Exec(t.Context(), "DEFINE TOPIC events; DEFINE COLLECTION orders;", nil)
	check(t, err)
	a.pool, err = pgxpool.New(t.Context(), a.url)
	check(t, err)
	t.Cleanup(a.pool.Close)
	a.sql, err = sql.Open("pgx", a.url)
	check(t, err)
	t.Cleanup(func() { check(t, a.sql.Close()) })
	_, err = a.pool.Exec(t.Context(), a.named("CREATE TABLE invoices (n bigint PRIMARY KEY)"))
	check(t, err)
	return a
}

// open opens the store as one more process does.
func (a *application) open() *tidemark.Database {
	a.t.Helper()
	store, err := tidemark.OpenPostgres(a.t.Context(), a.url, tidemark.WithSchema(a.schema))
	check(a.t, err)
	a.t.Cleanup(func() { check(a.t, store.Close()) })
	db, err := store.Database(a.t.Context(), "shop", "orders")
	check(a.t, err)
	return db
}

// named gives the application's table a name of this test's own.
func (a *application) named(statement string) string {
	return strings.Replace(statement, "invoices", "invoices_"+a.schema, 1)
}

// transaction is one that the application opened, of either library.
type transaction struct {
	a                *application
	joins            tidemark.PostgresTx
	exec             func(statement string, arguments ...any) error
	commit, rollback func() error
	// kill closes the connection, as the end of the process would.
	kill func()
}

// invoice writes to the application's table.
func (x *transaction) invoice(n int) error {
	return x.exec(x.a.named("INSERT INTO invoices (n) VALUES ($1)"), n)
}

func (x *transaction) inTx(work func(tx *tidemark.JoinedTx) error) (map[string]tidemark.Appended, error) {
	return tidemark.InTx(context.Background(), x.a.db, x.joins, work)
}

func appending(n int) func(tx *tidemark.JoinedTx) error {
	return func(tx *tidemark.JoinedTx) error { return tx.Append(context.Background(), "events", n) }
}

func (a *application) pgx(isolation pgx.TxIsoLevel) *transaction {
	ctx := context.Background()
	tx, err := a.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: isolation})
	check(a.t, err)
	a.t.Cleanup(func() { _ = tx.Rollback(ctx) }) // Of a test that failed.
	return &transaction{
		a: a, joins: tidemark.Pgx(tx),
		exec: func(statement string, arguments ...any) error {
			_, err := tx.Exec(ctx, statement, arguments...)
			return err
		},
		commit:   func() error { return tx.Commit(ctx) },
		rollback: func() error { return tx.Rollback(ctx) },
		kill: func() {
			check(a.t, tx.Conn().PgConn().Conn().Close())
			_ = tx.Rollback(ctx)
		},
	}
}

func (a *application) databaseSQL(isolation sql.IsolationLevel) *transaction {
	tx, err := a.sql.BeginTx(context.Background(), &sql.TxOptions{Isolation: isolation})
	check(a.t, err)
	a.t.Cleanup(func() { _ = tx.Rollback() })
	return &transaction{
		a: a, joins: tidemark.SQL(tx),
		exec: func(statement string, arguments ...any) error {
			_, err := tx.Exec(statement, arguments...)
			return err
		},
		commit: tx.Commit, rollback: tx.Rollback,
	}
}

// eachLibrary runs a test with a transaction of each library.
func eachLibrary(t *testing.T, test func(t *testing.T, a *application, begin func() *transaction)) {
	t.Run("pgx", func(t *testing.T) {
		a := newApplication(t)
		test(t, a, func() *transaction { return a.pgx(pgx.ReadCommitted) })
	})
	t.Run("database/sql", func(t *testing.T) {
		a := newApplication(t)
		test(t, a, func() *transaction { return a.databaseSQL(sql.LevelDefault) })
	})
}

// wantInvoices compares the application's table with what it should hold.
func (a *application) wantInvoices(want ...int) {
	a.t.Helper()
	rows, err := a.pool.Query(context.Background(), a.named("SELECT n FROM invoices ORDER BY n"))
	check(a.t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	check(a.t, err)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		a.t.Fatalf("the application's table holds %v, want %v", got, want)
	}
}

// wantEvents compares the topic, from its first position, with what it should
// hold.
func wantEvents(t *testing.T, db *tidemark.Database, want ...int) {
	t.Helper()
	page, err := db.Topic("events").Read(t.Context(), tidemark.ReadOptions{Limit: 10_000})
	check(t, err)
	var got []int
	for i, m := range page.Messages {
		var n int
		check(t, m.Scan(&n))
		got = append(got, n)
		if m.Position() != uint64(i+1) {
			t.Fatalf("message %d is at position %d", i+1, m.Position())
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("the topic holds %v, want %v", got, want)
	}
}

func wantKind(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("the error is %v, want %s", err, kind)
	}
}

func TestWhatIsJoinedCommitsWithTheApplicationsTables(t *testing.T) {
	eachLibrary(t, func(t *testing.T, a *application, begin func() *transaction) {
		other := a.open()
		waited := make(chan error, 1)
		go func() {
			page, err := other.Topic("events").Read(context.Background(), tidemark.ReadOptions{Wait: time.Minute})
			if err == nil && len(page.Messages) != 2 {
				err = fmt.Errorf("the reader that waited was given %d messages", len(page.Messages))
			}
			waited <- err
		}()

		x := begin()
		check(t, x.invoice(7))
		appended, err := x.inTx(func(tx *tidemark.JoinedTx) error {
			ctx := context.Background()
			if err := errors.Join(tx.Append(ctx, "events", 1), tx.Append(ctx, "events", 2)); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPSERT orders:7 = { paid: true }", nil)
			return errors.Join(err, tx.Put(ctx, "orders", 8, map[string]any{"paid": false}))
		})
		check(t, err)
		if appended["events"] != (tidemark.Appended{First: 1, Last: 2}) {
			t.Fatalf("appended at %v", appended)
		}
		// Nobody sees anything yet.
		a.wantInvoices()
		wantEvents(t, a.db)
		check(t, x.commit())

		check(t, <-waited)
		a.wantInvoices(7)
		databases := []*tidemark.Database{a.db, other}
		for _, db := range databases {
			wantEvents(t, db, 1, 2)
		}
		for _, db := range databases {
			rows, err := db.Query(t.Context(), "SELECT * FROM orders", nil)
			check(t, err)
			if rows.Len() != 2 {
				t.Fatalf("%d records", rows.Len())
			}
			// What the process remembers of the topic is what it has become.
			_, _, err = db.Topic("events").Append(t.Context(), 3)
			check(t, err)
		}
		wantEvents(t, a.db, 1, 2, 3, 3)
	})
}

func TestWhatIsRolledBackWasNeverThere(t *testing.T) {
	eachLibrary(t, func(t *testing.T, a *application, begin func() *transaction) {
		other := a.open()
		for i := range 3 {
			x := begin()
			check(t, x.invoice(i))
			_, err := x.inTx(appending(i))
			check(t, err)
			check(t, x.rollback())
			_, _, err = []*tidemark.Database{a.db, other}[i%2].Topic("events").Append(t.Context(), 10+i)
			check(t, err)
		}
		a.wantInvoices()
		wantEvents(t, a.db, 10, 11, 12)
	})
}

func TestAProcessThatDiesBeforeTheCommitLeavesNoTrace(t *testing.T) {
	a := newApplication(t)
	x := a.pgx(pgx.ReadCommitted)
	check(t, x.invoice(1))
	_, err := x.inTx(appending(1))
	check(t, err)
	x.kill()
	_, _, err = a.db.Topic("events").Append(t.Context(), 2)
	check(t, err)
	wantEvents(t, a.db, 2)
	a.wantInvoices()
}

func TestWorkThatFailsLeavesTheTransactionAsItWas(t *testing.T) {
	eachLibrary(t, func(t *testing.T, a *application, begin func() *transaction) {
		x := begin()
		check(t, x.invoice(1))
		boom := errors.New("boom")
		_, err := x.inTx(func(tx *tidemark.JoinedTx) error {
			return errors.Join(tx.Append(t.Context(), "events", 1), x.invoice(2), boom)
		})
		if !errors.Is(err, boom) {
			t.Fatalf("the error of work came back as %v", err)
		}
		// An error of PostgreSQL's in the middle is undone too.
		_, err = x.inTx(func(tx *tidemark.JoinedTx) error { return x.invoice(1) })
		if err == nil {
			t.Fatal("the same invoice twice")
		}
		_, err = x.inTx(func(tx *tidemark.JoinedTx) error { return tx.Append(t.Context(), "nowhere", 1) })
		wantKind(t, err, fault.NotFound)
		for _, ending := range []string{"COMMIT", "CANCEL", "BEGIN"} {
			_, err = x.inTx(func(tx *tidemark.JoinedTx) error {
				_, err := tx.Exec(t.Context(), "CREATE events = 9; "+ending+"; CREATE events = 9", nil)
				return err
			})
			wantKind(t, err, fault.NestedTransaction)
		}
		_, err = x.inTx(appending(3))
		check(t, err)
		check(t, x.commit())
		a.wantInvoices(1)
		wantEvents(t, a.db, 3)
	})
}

func TestSeveralJoinsOfOneTransactionSeeEachOther(t *testing.T) {
	a := newApplication(t)
	x := a.pgx(pgx.ReadCommitted)
	ctx := t.Context()
	_, err := x.inTx(func(tx *tidemark.JoinedTx) error {
		_, err := tx.Exec(ctx, "DEFINE COLLECTION refunds; CREATE orders:1 = { total: 40 }; CREATE events = 1", nil)
		return err
	})
	check(t, err)
	appended, err := x.inTx(func(tx *tidemark.JoinedTx) error {
		_, err := tx.Exec(ctx, "UPDATE orders:1 SET total = total + 2; CREATE refunds:1 = {}; CREATE events = 2", nil)
		return err
	})
	check(t, err)
	if appended["events"].First != 2 {
		t.Fatalf("the second join appended at %v", appended)
	}
	_, err = x.inTx(func(tx *tidemark.JoinedTx) error {
		_, err := tx.Exec(ctx, "DEFINE COLLECTION late", nil)
		return err
	})
	wantKind(t, err, fault.InvalidClause)
	check(t, x.commit())
	rows, err := a.db.Query(ctx, "SELECT total FROM orders:1", nil)
	check(t, err)
	var order struct {
		Total int `json:"total"`
	}
	check(t, rows.Scan(&order))
	if order.Total != 42 {
		t.Fatalf("the total is %d", order.Total)
	}
	wantEvents(t, a.db, 1, 2)

	// What one defined and took back is not remembered by anybody.
	x = a.pgx(pgx.ReadCommitted)
	_, err = x.inTx(func(tx *tidemark.JoinedTx) error {
		_, err := tx.Exec(ctx, "DEFINE COLLECTION gone; CREATE gone:1 = {}", nil)
		return err
	})
	check(t, err)
	_, err = x.inTx(func(tx *tidemark.JoinedTx) error {
		_, err := tx.Exec(ctx, "SELECT * FROM gone", nil)
		return err
	})
	check(t, err)
	check(t, x.rollback())
	// This commit has the number that the one taken back had.
	_, err = a.db.Exec(ctx, "ALTER TOPIC events RETAIN 7d", nil)
	check(t, err)
	_, err = a.db.Exec(ctx, "SELECT * FROM gone", nil)
	wantKind(t, err, fault.NotFound)
	_, err = a.db.Exec(ctx, "DEFINE COLLECTION kept", nil)
	check(t, err)
	_, err = a.db.Exec(ctx, "CREATE kept:1 = {}", nil)
	check(t, err)
}

func TestATransactionThatIsNotOfTheStoreIsRefused(t *testing.T) {
	a := newApplication(t)
	ctx := t.Context()
	memory, err := tidemark.OpenMemory()
	check(t, err)
	defer func() { check(t, memory.Close()) }()
	embedded, err := memory.Database(ctx, "shop", "orders")
	check(t, err)
	x := a.pgx(pgx.ReadCommitted)
	_, err = tidemark.InTx(ctx, embedded, x.joins, appending(1))
	wantKind(t, err, fault.InvalidClause)

	// One that failed, and ones that have ended.
	if x.exec("SELECT 1/0") == nil {
		t.Fatal("divided by zero")
	}
	_, err = x.inTx(appending(1))
	wantKind(t, err, fault.TransactionFailed)
	check(t, x.rollback())
	_, err = x.inTx(appending(1))
	wantKind(t, err, fault.NoTransaction)
	y := a.databaseSQL(sql.LevelDefault)
	check(t, y.commit())
	_, err = y.inTx(appending(1))
	wantKind(t, err, fault.NoTransaction)

	// One that may not write.
	x = a.pgx(pgx.ReadCommitted)
	check(t, x.exec("SET TRANSACTION READ ONLY"))
	_, err = x.inTx(appending(1))
	wantKind(t, err, fault.InvalidClause)
	check(t, x.rollback())

	// One on the tables of a newer version.
	x = a.pgx(pgx.ReadCommitted)
	check(t, x.exec(`UPDATE `+a.schema+`.schema_version SET version = 99`))
	_, err = x.inTx(appending(1))
	wantKind(t, err, fault.Unavailable)
	check(t, x.rollback())

	// One on another PostgreSQL: without the store's tables, and with a store of
	// the same schema.
	_, err = a.pool.Exec(ctx, "CREATE DATABASE other_"+a.schema)
	check(t, err)
	elsewhere := *a
	elsewhere.url = strings.Replace(a.url, "/postgres?", "/other_"+a.schema+"?", 1)
	if elsewhere.url == a.url {
		t.Fatalf("no database in %s", a.url)
	}
	elsewhere.pool, err = pgxpool.New(ctx, elsewhere.url)
	check(t, err)
	t.Cleanup(elsewhere.pool.Close)
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		x = elsewhere.pgx(isolation)
		_, err = tidemark.InTx(ctx, a.db, x.joins, appending(1))
		wantKind(t, err, fault.InvalidClause)
		check(t, x.rollback())
	}
	_, err = elsewhere.open().Exec(ctx, "DEFINE TOPIC events", nil)
	check(t, err)
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		x = elsewhere.pgx(isolation)
		_, err = tidemark.InTx(ctx, a.db, x.joins, appending(1))
		wantKind(t, err, fault.InvalidClause)
		check(t, x.rollback())
	}
	wantEvents(t, a.db)
}

func TestWorkThatLostRunsAgain(t *testing.T) {
	a := newApplication(t)
	ctx := t.Context()
	_, err := a.db.Exec(ctx, "CREATE events = 1; CREATE events = 2", nil)
	check(t, err)
	runs := 0
	read := func(x *transaction) func(tx *tidemark.JoinedTx) error {
		return func(tx *tidemark.JoinedTx) error {
			runs++
			page, err := tx.ReadFor(ctx, "events", "books", 1)
			if err != nil {
				return err
			}
			if runs == 1 {
				// Another of the same name is faster.
				if _, err := a.db.Exec(ctx, "READ FROM events FOR CONSUMER 'books' LIMIT 1", nil); err != nil {
					return err
				}
			}
			return x.invoice(int(page.Messages[0].Position()))
		}
	}
	x := a.pgx(pgx.ReadCommitted)
	_, err = x.inTx(read(x))
	check(t, err)
	check(t, x.commit())
	if runs != 2 {
		t.Fatalf("work ran %d times", runs)
	}
	a.wantInvoices(2)
}

func TestAnOldSnapshotIsAConflict(t *testing.T) {
	for _, isolation := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(isolation.String(), func(t *testing.T) {
			a := newApplication(t)
			old := a.databaseSQL(isolation)
			check(t, old.invoice(1))
			_, _, err := a.db.Topic("events").Append(t.Context(), 1)
			check(t, err)
			_, _, err = a.db.Topic("events").Append(t.Context(), 2)
			check(t, err)
			// As after many commits and some minutes, the row of the first of the two
			// is gone: its number would be free again.
			_, err = a.pool.Exec(t.Context(), `DELETE FROM `+a.schema+`.commits WHERE (space_id, sequence) =
				(SELECT space_id, sequence FROM `+a.schema+`.commits WHERE space_id > 0 ORDER BY sequence DESC OFFSET 1 LIMIT 1)`)
			check(t, err)
			_, err = old.inTx(func(tx *tidemark.JoinedTx) error {
				return tx.Put(t.Context(), "orders", 9, map[string]any{})
			})
			wantKind(t, err, fault.Conflict)
			// The row is free again: the transaction was not ended.
			_, _, err = a.db.Topic("events").Append(t.Context(), 3)
			check(t, err)
			check(t, old.rollback())

			again := a.databaseSQL(isolation)
			check(t, again.invoice(2))
			_, err = again.inTx(appending(4))
			check(t, err)
			_, err = again.inTx(appending(5))
			check(t, err)
			check(t, again.commit())
			a.wantInvoices(2)
			wantEvents(t, a.db, 1, 2, 3, 4, 5)
		})
	}
}

// Deadlocks between the application's rows and the store's are PostgreSQL's to
// find; the one that loses is told that it may run again.
func TestADeadlockIsAConflict(t *testing.T) {
	a := newApplication(t)
	setup := a.pgx(pgx.ReadCommitted)
	check(t, setup.invoice(1))
	check(t, setup.commit())
	touch := a.named("UPDATE invoices SET n = n WHERE n = 1")
	// At REPEATABLE READ it is not run again here, where it would only meet the
	// other again.
	x, y := a.pgx(pgx.RepeatableRead), a.pgx(pgx.RepeatableRead)
	check(t, x.exec("SET LOCAL deadlock_timeout = '10s'"))
	check(t, y.exec("SET LOCAL deadlock_timeout = '50ms'"))
	check(t, y.exec(touch))
	_, err := x.inTx(appending(1))
	check(t, err)
	blocked := make(chan error, 1)
	go func() { blocked <- x.exec(touch) }()
	_, err = y.inTx(appending(2))
	wantKind(t, err, fault.Conflict)
	var answered interface{ SQLState() string }
	if !errors.As(err, &answered) || answered.SQLState() != "40P01" {
		t.Fatalf("the error of PostgreSQL is not in the chain of %v", err)
	}
	check(t, y.rollback())
	check(t, <-blocked)
	check(t, x.commit())
	wantEvents(t, a.db, 1)
}

// Appenders of two processes, alone and inside the application's transactions,
// which commit or do not, give one dense order in which every message of the
// store has its row in the application's table and the other way round.
func TestJoinedAppendsAmongManyOthersAreDenseAndWhole(t *testing.T) {
	a := newApplication(t)
	databases := []*tidemark.Database{a.db, a.open()}
	var lone atomic.Int64
	var mu sync.Mutex
	joined := map[int]uint64{}
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			for range 25 {
				_, _, err := databases[i%2].Topic("events").Append(context.Background(), -1)
				if err != nil {
					t.Error(err)
					return
				}
				lone.Add(1)
			}
		})
		running.Go(func() {
			for j := range 15 {
				n := i*1000 + j
				x := a.pgx(pgx.ReadCommitted)
				appended, err := tidemark.InTx(context.Background(), databases[i%2], x.joins, func(tx *tidemark.JoinedTx) error {
					return errors.Join(x.invoice(n), tx.Append(context.Background(), "events", n))
				})
				if err != nil {
					t.Error(err)
					return
				}
				switch rand.N(4) {
				case 0:
					err = x.rollback()
				case 1:
					x.kill()
				default:
					if err = x.commit(); err == nil {
						mu.Lock()
						joined[n] = appended["events"].First
						mu.Unlock()
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	page, err := a.db.Topic("events").Read(t.Context(), tidemark.ReadOptions{Limit: 10_000})
	check(t, err)
	if len(page.Messages) != int(lone.Load())+len(joined) {
		t.Fatalf("%d messages of %d lone appends and %d joined", len(page.Messages), lone.Load(), len(joined))
	}
	for i, m := range page.Messages {
		var n int
		check(t, m.Scan(&n))
		if m.Position() != uint64(i+1) || n >= 0 && joined[n] != m.Position() {
			t.Fatalf("message %d at position %d, which its transaction was told is %d", n, m.Position(), joined[n])
		}
	}
	var invoices int
	check(t, a.pool.QueryRow(t.Context(), a.named("SELECT count(*) FROM invoices")).Scan(&invoices))
	if invoices != len(joined) {
		t.Fatalf("%d rows of the application's and %d of its messages", invoices, len(joined))
	}
}

// consumed is how many messages the tests of consumers have.
const consumed = 60

func (a *application) fillEvents() {
	for i := range consumed {
		_, _, err := a.db.Topic("events").Append(a.t.Context(), i+1)
		check(a.t, err)
	}
}

// endSomehow commits most transactions, and loses the others in one of two
// ways. It reports whether it committed.
func (x *transaction) endSomehow() bool {
	switch rand.N(5) {
	case 0:
		check(x.a.t, x.rollback())
	case 1:
		x.kill()
	default:
		check(x.a.t, x.commit())
		return true
	}
	return false
}

func (a *application) wantEachConsumedOnce() {
	a.t.Helper()
	want := make([]int, consumed)
	for i := range want {
		want[i] = i + 1
	}
	a.wantInvoices(want...)
}

func TestAReadersEffectInTheApplicationsTableHappensOnce(t *testing.T) {
	a := newApplication(t)
	a.fillEvents()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var handled atomic.Int64
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := tidemark.Await(ctx, a.db, "events", "books", time.Minute); err != nil {
					return
				}
				x, count := a.pgx(pgx.ReadCommitted), 0
				_, err := x.inTx(func(tx *tidemark.JoinedTx) error {
					page, err := tx.ReadFor(ctx, "events", "books", 1+rand.N(5))
					count = len(page.Messages)
					for _, m := range page.Messages {
						err = errors.Join(err, x.invoice(int(m.Position())))
					}
					return err
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				if err != nil {
					_ = x.rollback()
				} else if x.endSomehow() && handled.Add(int64(count)) == consumed {
					stop()
				}
			}
		})
	}
	running.Wait()
	a.wantEachConsumedOnce()
}

func TestAGroupsEffectInTheApplicationsTableHappensOnce(t *testing.T) {
	a := newApplication(t)
	a.fillEvents()
	_, err := a.db.Exec(t.Context(), "DEFINE GROUP 'mail' ON TOPIC events ACK DEADLINE 1h IN FLIGHT 20", nil)
	check(t, err)
	group := a.db.Topic("events").Group("mail")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var handled atomic.Int64
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() {
			for ctx.Err() == nil {
				page, err := group.Read(ctx, 1+rand.N(5), time.Minute)
				if err != nil {
					return
				}
				x := a.pgx(pgx.ReadCommitted)
				_, err = x.inTx(func(tx *tidemark.JoinedTx) error {
					done, err := tx.Ack(ctx, "events", "mail", page.Messages...)
					if err == nil && done != len(page.Messages) {
						err = fmt.Errorf("%d of %d messages were in flight", done, len(page.Messages))
					}
					for _, m := range page.Messages {
						err = errors.Join(err, x.invoice(int(m.Position())))
					}
					return err
				})
				check(t, err)
				if !x.endSomehow() {
					_, err := group.Nack(context.Background(), page.Messages...)
					check(t, err)
				} else if handled.Add(int64(len(page.Messages))) == consumed {
					stop()
				}
			}
		})
	}
	running.Wait()
	a.wantEachConsumedOnce()
}

func TestAHandOutAndARejectionAreOfTheTransaction(t *testing.T) {
	a := newApplication(t)
	ctx := t.Context()
	_, err := a.db.Exec(ctx, `DEFINE TOPIC dead; DEFINE GROUP 'mail' ON TOPIC events ACK DEADLINE 1h DELIVERIES 5 IN FLIGHT 10 DEAD LETTER TO dead;
		CREATE events = 1; CREATE events = 2; CREATE events = 3`, nil)
	check(t, err)
	take := func(tx *tidemark.JoinedTx) error {
		page, err := tx.ReadFor(ctx, "events", "mail", 10)
		if err != nil || len(page.Messages) != 3 {
			return errors.Join(err, fmt.Errorf("%d messages", len(page.Messages)))
		}
		for _, settle := range []func() (int, error){
			func() (int, error) { return tx.Nack(ctx, "events", "mail", page.Messages[0]) },
			func() (int, error) { return tx.NackAfter(ctx, "events", "mail", time.Hour, page.Messages[1]) },
			func() (int, error) { return tx.Reject(ctx, "events", "mail", "torn", page.Messages[2]) },
		} {
			if count, err := settle(); err != nil || count != 1 {
				return errors.Join(err, fmt.Errorf("settled %d", count))
			}
		}
		return nil
	}
	x := a.pgx(pgx.ReadCommitted)
	_, err = x.inTx(take)
	check(t, err)
	check(t, x.rollback())
	x = a.pgx(pgx.ReadCommitted)
	appended, err := x.inTx(take)
	check(t, err)
	check(t, x.commit())
	if appended["dead"].First != 1 {
		t.Fatalf("the rejected message is at %v", appended)
	}
	page, err := a.db.Topic("events").Group("mail").Read(ctx, 10, 0)
	check(t, err)
	if len(page.Messages) != 1 || page.Messages[0].Position() != 1 || page.Messages[0].Deliveries() != 2 {
		t.Fatalf("then handed out: %v", page.Messages)
	}
}

func TestTheDocumentsProgramsStandInTheExamples(t *testing.T) {
	document, err := os.ReadFile("docs/postgresql.md")
	check(t, err)
	_, section, ok := strings.Cut(string(document), "\n## Your own transaction\n")
	if !ok {
		t.Fatal("the section is not there")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	examples, err := os.ReadFile("example_intx_test.go")
	check(t, err)
	normal := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	programs := blocks(section, "go")
	if len(programs) != 2 {
		t.Fatalf("%d programs", len(programs))
	}
	for _, program := range programs {
		if !strings.Contains(normal(string(examples)), normal(program)) {
			t.Errorf("the examples do not hold\n%s", program)
		}
	}
}
