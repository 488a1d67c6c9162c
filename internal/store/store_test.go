package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture is a store in memory with one database, on a clock that moves by
// hand and without housekeeping but when asked for.
type fixture struct {
	*testing.T
	store *store.Store
	db    *store.Database
	clock *clock
	ctx   context.Context
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	leaveNothingRunning(t)
	c := newClock()
	e, err := pebble.OpenMemory(pebble.Options{Clock: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	s, err := store.Open(ctx, e, store.Options{HousekeepingEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	f := &fixture{T: t, store: s, clock: c, ctx: ctx}
	f.must(s.DefineNamespace(ctx, "shop", false))
	f.must(s.DefineDatabase(ctx, "shop", "orders", false))
	f.db, err = s.Database(ctx, "shop", "orders")
	f.must(err)
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) wantKind(err error, kind fault.Kind) {
	f.Helper()
	if !errors.Is(err, kind) {
		f.Fatalf("want %s, got %v", kind, err)
	}
}

func (f *fixture) transact(work func(tx *store.Tx) error) (map[string]store.Appended, error) {
	f.Helper()
	tx, err := f.db.Begin(f.ctx)
	f.must(err)
	defer tx.Cancel()
	if err := work(tx); err != nil {
		return nil, err
	}
	return tx.Commit(f.ctx)
}

func (f *fixture) defineTopic(name string, definition topic.TopicDefinition) {
	f.Helper()
	_, err := f.transact(func(tx *store.Tx) error {
		return tx.DefineTable(f.ctx, store.Table{Name: name, Kind: store.Topic, Topic: definition}, store.Refuse)
	})
	f.must(err)
}

func (f *fixture) defineGroup(topicName, name string, definition topic.GroupDefinition) {
	f.Helper()
	_, err := f.transact(func(tx *store.Tx) error {
		return tx.DefineGroup(f.ctx, topicName, name, definition, nil, store.Refuse)
	})
	f.must(err)
}

func message(text string) store.NewMessage { return store.NewMessage{Value: value.String(text)} }

func (f *fixture) append(topicName string, texts ...string) []store.Message {
	f.Helper()
	messages := make([]store.NewMessage, len(texts))
	for i, text := range texts {
		messages[i] = message(text)
	}
	appended, err := f.db.Append(f.ctx, topicName, messages...)
	f.must(err)
	return appended
}

func (f *fixture) read(topicName string, options store.ReadOptions) store.Page {
	f.Helper()
	page, err := f.db.Read(f.ctx, topicName, options, 0)
	f.must(err)
	return page
}

// wantMessages compares a page with positions and texts written "1:a 2:b".
func (f *fixture) wantMessages(page store.Page, want string, lapsed uint64) {
	f.Helper()
	got := ""
	for i, m := range page.Messages {
		v, err := m.Value()
		f.must(err)
		text, _ := v.AsString()
		if i > 0 {
			got += " "
		}
		got += fmt.Sprintf("%d:%s", m.Position, text)
	}
	if got != want || page.Lapsed != lapsed {
		f.Fatalf("want %q lapsed %d, got %q lapsed %d", want, lapsed, got, page.Lapsed)
	}
}

func after(n topic.Position) *topic.Position { return &n }

func TestPositionsAreDenseInTheOrderOfCommits(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("events", topic.TopicDefinition{})
	f.append("events", "a", "b")
	appended, err := f.transact(func(tx *store.Tx) error {
		table, err := tx.Catalog().TopicTable("events")
		f.must(err)
		_, _, err = tx.Append(f.ctx, table, value.None(), value.String("c"))
		f.must(err)
		// The transaction's own appends have no position and are not read.
		page, err := tx.Read(f.ctx, table, store.ReadOptions{After: after(2)})
		f.must(err)
		f.wantMessages(page, "", 0)
		// Another appends and commits first.
		f.append("events", "between")
		_, _, err = tx.Append(f.ctx, table, value.None(), value.String("d"))
		return err
	})
	f.must(err)
	if appended["events"] != (store.Appended{First: 4, Last: 5}) {
		t.Fatalf("appended at %v", appended)
	}
	f.wantMessages(f.read("events", store.ReadOptions{}), "1:a 2:b 3:between 4:c 5:d", 0)
}

func TestAnIdentityIsFoundByItsKeyAndTakenOnce(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("events", topic.TopicDefinition{})
	sealed := f.append("events", "a", "b")
	_, err := f.db.Append(f.ctx, "events", store.NewMessage{Key: value.String("evt"), Value: value.String("named")})
	f.must(err)
	_, err = f.db.Append(f.ctx, "events", store.NewMessage{Key: value.String("evt"), Value: value.String("again")})
	f.wantKind(err, fault.RecordExists)
	_, err = f.db.Append(f.ctx, "events", store.NewMessage{Key: sealed[1].Key(), Value: value.String("again")})
	f.wantKind(err, fault.RecordExists)
	if _, err := f.transact(func(tx *store.Tx) error {
		table, err := tx.Catalog().TopicTable("events")
		f.must(err)
		for key, want := range map[value.Value]topic.Position{sealed[1].Key(): 2, value.String("evt"): 3} {
			row, found, err := tx.Get(f.ctx, table, key)
			f.must(err)
			if !found || row.Position != want {
				t.Errorf("%s: found %v at %d, want %d", key, found, row.Position, want)
			}
		}
		_, found, err := tx.Get(f.ctx, table, value.String("nobody"))
		f.must(err)
		if found {
			t.Error("found what is not there")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestAReadersPlaceCommitsWithItsEffect(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("events", topic.TopicDefinition{})
	f.append("events", "a", "b", "c")
	consume := func(tx *store.Tx) store.Page {
		table, err := tx.Catalog().TopicTable("events")
		f.must(err)
		page, err := tx.Read(f.ctx, table, store.ReadOptions{Consumer: "billing", Limit: 2})
		f.must(err)
		return page
	}
	lost, err := f.db.Begin(f.ctx)
	f.must(err)
	f.wantMessages(consume(lost), "1:a 2:b", 0)
	_, err = f.transact(func(tx *store.Tx) error {
		f.wantMessages(consume(tx), "1:a 2:b", 0)
		return nil
	})
	f.must(err)
	_, err = lost.Commit(f.ctx)
	f.wantKind(err, fault.Conflict)
	f.wantMessages(f.read("events", store.ReadOptions{Consumer: "billing"}), "3:c", 0)
	f.wantMessages(f.read("events", store.ReadOptions{Consumer: "billing"}), "", 0)
	f.wantMessages(f.read("events", store.ReadOptions{Consumer: "billing", After: after(0), Limit: 1}), "1:a", 0)
	_, err = f.db.Read(f.ctx, "events", store.ReadOptions{Consumer: "billing", After: after(4)}, 0)
	f.wantKind(err, fault.InvalidClause)
}

func TestRetentionBySizeTellsWhatItTook(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("ring", topic.TopicDefinition{RetainBytes: 10})
	f.append("ring", "aaaa", "bbbb") // 5 bytes each, encoded
	f.wantMessages(f.read("ring", store.ReadOptions{Consumer: "r", Limit: 1}), "1:aaaa", 0)
	f.append("ring", "cccc")
	f.append("ring", "dddd")
	f.wantMessages(f.read("ring", store.ReadOptions{After: after(0)}), "3:cccc 4:dddd", 2)
	f.wantMessages(f.read("ring", store.ReadOptions{Consumer: "r", Limit: 1}), "3:cccc", 1)
	f.wantMessages(f.read("ring", store.ReadOptions{Consumer: "r", Limit: 1}), "4:dddd", 0)
	_, err := f.db.Append(f.ctx, "ring", message("eeee"), message("ffff"), message("gggg"))
	f.wantKind(err, fault.TopicRetainExceeded)
	f.must(f.store.Housekeep(f.ctx))
	f.wantMessages(f.read("ring", store.ReadOptions{After: after(0)}), "3:cccc 4:dddd", 2)
}

func TestRetentionByAgeNeverReusesAPosition(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("aged", topic.TopicDefinition{Retain: time.Minute})
	f.append("aged", "a", "b")
	f.clock.advance(59 * time.Second)
	f.must(f.store.Housekeep(f.ctx))
	f.wantMessages(f.read("aged", store.ReadOptions{}), "1:a 2:b", 0)
	f.clock.advance(time.Second)
	f.must(f.store.Housekeep(f.ctx))
	f.wantMessages(f.read("aged", store.ReadOptions{}), "", 2)
	f.must(f.store.Housekeep(f.ctx))
	f.append("aged", "c")
	f.wantMessages(f.read("aged", store.ReadOptions{Consumer: "c"}), "3:c", 2)
}

func TestAKeyIsPublishedOnceWithinItsWindow(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("payments", topic.TopicDefinition{Deduplicate: &topic.Deduplication{Window: time.Minute, Field: "id"}})
	pay := func(id string) store.NewMessage {
		return store.NewMessage{Value: value.Fields(value.Object{"id": value.String(id)})}
	}
	appended, err := f.db.Append(f.ctx, "payments", pay("p1"), pay("p1"), pay("p2"))
	f.must(err)
	if len(appended) != 2 || appended[1].Position != 2 {
		t.Fatalf("appended %v", appended)
	}
	// Two transactions with one key: both commit, one appends.
	first, err := f.db.Begin(f.ctx)
	f.must(err)
	second, err := f.db.Begin(f.ctx)
	f.must(err)
	for _, tx := range []*store.Tx{first, second} {
		table, err := tx.Catalog().TopicTable("payments")
		f.must(err)
		_, ok, err := tx.Append(f.ctx, table, value.None(), pay("p3").Value)
		f.must(err)
		if !ok {
			t.Fatal("kept out before anybody published it")
		}
	}
	positions, err := first.Commit(f.ctx)
	f.must(err)
	if positions["payments"].First != 3 {
		t.Fatalf("appended at %v", positions)
	}
	positions, err = second.Commit(f.ctx)
	f.must(err)
	if len(positions) != 0 {
		t.Fatalf("appended twice, at %v", positions)
	}
	f.clock.advance(time.Minute)
	f.must(f.store.Housekeep(f.ctx))
	appended, err = f.db.Append(f.ctx, "payments", pay("p1"))
	f.must(err)
	if len(appended) != 1 || appended[0].Position != 4 {
		t.Fatalf("appended %v", appended)
	}
}

func TestKeysOfAnotherFieldKeepNothingOutAlsoInTheTransactionThatChangesIt(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("payments", topic.TopicDefinition{Deduplicate: &topic.Deduplication{Window: time.Minute, Field: "id"}})
	_, err := f.db.Append(f.ctx, "payments", store.NewMessage{Value: value.Fields(value.Object{"id": value.String("p1")})})
	f.must(err)
	positions, err := f.transact(func(tx *store.Tx) error {
		f.must(tx.AlterTopic(f.ctx, "payments", func(d *topic.TopicDefinition) error {
			d.Deduplicate = &topic.Deduplication{Window: time.Minute, Field: "order"}
			return nil
		}))
		table, err := tx.Catalog().TopicTable("payments")
		f.must(err)
		_, appended, err := tx.Append(f.ctx, table, value.None(), value.Fields(value.Object{"order": value.String("p1")}))
		f.must(err)
		if !appended {
			t.Fatal("kept out by a key of another field")
		}
		return nil
	})
	f.must(err)
	if positions["payments"].First != 2 {
		t.Fatalf("appended at %v", positions)
	}
}

func TestAGroupHandsOutSettlesAndGivesUp(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("mail", topic.TopicDefinition{})
	f.defineTopic("dead", topic.TopicDefinition{})
	f.append("mail", "a", "b", "c")
	f.defineGroup("mail", "g", topic.GroupDefinition{AckDeadline: time.Second, InFlight: 2, Deliveries: 2, DeadLetter: "dead"})
	as := store.ReadOptions{Consumer: "g"}
	f.wantMessages(f.read("mail", as), "1:a 2:b", 0)
	f.wantMessages(f.read("mail", as), "", 0)
	settle := func(kind store.SettlementKind, positions ...topic.Position) int {
		var at []topic.Settle
		for _, p := range positions {
			at = append(at, topic.Settle{Position: p})
		}
		count, err := f.db.Settle(f.ctx, "mail", "g", store.Settlement{Kind: kind, At: at})
		f.must(err)
		return count
	}
	if count := settle(store.Acknowledge, 2, 2, 3); count != 1 {
		t.Fatalf("acknowledged %d", count)
	}
	f.wantMessages(f.read("mail", as), "3:c", 0)
	settle(store.Acknowledge, 3)
	f.clock.advance(time.Second)
	f.wantMessages(f.read("mail", as), "1:a", 0)
	f.clock.advance(time.Second)
	f.wantMessages(f.read("mail", as), "", 0)
	page := f.read("dead", store.ReadOptions{})
	if len(page.Messages) != 1 {
		t.Fatalf("dead letters: %v", page)
	}
	letter, err := page.Messages[0].Value()
	f.must(err)
	want := `{ deliveries: 2, group: 'g', position: 1, topic: 'mail', value: 'a' }`
	if letter.String() != want {
		t.Fatalf("dead letter %s, want %s", letter, want)
	}
}

func TestATransactionsHandOutAndAcknowledgementCommitTogether(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("mail", topic.TopicDefinition{})
	f.append("mail", "a", "b")
	f.defineGroup("mail", "g", topic.GroupDefinition{AckDeadline: time.Second, InFlight: 10})
	handle := func(commit bool) {
		tx, err := f.db.Begin(f.ctx)
		f.must(err)
		defer tx.Cancel()
		table, err := tx.Catalog().TopicTable("mail")
		f.must(err)
		page, err := tx.Read(f.ctx, table, store.ReadOptions{Consumer: "g", Limit: 1})
		f.must(err)
		f.wantMessages(page, "1:a", 0)
		count, err := tx.Settle(f.ctx, table, "g", store.Settlement{At: []topic.Settle{{Position: 1}}})
		f.must(err)
		if count != 1 {
			t.Fatalf("acknowledged %d", count)
		}
		if commit {
			_, err = tx.Commit(f.ctx)
			f.must(err)
		}
	}
	handle(false)
	handle(true)
	f.wantMessages(f.read("mail", store.ReadOptions{Consumer: "g"}), "2:b", 0)
}

func TestAGroupIsReadAndMovedInTheTransactionThatDefinesIt(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("mail", topic.TopicDefinition{})
	f.append("mail", "a", "b", "c")
	_, err := f.transact(func(tx *store.Tx) error {
		definition := topic.GroupDefinition{AckDeadline: time.Second, InFlight: 1}
		f.must(tx.DefineGroup(f.ctx, "mail", "g", definition, nil, store.Refuse))
		f.must(tx.StartAt(f.ctx, "mail", "g", 1))
		table, err := tx.Catalog().TopicTable("mail")
		f.must(err)
		page, err := tx.Read(f.ctx, table, store.ReadOptions{Consumer: "g"})
		f.must(err)
		f.wantMessages(page, "2:b", 0)
		return nil
	})
	f.must(err)
	f.wantMessages(f.read("mail", store.ReadOptions{Consumer: "g"}), "", 0)
	f.clock.advance(time.Second)
	f.wantMessages(f.read("mail", store.ReadOptions{Consumer: "g"}), "2:b", 0)
}

func TestADroppedTopicLeavesNothingBehind(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("events", topic.TopicDefinition{})
	f.append("events", "a")
	f.read("events", store.ReadOptions{Consumer: "r"})
	_, err := f.transact(func(tx *store.Tx) error { return tx.DropTable(f.ctx, store.Topic, "events") })
	f.must(err)
	_, err = f.db.Read(f.ctx, "events", store.ReadOptions{}, 0)
	f.wantKind(err, fault.NotFound)
	f.defineTopic("events", topic.TopicDefinition{})
	f.append("events", "b")
	f.wantMessages(f.read("events", store.ReadOptions{Consumer: "r"}), "1:b", 0)
}

func TestAWaitingReadEndsWithTheFirstMessage(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("events", topic.TopicDefinition{})
	var waiting sync.WaitGroup
	for i := range 20 {
		waiting.Go(func() {
			options := store.ReadOptions{}
			if i%2 == 0 {
				options.Consumer = fmt.Sprintf("reader-%d", i)
			}
			page, err := f.db.Read(f.ctx, "events", options, time.Minute)
			if err != nil || len(page.Messages) != 1 {
				t.Errorf("read %v, %v", page, err)
			}
		})
	}
	f.append("events", "a")
	waiting.Wait()
}

func TestManyAppendersShareCommitsAndLoseNothing(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("events", topic.TopicDefinition{})
	const appenders, each = 32, 200
	var done sync.WaitGroup
	for range appenders {
		done.Go(func() {
			for range each {
				if _, err := f.db.Append(f.ctx, "events", message("m")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	var next topic.Position = 1
	for {
		page := f.read("events", store.ReadOptions{After: after(next - 1), Limit: store.MaxReadLimit})
		if len(page.Messages) == 0 {
			break
		}
		for _, m := range page.Messages {
			if m.Position != next {
				t.Fatalf("position %d follows %d", m.Position, next-1)
			}
			next++
		}
	}
	if next != appenders*each+1 {
		t.Fatalf("%d messages", next-1)
	}
}

func TestADroppedDatabaseIsNotFoundByThoseWhoUseIt(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("events", topic.TopicDefinition{})
	ended := make(chan error, 1)
	go func() {
		_, err := f.db.Read(f.ctx, "events", store.ReadOptions{}, time.Minute)
		ended <- err
	}()
	f.must(f.store.DropDatabase(f.ctx, "shop", "orders"))
	f.wantKind(<-ended, fault.NotFound)
	_, err := f.db.Append(f.ctx, "events", message("late"))
	f.wantKind(err, fault.NotFound)
	_, err = f.db.Begin(f.ctx)
	f.wantKind(err, fault.NotFound)
}

func TestAChangedDeduplicationForgetsTheKeysOfTheOldField(t *testing.T) {
	f := newFixture(t)
	f.defineTopic("payments", topic.TopicDefinition{Deduplicate: &topic.Deduplication{Window: time.Hour, Field: "a"}})
	pay := store.NewMessage{Value: value.Fields(value.Object{"a": value.Int(1), "b": value.Int(1)})}
	alter := func(field string) {
		_, err := f.transact(func(tx *store.Tx) error {
			return tx.AlterTopic(f.ctx, "payments", func(d *topic.TopicDefinition) error {
				d.Deduplicate = &topic.Deduplication{Window: time.Hour, Field: field}
				return nil
			})
		})
		f.must(err)
	}
	for _, step := range []struct {
		field string
		kept  int
	}{{"a", 1}, {"a", 0}, {"b", 1}, {"b", 0}, {"a", 1}} {
		alter(step.field)
		appended, err := f.db.Append(f.ctx, "payments", pay)
		f.must(err)
		if len(appended) != step.kept {
			t.Fatalf("deduplicated on %s: appended %d, want %d", step.field, len(appended), step.kept)
		}
	}
}
