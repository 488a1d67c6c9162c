// Package client holds the tests of the Go API over every transport, and of the
// Go client on nodes that are killed.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// transports open an empty store, each through its kind of URL.
var transports = []struct {
	name string
	open func(t *testing.T) *tidemark.Store
}{
	{"memory", func(t *testing.T) *tidemark.Store { return connect(t, "memory:") }},
	{"file", func(t *testing.T) *tidemark.Store { return connect(t, "file:"+t.TempDir()) }},
	{"postgres", func(t *testing.T) *tidemark.Store {
		return connect(t, postgrestest.Shared(t).URL(), tidemark.WithSchema(postgrestest.Schema()))
	}},
	{"ws", func(t *testing.T) *tidemark.Store { return connect(t, "ws://"+serve(t)) }},
}

func connect(t *testing.T, url string, options ...tidemark.Option) *tidemark.Store {
	t.Helper()
	s, err := tidemark.Connect(t.Context(), url, append(options, tidemark.WithLog(slog.New(slog.DiscardHandler)))...)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// serve serves a store in memory and returns the node's address.
func serve(t *testing.T) string {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	check(t, err)
	s, err := store.Open(t.Context(), e, store.Options{})
	check(t, err)
	srv, err := server.New(server.Options{Store: s, Log: slog.New(slog.DiscardHandler)})
	check(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	t.Cleanup(func() {
		ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		check(t, srv.Shutdown(ctx))
		if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the node ended: %v", err)
		}
		check(t, s.Close())
	})
	return listener.Addr().String()
}

func TestTheAPIIsOneOverEveryTransport(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport.name, func(t *testing.T) {
			postgrestest.Shared(t)
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			t.Run("", func(t *testing.T) {
				s := transport.open(t)
				for i, promise := range slices.Concat(apiPromises, workPromises) {
					t.Run(promise.name, func(t *testing.T) {
						db, err := s.Database(t.Context(), "contract", fmt.Sprintf("db%d", i))
						check(t, err)
						promise.holds(&user{t, db})
					})
				}
			})
		})
	}
}

// user is who uses a database of its own.
type user struct {
	*testing.T
	db *tidemark.Database
}

func (u *user) exec(script string) []tidemark.Answer {
	u.Helper()
	answers, err := u.db.Exec(u.Context(), script, nil)
	check(u.T, err)
	return answers
}

// ints are the values of a statement's rows, which are ints.
func (u *user) ints(statement string) []int {
	u.Helper()
	rows, err := u.db.Query(u.Context(), statement, nil)
	check(u.T, err)
	var ints []int
	check(u.T, rows.Scan(&ints))
	return ints
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails the test unless an error is of a kind.
func want(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("want %s, got %v", kind, err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// promise is a sentence that holds over every transport.
type promise struct {
	name  string
	holds func(u *user)
}

var apiPromises = []promise{
	{"a script answers statement by statement", func(u *user) {
		answers, err := u.db.Exec(u.Context(), "DEFINE TOPIC events; CREATE events = $v; DELETE events:1; CREATE events = 2", tidemark.Params{"v": 1})
		want(u.T, err, fault.TopicIsAppendOnly)
		if len(answers) != 4 || answers[0].Err != nil || answers[2].Err == nil || answers[3].Err != nil {
			u.Fatalf("answers %v", answers)
		}
		equal(u.T, "appended", u.ints("READ FROM events"), []int{1, 2})
		_, err = u.db.Exec(u.Context(), "CREATE events = 3; CREATE events =", nil)
		want(u.T, err, fault.Syntax)
		equal(u.T, "a script that does not parse", u.ints("READ FROM events"), []int{1, 2})
		_, err = u.db.Query(u.Context(), "READ FROM nothing", nil)
		want(u.T, err, fault.NotFound)
		_, err = u.db.Query(u.Context(), "SELECT 1; SELECT 2", nil)
		if err == nil {
			u.Fatal("Query took two statements")
		}
	}},
	{"a script leaves nothing behind", func(u *user) {
		u.exec("DEFINE SPACE things; DEFINE DATABASE elsewhere; BEGIN; UPSERT things:1 = 1")
		for range 20 {
			u.exec("USE DATABASE elsewhere")
			if got := u.ints("SELECT * FROM things"); len(got) != 0 {
				u.Fatalf("a transaction that was left open wrote %v", got)
			}
		}
	}},
	{"rows scan", func(u *user) {
		u.exec("DEFINE COLLECTION things; CREATE things:1 = { n: 7 }; CREATE things:2 = { n: 8 }")
		rows, err := u.db.Query(u.Context(), "SELECT * FROM things ORDER BY id", nil)
		check(u.T, err)
		var things []struct {
			N int `json:"n"`
		}
		check(u.T, rows.Scan(&things))
		if len(things) != 2 || things[1].N != 8 || rows.All()[0].ID.String() != "things:1" {
			u.Fatalf("%v %v", things, rows.All())
		}
		rows, err = u.db.Query(u.Context(), "SELECT * FROM things:3", nil)
		check(u.T, err)
		want(u.T, rows.Scan(&struct{}{}), fault.NotFound)
	}},
	{"an append answers its message", func(u *user) {
		u.exec("DEFINE TOPIC events DEDUPLICATE 1h ON k MAX BYTES 64")
		before := time.Now().Add(-time.Minute)
		ctx := tidemark.WithHeaders(u.Context(), map[string]string{"caller": "test"})
		m, appended, err := u.db.Topic("events").Append(ctx, map[string]any{"k": 1})
		check(u.T, err)
		if !appended || m.Position() != 1 || m.ID().Table != "events" || m.Appended().Before(before) {
			u.Fatalf("%v %d %s %s", appended, m.Position(), m.ID(), m.Appended())
		}
		if _, appended, err = u.db.Topic("events").Append(u.Context(), map[string]any{"k": 1}); err != nil || appended {
			u.Fatalf("what deduplication keeps out is appended %v %v", appended, err)
		}
		if m, _, err = u.db.Topic("events").Append(u.Context(), map[string]any{"k": 2}, tidemark.WithKey("evt-1")); err != nil || m.ID().String() != "events:'evt-1'" || m.Appended().Before(before) {
			u.Fatalf("%v %s %v", m, m.Appended(), err)
		}
		_, _, err = u.db.Topic("events").Append(u.Context(), map[string]any{"k": 3}, tidemark.WithKey("evt-1"))
		want(u.T, err, fault.RecordExists)
		_, _, err = u.db.Topic("events").Append(u.Context(), map[string]any{"k": string(make([]byte, 99))})
		want(u.T, err, fault.TopicMessageTooLarge)
		_, _, err = u.db.Topic("nothing").Append(u.Context(), 1)
		want(u.T, err, fault.NotFound)

		page, err := u.db.Topic("events").Read(u.Context(), tidemark.ReadOptions{})
		check(u.T, err)
		if len(page.Messages) != 2 || page.Messages[0].Headers()["caller"] != "test" || page.Messages[1].Headers() != nil {
			u.Fatalf("headers %v", page.Messages[0].Headers())
		}
		if named := page.Messages[1]; !named.Appended().Equal(m.Appended()) || named.Appended().Before(page.Messages[0].Appended()) {
			u.Fatalf("the named message was appended at %s, and is read as of %s", m.Appended(), named.Appended())
		}
		var event struct {
			K int `json:"k"`
		}
		if err := page.Messages[1].Scan(&event); err != nil || event.K != 2 {
			u.Fatalf("%v %v", event, err)
		}
	}},
	{"appends of one caller keep their order", func(u *user) {
		u.exec("DEFINE TOPIC events")
		const count = 3000
		var told sync.WaitGroup
		var failed atomic.Int64
		positions := make([]uint64, count)
		for n := range count {
			told.Add(1)
			check(u.T, u.db.Topic("events").AppendAsync(u.Context(), n, func(m tidemark.Message, appended bool, err error) {
				defer told.Done()
				if err != nil || !appended {
					failed.Add(1)
					return
				}
				positions[n] = m.Position()
			}))
		}
		told.Wait()
		if failed.Load() > 0 || !slices.IsSorted(positions) || positions[count-1] != count {
			u.Fatalf("%d failed; the last is at %d", failed.Load(), positions[count-1])
		}
		var got []int
		for after := uint64(0); len(got) < count; after = uint64(len(got)) {
			page, err := u.db.Topic("events").Read(u.Context(), tidemark.ReadOptions{After: after, Limit: 1000})
			check(u.T, err)
			for _, m := range page.Messages {
				var n int
				check(u.T, m.Scan(&n))
				got = append(got, n)
			}
		}
		if !slices.IsSorted(got) {
			u.Fatal("they are not in order")
		}
	}},
	{"a read waits, and is told what lapsed", func(u *user) {
		u.exec("DEFINE TOPIC events RETAIN BYTES 3")
		read := make(chan tidemark.Page)
		go func() {
			page, err := u.db.Topic("events").Read(u.Context(), tidemark.ReadOptions{Wait: time.Minute})
			if err != nil {
				u.Error(err)
			}
			read <- page
		}()
		u.exec("CREATE events = 1")
		if page := <-read; len(page.Messages) != 1 || page.Messages[0].Position() != 1 {
			u.Fatalf("%v", page)
		}
		u.exec("INSERT INTO events [2, 3, 4]; CREATE events = 5")
		page, err := u.db.Topic("events").Read(u.Context(), tidemark.ReadOptions{})
		check(u.T, err)
		if page.Lapsed != 2 || len(page.Messages) != 3 {
			u.Fatalf("lapsed %d, %d messages", page.Lapsed, len(page.Messages))
		}
		started := time.Now()
		page, err = u.db.Topic("events").Read(u.Context(), tidemark.ReadOptions{After: 5, Wait: 50 * time.Millisecond})
		if err != nil || len(page.Messages) != 0 || time.Since(started) < 50*time.Millisecond {
			u.Fatalf("%v %v after %s", page, err, time.Since(started))
		}
		_, err = u.db.Topic("events").Read(u.Context(), tidemark.ReadOptions{Limit: 10_001})
		want(u.T, err, fault.InvalidClause)
		ctx, cancel := context.WithTimeout(u.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err = u.db.Topic("events").Read(ctx, tidemark.ReadOptions{After: 5, Wait: time.Minute}); err == nil {
			u.Fatal("a read outlasts its context")
		}
	}},
	{"a transaction commits whole or not at all", func(u *user) {
		u.exec("DEFINE TOPIC events; DEFINE SPACE things; UPSERT things:'n' = 0")
		tx, err := u.db.Begin(u.Context())
		check(u.T, err)
		check(u.T, tx.Put(u.Context(), "things", "a", 1))
		check(u.T, tx.Append(u.Context(), "events", 1))
		check(u.T, tx.Append(u.Context(), "events", 2, tidemark.WithKey(2)))
		rows, err := tx.Query(u.Context(), "SELECT * FROM things:'a'", nil)
		if err != nil || rows.Len() != 1 {
			u.Fatalf("it does not see its own write: %v", err)
		}
		appended, err := tx.Commit(u.Context())
		check(u.T, err)
		if appended["events"] != (tidemark.Appended{First: 1, Last: 2}) {
			u.Fatalf("appended %v", appended)
		}
		_, err = tx.Exec(u.Context(), "SELECT 1", nil)
		if err == nil {
			if _, err = tx.Commit(u.Context()); err == nil {
				u.Fatal("a transaction that ended goes on")
			}
		}
		tx.Cancel()

		tx, err = u.db.Begin(u.Context())
		check(u.T, err)
		check(u.T, tx.Put(u.Context(), "things", "b", 1))
		tx.Cancel()
		equal(u.T, "after a cancel", u.ints("SELECT * FROM things:'b'"), nil)

		// Two that count at once: one is run again.
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				for range 20 {
					err := u.db.Transact(u.Context(), func(tx *tidemark.Tx) error {
						rows, err := tx.Query(u.Context(), "SELECT * FROM things:'n'", nil)
						if err != nil {
							return err
						}
						var n int
						if err := rows.Scan(&n); err != nil {
							return err
						}
						return tx.Put(u.Context(), "things", "n", n+1)
					})
					if err != nil {
						u.Error(err)
					}
				}
			})
		}
		both.Wait()
		equal(u.T, "counted", u.ints("SELECT * FROM things:'n'"), []int{40})

		enough := errors.New("enough")
		err = u.db.Transact(u.Context(), func(tx *tidemark.Tx) error {
			check(u.T, tx.Put(u.Context(), "things", "c", 1))
			return enough
		})
		if !errors.Is(err, enough) || len(u.ints("SELECT * FROM things:'c'")) != 0 {
			u.Fatalf("work that failed: %v", err)
		}

		one, err := u.db.Begin(u.Context())
		check(u.T, err)
		check(u.T, one.Put(u.Context(), "things", "n", 100))
		u.exec("UPSERT things:'n' = 200")
		if _, err = one.Commit(u.Context()); !tidemark.IsConflict(err) {
			u.Fatalf("want a conflict, got %v", err)
		}
	}},
	{"a consumer's effect and position are one", func(u *user) {
		u.exec("DEFINE TOPIC events; DEFINE SPACE effects; INSERT INTO events [1, 2, 3]")
		topic := u.db.Topic("events")
		poisoned := errors.New("poisoned")
		err := topic.Consume(u.Context(), "billing", func(ctx context.Context, tx *tidemark.Tx, messages []tidemark.Message) error {
			check(u.T, tx.Put(ctx, "effects", int(messages[0].Position()), 1))
			return poisoned
		}, tidemark.ConsumeOptions{})
		if !errors.Is(err, poisoned) || len(u.ints("SELECT * FROM effects")) != 0 {
			u.Fatalf("%v, and an effect", err)
		}
		ctx, stop := context.WithCancel(u.Context())
		consumed := make(chan error)
		go func() {
			consumed <- topic.Consume(ctx, "billing", func(ctx context.Context, tx *tidemark.Tx, messages []tidemark.Message) error {
				for _, m := range messages {
					if err := tx.Put(ctx, "effects", int(m.Position()), int(m.Position())); err != nil {
						return err
					}
					if m.Position() == 5 {
						stop()
					}
				}
				return nil
			}, tidemark.ConsumeOptions{Batch: 2})
		}()
		// The first three were there; for the others it waits.
		nodetest.Eventually(u, patience, func() bool { return len(u.ints("SELECT * FROM effects")) == 3 }, "the first three are consumed")
		u.exec("INSERT INTO events [4, 5]")
		check(u.T, <-consumed)
		equal(u.T, "effects", u.ints("SELECT * FROM effects ORDER BY id"), []int{1, 2, 3, 4, 5})
		equal(u.T, "left", u.ints("READ FROM events FOR CONSUMER 'billing'"), nil)
	}},
	{"a group hands out and settles", func(u *user) {
		u.exec(`DEFINE TOPIC dead; DEFINE TOPIC mail; INSERT INTO mail [1, 2, 3, 4, 5, 6];
			DEFINE GROUP 'g' ON TOPIC mail ACK DEADLINE 1h IN FLIGHT 10 DELIVERIES 5 DEAD LETTER TO dead`)
		g := u.db.Topic("mail").Group("g")
		page, err := g.Read(u.Context(), 6, 0)
		check(u.T, err)
		m := page.Messages
		if len(m) != 6 || m[0].Deliveries() != 1 {
			u.Fatalf("%v", m)
		}
		for i, settle := range []func() (int, error){
			func() (int, error) { return g.Ack(u.Context(), m[0]) },
			func() (int, error) { return g.Nack(u.Context(), m[1]) },
			func() (int, error) { return g.NackAfter(u.Context(), time.Hour, m[2]) },
			func() (int, error) { return g.Extend(u.Context(), time.Hour, m[3]) },
			func() (int, error) { return g.Reject(u.Context(), "no", m[4]) },
			func() (int, error) { return g.Release(u.Context(), m[5]) },
		} {
			if count, err := settle(); err != nil || count != 1 {
				u.Fatalf("settlement %d counts %d %v", i, count, err)
			}
		}
		again, err := g.Read(u.Context(), 10, 0)
		check(u.T, err)
		if len(again.Messages) != 2 || again.Messages[0].Position() != 2 || again.Messages[0].Deliveries() != 2 || again.Messages[1].Position() != 6 {
			u.Fatalf("handed out again: %v", again.Messages)
		}
		// The first hand-out of 2 is not what is out now.
		if count, err := g.Ack(u.Context(), m[1]); err != nil || count != 0 {
			u.Fatalf("a late ack counts %d %v", count, err)
		}
		if count, err := g.Ack(u.Context(), append(again.Messages, m[0])...); err != nil || count != 2 {
			u.Fatalf("acks count %d %v", count, err)
		}
		if _, err := g.NackAfter(u.Context(), -1, m[3]); err == nil {
			u.Fatal("a negative delay")
		}
		dead, err := u.db.Topic("dead").Read(u.Context(), tidemark.ReadOptions{})
		check(u.T, err)
		var letter struct {
			Reason string `json:"reason"`
			Value  int    `json:"value"`
		}
		check(u.T, dead.Messages[0].Scan(&letter))
		if letter.Reason != "no" || letter.Value != 5 {
			u.Fatalf("dead letter %v", letter)
		}
		_, err = u.db.Topic("mail").Group("nobody").Ack(u.Context(), m[0])
		want(u.T, err, fault.NotAGroup)
	}},
	{"a group in a transaction settles with it", func(u *user) {
		u.exec(`DEFINE TOPIC mail; DEFINE SPACE effects; INSERT INTO mail [1, 2]; DEFINE GROUP 'g' ON TOPIC mail ACK DEADLINE 1h IN FLIGHT 10`)
		g := u.db.Topic("mail").Group("g")
		check(u.T, u.db.Transact(u.Context(), func(tx *tidemark.Tx) error {
			page, err := g.In(tx).Read(u.Context(), 1, 0)
			check(u.T, err)
			check(u.T, tx.Put(u.Context(), "effects", 1, 1))
			_, err = g.In(tx).Ack(u.Context(), page.Messages...)
			return err
		}))
		page, err := g.Read(u.Context(), 10, 0)
		if err != nil || len(page.Messages) != 1 || page.Messages[0].Position() != 2 {
			u.Fatalf("%v %v", page, err)
		}
		equal(u.T, "effects", u.ints("SELECT * FROM effects"), []int{1})
	}},
	{"a subscriber is pushed what commits", func(u *user) {
		u.exec("DEFINE TOPIC events; INSERT INTO events [1, 2]")
		var got []int
		for page, err := range u.db.Topic("events").Follow(u.Context(), tidemark.FollowOptions{After: 1}) {
			check(u.T, err)
			for _, m := range page.Messages {
				got = append(got, int(m.Position()))
			}
			if len(got) == 2 {
				break
			}
			u.exec("CREATE events = 3")
		}
		equal(u.T, "followed", got, []int{2, 3})

		// What is there already is not new.
		ctx, stop := context.WithCancel(u.Context())
		defer stop()
		appended := make(chan struct{})
		go func() {
			defer close(appended)
			for ctx.Err() == nil {
				u.exec("CREATE events = 4")
			}
		}()
		for page, err := range u.db.Topic("events").Follow(ctx, tidemark.FollowOptions{New: true}) {
			check(u.T, err)
			if page.Messages[0].Position() <= 3 {
				u.Errorf("position %d is new", page.Messages[0].Position())
			}
			stop()
		}
		<-appended
	}},
	{"a loop over a subscription ends with the topic", func(u *user) {
		u.exec("DEFINE TOPIC events")
		dropped := make(chan error, 1)
		go func() {
			for page, err := range u.db.Topic("events").Follow(u.Context(), tidemark.FollowOptions{}) {
				if err != nil {
					dropped <- err
					return
				}
				if len(page.Messages) != 1 {
					u.Errorf("%v", page)
				}
				u.exec("DROP TOPIC events")
			}
			dropped <- nil
		}()
		u.exec("CREATE events = 1")
		want(u.T, <-dropped, fault.NotFound)
	}},
}

func TestMain(m *testing.M) { postgrestest.Main(m, nodetest.Remove) }
