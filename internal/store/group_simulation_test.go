package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// A group of a store does what the plain model does, through commits,
// transactions, retention and restarts, whatever its definition and however the
// clock jumps; and INFO's numbers add up after every step. More steps by
// -rapid.checks and -rapid.steps.
func TestAGroupInAStoreDoesWhatThePlainModelDoes(t *testing.T) {
	leaveNothingRunning(t)
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulation(t)
		defer s.close(t)
		t.Repeat(map[string]func(*rapid.T){
			"":       s.check,
			"append": s.append, "append more": s.append,
			"hand out": s.handOut, "hand out again": s.handOut,
			"settle": s.settle, "settle more": s.settle,
			"advance": s.advance, "keep house": s.keepHouse,
			"audit": s.audit,
			"begin": s.begin, "commit": s.commit,
			"hand out in a transaction": s.handOutInTransaction,
			"settle in a transaction":   s.settleInTransaction,
			"append in a transaction":   s.appendInTransaction,
			"rarely":                    s.rarely,
		})
	})
}

// The names of what the simulation defines.
const (
	simulatedTopic = "mail"
	simulatedGroup = "mailer"
	auditReader    = "audit"
	deadTopic      = "dead"
	effectsTable   = "effects"
)

// largestLetterBytes is MAX BYTES of the dead letter topic where it has one:
// room for every letter but those of large messages.
const largestLetterBytes = 250

const rejectReason = "broken"

// simulation is a store under test and the model beside it.
type simulation struct {
	ctx    context.Context
	clock  *clock
	memory *vfs.MemFS
	store  *store.Store
	db     *store.Database

	model *groupModel
	open  []*openTransaction
	// groupCommits and definitions count the commits that changed the group,
	// and those that changed a definition: what a transaction may lose to.
	groupCommits, definitions int
	// numbers counts messages, transactions those that began.
	numbers, transactions int64
	// mostOut is how many messages may be out: IN FLIGHT, or what was out
	// when the group was narrowed, until it has emptied.
	mostOut int
	// letters is how many dead letters there are; deadBounded and deadDefined
	// say what their topic takes.
	letters                  topic.Position
	deadBounded, deadDefined bool
}

// openTransaction is one that has not committed.
type openTransaction struct {
	tx *store.Tx
	// base is the model when it began, model what it made of it.
	base, model               *groupModel
	groupCommits, definitions int
	appends                   []modelContent
	givenUp                   []topic.GiveUp
	// changed says that it changed the group.
	changed bool
	effect  value.Value
}

func newSimulation(t *rapid.T) *simulation {
	s := &simulation{ctx: context.Background(), clock: newClock(), memory: vfs.NewCrashableMem()}
	s.openStore(t)
	must(t, s.store.DefineNamespace(s.ctx, "shop", false))
	must(t, s.store.DefineDatabase(s.ctx, "shop", "orders", false))
	s.findDatabase(t)
	s.model = newGroupModel(s.clock.Now())
	s.model.bounds = drawBounds(t)
	s.define(t, func(tx *store.Tx) error {
		must(t, tx.DefineTable(s.ctx, store.Table{Name: simulatedTopic, Kind: store.Topic, Topic: s.model.bounds}, store.Refuse))
		return tx.DefineTable(s.ctx, store.Table{Name: effectsTable, Kind: store.Collection}, store.Refuse)
	})
	s.defineDeadTopic(t)
	// The group takes over the place of a reader of its name.
	s.append(t)
	page := s.readAs(t, simulatedGroup, rapid.IntRange(1, 3).Draw(t, "read before the group"))
	s.model.begin(topic.Position(len(page.Messages)) + topic.Position(page.Lapsed))
	s.defineGroup(t)
	return s
}

func must(t *rapid.T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

func (s *simulation) openStore(t *rapid.T) {
	e, err := pebble.Open("store", pebble.Options{FS: s.memory, Clock: s.clock.Now, MemTableBytes: 256 << 10, CacheBytes: 1 << 20})
	must(t, err)
	s.store, err = store.Open(s.ctx, e, store.Options{HousekeepingEvery: -1})
	must(t, err)
}

func (s *simulation) findDatabase(t *rapid.T) {
	var err error
	s.db, err = s.store.Database(s.ctx, "shop", "orders")
	must(t, err)
}

func (s *simulation) close(t *rapid.T) {
	for _, o := range s.open {
		o.tx.Cancel()
	}
	s.open = nil
	must(t, s.store.Close())
}

func drawBounds(t *rapid.T) (d topic.TopicDefinition) {
	if rapid.Bool().Draw(t, "retains bytes") {
		d.RetainBytes = rapid.Int64Range(60, 1500).Draw(t, "RETAIN BYTES")
	}
	if rapid.Bool().Draw(t, "retains by age") {
		d.Retain = drawSeconds(t, "RETAIN", 5, 60)
	}
	if rapid.Bool().Draw(t, "deduplicates") {
		d.Deduplicate = &topic.Deduplication{Field: "id", Window: drawSeconds(t, "window", 1, 30)}
	}
	return d
}

// redraw is what ALTER GROUP may change.
func redraw(t *rapid.T, d topic.GroupDefinition) topic.GroupDefinition {
	d.AckDeadline = drawSeconds(t, "ACK DEADLINE", 1, 20)
	d.Deliveries = rapid.IntRange(1, 3).Draw(t, "DELIVERIES")
	d.InFlight = rapid.IntRange(1, 6).Draw(t, "IN FLIGHT")
	d.DeadLetter = deadTopic
	if rapid.IntRange(0, 2).Draw(t, "no dead letters") == 0 {
		d.DeadLetter, d.Deliveries = "", rapid.IntRange(0, 2).Draw(t, "DELIVERIES")
	}
	d.Backoff = nil
	for range rapid.IntRange(0, 3).Draw(t, "waits") {
		d.Backoff = append(d.Backoff, drawSeconds(t, "wait", 0, 10))
	}
	d.Paused = rapid.IntRange(0, 7).Draw(t, "paused") == 7
	return d
}

func drawSeconds(t *rapid.T, label string, low, high int) time.Duration {
	return time.Duration(rapid.IntRange(low, high).Draw(t, label)) * time.Second
}

// define changes definitions, to which every open transaction loses.
func (s *simulation) define(t *rapid.T, work func(tx *store.Tx) error) {
	tx, err := s.db.Begin(s.ctx)
	must(t, err)
	defer tx.Cancel()
	must(t, work(tx))
	_, err = tx.Commit(s.ctx)
	must(t, err)
	s.definitions++
}

func (s *simulation) defineDeadTopic(t *rapid.T) {
	s.deadBounded = rapid.Bool().Draw(t, "letters are bounded")
	s.deadDefined, s.letters = true, 0
	var bounds topic.TopicDefinition
	if s.deadBounded {
		bounds.MaxBytes = largestLetterBytes
	}
	s.define(t, func(tx *store.Tx) error {
		return tx.DefineTable(s.ctx, store.Table{Name: deadTopic, Kind: store.Topic, Topic: bounds}, store.Refuse)
	})
}

func (s *simulation) defineGroup(t *rapid.T) {
	s.model.definition = redraw(t, topic.GroupDefinition{})
	var path value.Path
	if rapid.Bool().Draw(t, "keyed") {
		path = value.Path{"key"}
		s.model.definition.KeyedBy = path.String()
	}
	s.model.past, s.model.refused = topic.Figures{}, 0
	s.mostOut = s.model.definition.InFlight
	if !s.deadDefined {
		s.defineDeadTopic(t)
	}
	s.define(t, func(tx *store.Tx) error {
		return tx.DefineGroup(s.ctx, simulatedTopic, simulatedGroup, s.model.definition, path, store.Refuse)
	})
}

func (s *simulation) drawMessages(t *rapid.T) (contents []modelContent) {
	for range rapid.IntRange(1, 4).Draw(t, "messages") {
		s.numbers++
		contents = append(contents, modelContent{
			number: s.numbers,
			key:    rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key"),
			id:     rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "id"),
			large:  rapid.IntRange(0, 9).Draw(t, "large") == 9,
		})
	}
	return contents
}

func (s *simulation) append(t *rapid.T) {
	var messages []store.NewMessage
	var want []modelContent
	var bytes uint64
	seen := map[string]bool{}
	for _, c := range s.drawMessages(t) {
		messages = append(messages, store.NewMessage{Value: c.value()})
		if s.model.keptOut(c) || s.model.bounds.Deduplicate != nil && c.id != "" && seen[c.id] {
			continue
		}
		seen[c.id] = true
		want = append(want, c)
		bytes += c.bytes()
	}
	appended, err := s.db.Append(s.ctx, simulatedTopic, messages...)
	if limit := s.model.bounds.RetainBytes; limit > 0 && bytes > uint64(limit) {
		if !errors.Is(err, fault.TopicRetainExceeded) {
			t.Fatalf("appending %d bytes to a topic that retains %d: %v", bytes, limit, err)
		}
		return
	}
	must(t, err)
	if len(appended) != len(want) {
		t.Fatalf("appended %v; want %v", appended, want)
	}
	for i, c := range want {
		s.model.append(c)
		wantMessage(t, s.model, appended[i], s.model.last)
	}
	s.model.trim()
}

// wantMessage compares a message with the model's at a position.
func wantMessage(t *rapid.T, m *groupModel, got store.Message, p topic.Position) {
	t.Helper()
	v, err := got.Value()
	must(t, err)
	want := m.contents[p]
	if got.Position != p || !value.Equal(v, want.value()) || !got.Appended().Equal(want.appended) {
		t.Fatalf("message %d: %s, appended %v; want %d: %s, appended %v",
			got.Position, v, got.Appended(), p, want.value(), want.appended)
	}
}

func (s *simulation) readAs(t *rapid.T, consumer string, limit int) store.Page {
	page, err := s.db.Read(s.ctx, simulatedTopic, store.ReadOptions{Consumer: consumer, Limit: limit}, 0)
	must(t, err)
	return page
}

// audit reads as the reader beside the group.
func (s *simulation) audit(t *rapid.T) {
	limit := rapid.IntRange(1, 8).Draw(t, "limit")
	page := s.readAs(t, auditReader, limit)
	start, count, lapsed := s.model.read(s.model.audit, limit)
	if len(page.Messages) != count || page.Lapsed != lapsed {
		t.Fatalf("the reader was answered %d, lapsed %d; want %d, %d", len(page.Messages), page.Lapsed, count, lapsed)
	}
	for i, got := range page.Messages {
		wantMessage(t, s.model, got, start+topic.Position(i))
	}
	s.model.audit = start - 1 + topic.Position(count)
}

func (s *simulation) handOut(t *rapid.T) {
	limit := rapid.IntRange(1, 8).Draw(t, "limit")
	page := s.readAs(t, simulatedGroup, limit)
	wanted := s.model.handOut(limit)
	s.wantHandOut(t, s.model, page, wanted)
	if !wanted.nothing() {
		s.groupCommits++
	}
	s.bury(t, wanted.givenUp)
}

func (s *simulation) wantHandOut(t *rapid.T, m *groupModel, page store.Page, want modelHandOut) {
	t.Helper()
	var got []topic.Delivery
	for _, message := range page.Messages {
		got = append(got, topic.Delivery{Position: message.Position, Deliveries: message.Deliveries})
	}
	if !slices.Equal(got, want.out) || page.Lapsed != want.lapsed {
		t.Fatalf("handed out %v, lapsed %d; want %v, %d", got, page.Lapsed, want.out, want.lapsed)
	}
	for _, message := range page.Messages {
		wantMessage(t, m, message, message.Position)
	}
	if len(got) == 0 && page.Lapsed == 0 && !page.Due.Equal(m.due()) {
		t.Fatalf("a group with nothing to hand out is due %v; want %v", page.Due, m.due())
	}
}

// settlement is a settling statement, and what it is for the model.
type settlement struct {
	name string
	store.Settlement
}

func (s *simulation) drawSettlement(t *rapid.T, m *groupModel) settlement {
	kinds := map[string]store.SettlementKind{
		"ACK": store.Acknowledge, "NACK": store.Return, "EXTEND": store.Extend, "REJECT": store.Reject, "RELEASE": store.Release,
	}
	name := rapid.SampledFrom([]string{"ACK", "ACK", "ACK", "NACK", "EXTEND", "REJECT", "RELEASE"}).Draw(t, "command")
	said := settlement{name: name, Settlement: store.Settlement{Kind: kinds[name], Reason: rejectReason}}
	for range rapid.IntRange(1, 6).Draw(t, "positions") {
		said.At = append(said.At, topic.Settle{
			// Near the position, where messages are in flight.
			Position: topic.Position(max(0, int(m.position)+1-rapid.IntRange(0, 10).Draw(t, "back"))),
			Delivery: topic.Deliveries(max(0, rapid.IntRange(-4, 3).Draw(t, "delivery"))),
		})
	}
	if rapid.Bool().Draw(t, "delayed") {
		delay := drawSeconds(t, "delay", 0, 10)
		said.Delay = &delay
	}
	said.By = drawSeconds(t, "by", 0, 20)
	return said
}

func (s *simulation) settle(t *rapid.T) {
	said := s.drawSettlement(t, s.model)
	count, err := s.db.Settle(s.ctx, simulatedTopic, simulatedGroup, said.Settlement)
	must(t, err)
	want, givenUp := s.model.settle(said.name, said.At, said.Delay, said.By)
	if count != want {
		t.Fatalf("%s %v counted %d; want %d", said.name, said.At, count, want)
	}
	if count > 0 {
		s.groupCommits++
	}
	s.bury(t, givenUp)
}

// bury checks the dead letters of one commit.
func (s *simulation) bury(t *rapid.T, givenUp []topic.GiveUp) {
	if s.model.definition.DeadLetter == "" {
		return
	}
	var want []value.Value
	for _, given := range givenUp {
		content := s.model.contents[given.Position]
		if !s.deadDefined || s.deadBounded && content.large || given.Position < s.model.first {
			s.model.refused++
			continue
		}
		letter := value.Object{
			"topic": value.String(simulatedTopic), "group": value.String(simulatedGroup),
			"position": value.Int(int64(given.Position)), "deliveries": value.Int(int64(given.Deliveries)),
			"value": content.value(),
		}
		if given.Reason != "" {
			letter["reason"] = value.String(given.Reason)
		}
		want = append(want, value.Fields(letter))
	}
	if !s.deadDefined {
		return
	}
	page, err := s.db.Read(s.ctx, deadTopic, store.ReadOptions{After: &s.letters}, 0)
	must(t, err)
	if len(page.Messages) != len(want) {
		t.Fatalf("%d dead letters; want %v", len(page.Messages), want)
	}
	for i, message := range page.Messages {
		letter, err := message.Value()
		must(t, err)
		if !value.Equal(letter, want[i]) {
			t.Fatalf("dead letter %s; want %s", letter, want[i])
		}
	}
	s.letters += topic.Position(len(want))
}

func (s *simulation) advance(t *rapid.T) {
	by := drawSeconds(t, "by", 0, 12)
	switch rapid.IntRange(0, 19).Draw(t, "jump") {
	case 18:
		by = -time.Hour
	case 19:
		by = time.Hour
	}
	s.clock.advance(by)
	s.tellTime(t)
}

// tellTime reads the store's clock, which never goes back.
func (s *simulation) tellTime(t *rapid.T) {
	now, err := s.store.Now(s.ctx)
	must(t, err)
	if now.Before(s.model.now) {
		t.Fatalf("the store's clock went back from %v to %v", s.model.now, now)
	}
	s.model.now = now
}

func (s *simulation) keepHouse(t *rapid.T) {
	must(t, s.store.Housekeep(s.ctx))
	s.model.age()
}

// rarely does what would be too often as an action of its own.
func (s *simulation) rarely(t *rapid.T) {
	switch rapid.IntRange(0, 11).Draw(t, "what") {
	case 0, 1:
		s.alterGroup(t)
	case 2:
		s.startAt(t)
	case 3:
		s.define(t, func(tx *store.Tx) error { return tx.DropGroup(s.ctx, simulatedTopic, simulatedGroup) })
		s.model.begin(0)
		s.defineGroup(t)
	case 4:
		s.alterTopic(t)
	case 5:
		if s.deadDefined {
			s.define(t, func(tx *store.Tx) error { return tx.DropTable(s.ctx, store.Topic, deadTopic) })
			s.deadDefined = false
		} else {
			s.defineDeadTopic(t)
		}
	case 6, 7:
		s.restart(t)
	}
}

func (s *simulation) alterGroup(t *rapid.T) {
	changed := redraw(t, s.model.definition)
	if !s.deadDefined && changed.DeadLetter != "" {
		s.defineDeadTopic(t)
	}
	s.define(t, func(tx *store.Tx) error {
		return tx.AlterGroup(s.ctx, simulatedTopic, simulatedGroup, func(d *topic.GroupDefinition) error {
			*d = changed
			return nil
		})
	})
	s.model.definition = changed
	s.mostOut = max(changed.InFlight, s.model.countInFlight())
}

func (s *simulation) startAt(t *rapid.T) {
	n := topic.Position(rapid.IntRange(0, int(s.model.last)).Draw(t, "n"))
	tx, err := s.db.Begin(s.ctx)
	must(t, err)
	defer tx.Cancel()
	must(t, tx.StartAt(s.ctx, simulatedTopic, simulatedGroup, n))
	_, err = tx.Commit(s.ctx)
	must(t, err)
	s.model.startAt(n)
	s.groupCommits++
}

func (s *simulation) alterTopic(t *rapid.T) {
	// A key whose window is over may be forgotten or not, which a longer window
	// would show. So all of them are.
	s.keepHouse(t)
	s.model.forgetKeys()
	bounds := drawBounds(t)
	s.define(t, func(tx *store.Tx) error {
		return tx.AlterTopic(s.ctx, simulatedTopic, func(d *topic.TopicDefinition) error {
			*d = bounds
			return nil
		})
	})
	s.model.bounds = bounds
	s.model.trim()
	s.keepHouse(t)
	s.model.forgetKeys()
}

// restart closes the store, or loses what the machine had not synced, and opens
// it again.
func (s *simulation) restart(t *rapid.T) {
	if rapid.Bool().Draw(t, "crash") {
		percent := rapid.IntRange(0, 100).Draw(t, "of what is not synced is there")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		crashed := s.memory.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random})
		s.close(t)
		s.memory = crashed
	} else {
		s.close(t)
	}
	s.openStore(t)
	s.findDatabase(t)
	// What only was the time, and was written nowhere, a store that starts
	// behind a clock that went back does not know.
	if now, err := s.store.Now(s.ctx); err == nil {
		s.model.now = now
	}
	if newest := s.model.contents[s.model.last].appended; s.model.now.Before(newest) {
		t.Fatalf("the store's clock went back to %v at a restart; it appended at %v", s.model.now, newest)
	}
}
