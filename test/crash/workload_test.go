package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// What the workload defines, and who reads it.
const (
	namespace, database = "shop", "orders"

	events = "events" // every message is kept
	ledger = "ledger" // one message a transaction on events
	ring   = "ring"   // RETAIN BYTES
	dead   = "dead"   // dead letters of the group

	counters = "counters" // how far a transacting client is
	effects  = "effects"  // one record a message that billing read
	done     = "done"     // one record a message that was acknowledged in a transaction
	totals   = "totals"   // what a reader dealt with and what lapsed

	billing = "billing" // reader of events
	ringer  = "ringer"  // reader of ring
	mailer  = "mailer"  // group on events

	ringBytes = 2000
	inFlight  = 50
)

// outcome is one thing that the store said and must not take back: a commit, or
// messages that were handed out.
type outcome struct {
	What string
	// By and N name what was appended or transacted.
	By string `json:",omitempty"`
	N  int64  `json:",omitempty"`
	// First and Last are positions in events or ring, or Last a reader's place;
	// Ledger is the position in the topic ledger.
	First, Last, Ledger topic.Position
	// Positions are those handed out or settled.
	Positions []topic.Position `json:",omitempty"`
}

// The kinds of outcomes.
const (
	appended     = "appended"
	transacted   = "transacted"
	consumed     = "consumed"
	rang         = "rang"
	handedOut    = "handed out"
	acknowledged = "acknowledged"
	rejected     = "rejected"
)

// openStore opens a store and the database of the workload, which is defined
// where it is not.
func openStore(ctx context.Context, e engine.Engine) (*store.Store, *store.Database, error) {
	s, err := store.Open(ctx, e, store.Options{HousekeepingEvery: 10 * time.Millisecond})
	if err != nil {
		return nil, nil, errors.Join(err, e.Close())
	}
	db, err := openDatabase(ctx, s)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, db, nil
}

func openDatabase(ctx context.Context, s *store.Store) (*store.Database, error) {
	if err := s.DefineNamespace(ctx, namespace, true); err != nil {
		return nil, err
	}
	if err := s.DefineDatabase(ctx, namespace, database, true); err != nil {
		return nil, err
	}
	db, err := s.Database(ctx, namespace, database)
	if err != nil {
		return nil, err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Cancel()
	for _, table := range []store.Table{
		{Name: events, Kind: store.Topic}, {Name: ledger, Kind: store.Topic}, {Name: dead, Kind: store.Topic},
		{Name: ring, Kind: store.Topic, Topic: topic.TopicDefinition{RetainBytes: ringBytes}},
		{Name: counters, Kind: store.Space}, {Name: totals, Kind: store.Collection},
		{Name: effects, Kind: store.Collection}, {Name: done, Kind: store.Collection},
	} {
		if err := tx.DefineTable(ctx, table, store.Keep); err != nil {
			return nil, err
		}
	}
	group := topic.GroupDefinition{
		// Short, so that messages are handed out again while the workload runs.
		AckDeadline: 20 * time.Millisecond, InFlight: inFlight, Deliveries: 5, DeadLetter: dead,
	}
	if err := tx.DefineGroup(ctx, events, mailer, group, nil, store.Keep); err != nil {
		return nil, err
	}
	_, err = tx.Commit(ctx)
	return db, err
}

// workload is clients that work on a database until their context ends, and
// tell every outcome once they know it.
type workload struct {
	db *store.Database
	// round makes the clients' names differ from those of the rounds before.
	round int
	tell  func(outcome)
}

// run returns the first error that is not of the end.
func (w *workload) run(ctx context.Context) error {
	var clients sync.WaitGroup
	var once sync.Once
	var failed error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	work := func(step func(ctx context.Context, random *rand.Rand, n int64) error) {
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		clients.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				if err := step(ctx, random, n); err != nil && ctx.Err() == nil && !errors.Is(err, errLost) {
					once.Do(func() { failed = err })
					stop()
				}
			}
		})
	}
	for client := range 2 {
		work(w.appender(fmt.Sprintf("%d append %d", w.round, client)))
		work(w.transactor(fmt.Sprintf("%d transact %d", w.round, client)))
		work(w.consume)
	}
	work(w.ring)
	for range 3 {
		work(w.member)
	}
	clients.Wait()
	return failed
}

func entry(by string, n int64) value.Value {
	return value.Fields(value.Object{"by": value.String(by), "n": value.Int(n)})
}

func (w *workload) appender(by string) func(context.Context, *rand.Rand, int64) error {
	return func(ctx context.Context, _ *rand.Rand, n int64) error {
		messages, err := w.db.Append(ctx, events, store.NewMessage{Value: entry(by, n)})
		if err != nil {
			return err
		}
		w.tell(outcome{What: appended, By: by, N: n, First: messages[0].Position, Last: messages[0].Position})
		return nil
	}
}

// transact runs work in a transaction on the database's tables.
func (w *workload) transact(ctx context.Context, work func(tx *store.Tx, table func(name string) *store.Table) error) (map[string]store.Appended, error) {
	tx, err := w.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Cancel()
	table := func(name string) *store.Table {
		found, err := tx.Catalog().Table(name)
		if err != nil {
			panic(err) // It was defined before the workload began.
		}
		return found
	}
	if err := work(tx, table); err != nil {
		return nil, err
	}
	positions, err := tx.Commit(ctx)
	if errors.Is(err, fault.Conflict) {
		return nil, errLost
	}
	return positions, err
}

// errLost is a transaction that lost to another, which is to be expected. What
// is done outside a transaction never loses.
var errLost = errors.New("the transaction lost")

// transactor appends two messages to one topic and one to another, and counts
// that in a record, in one transaction.
func (w *workload) transactor(by string) func(context.Context, *rand.Rand, int64) error {
	// Transactions that lost are not counted.
	n := int64(0)
	return func(ctx context.Context, _ *rand.Rand, _ int64) error {
		positions, err := w.transact(ctx, func(tx *store.Tx, table func(string) *store.Table) error {
			for _, name := range []string{events, ledger, events} {
				if _, _, err := tx.Append(ctx, table(name), value.None(), entry(by, n+1)); err != nil {
					return err
				}
			}
			_, err := tx.Put(ctx, table(counters), value.String(by), value.Int(n+1))
			return err
		})
		if err != nil {
			return err
		}
		n++
		w.tell(outcome{
			What: transacted, By: by, N: n,
			First: positions[events].First, Last: positions[events].Last, Ledger: positions[ledger].First,
		})
		return nil
	}
}

// consume reads as billing and writes an effect a message, in one transaction.
func (w *workload) consume(ctx context.Context, random *rand.Rand, _ int64) error {
	var place topic.Position
	_, err := w.transact(ctx, func(tx *store.Tx, table func(string) *store.Table) error {
		page, err := tx.Read(ctx, table(events), store.ReadOptions{Consumer: billing, Limit: 1 + random.IntN(10)})
		if err != nil || len(page.Messages) == 0 {
			return err
		}
		for _, m := range page.Messages {
			place = m.Position
			if _, err := tx.Create(ctx, table(effects), value.Int(int64(place)), value.Fields(nil)); err != nil {
				return err
			}
		}
		return add(ctx, tx, table(totals), billing, len(page.Messages), page.Lapsed)
	})
	if err == nil && place > 0 {
		w.tell(outcome{What: consumed, Last: place})
	}
	return err
}

// add adds to what a reader dealt with and what lapsed.
func add(ctx context.Context, tx *store.Tx, table *store.Table, reader string, count int, lapsed uint64) error {
	before, err := total(ctx, tx, table, reader)
	if err != nil {
		return err
	}
	_, err = tx.Put(ctx, table, value.String(reader), value.Fields(value.Object{
		"count": value.Int(before.count + int64(count)), "lapsed": value.Int(before.lapsed + int64(lapsed)),
	}))
	return err
}

type readerTotal struct{ count, lapsed int64 }

func total(ctx context.Context, tx *store.Tx, table *store.Table, reader string) (t readerTotal, err error) {
	row, found, err := tx.Get(ctx, table, value.String(reader))
	if err != nil || !found {
		return t, err
	}
	v, err := row.Value()
	fields, _ := v.AsObject()
	t.count, _ = fields["count"].AsInt()
	t.lapsed, _ = fields["lapsed"].AsInt()
	return t, err
}

// ring appends to a topic that keeps little, and reads it now and then.
func (w *workload) ring(ctx context.Context, random *rand.Rand, n int64) error {
	messages, err := w.db.Append(ctx, ring, store.NewMessage{Value: value.Bytes(make([]byte, random.IntN(200)))})
	if err != nil {
		return err
	}
	w.tell(outcome{What: rang, Last: messages[0].Position})
	if random.IntN(10) > 0 {
		return nil
	}
	_, err = w.transact(ctx, func(tx *store.Tx, table func(string) *store.Table) error {
		page, err := tx.Read(ctx, table(ring), store.ReadOptions{Consumer: ringer, Limit: 1 + int(n%20)})
		if err != nil {
			return err
		}
		return add(ctx, tx, table(totals), ringer, len(page.Messages), page.Lapsed)
	})
	return err
}

// member works for the group: mostly alone, sometimes in a transaction.
func (w *workload) member(ctx context.Context, random *rand.Rand, _ int64) error {
	if random.IntN(3) == 0 {
		return w.memberInTransaction(ctx)
	}
	page, err := w.db.Read(ctx, events, store.ReadOptions{Consumer: mailer, Limit: 1 + random.IntN(10)}, 5*time.Millisecond)
	if err != nil {
		return err
	}
	w.tellHandOut(page)
	for _, m := range page.Messages {
		settlement := store.Settlement{At: []topic.Settle{{Position: m.Position, Delivery: m.Deliveries}}}
		what := ""
		switch random.IntN(20) {
		case 0:
			continue // The worker forgets it.
		case 1:
			settlement.Kind = store.Return
		case 2:
			settlement.Kind = store.Extend
		case 3:
			settlement.Kind, what = store.Reject, rejected
		default:
			what = acknowledged
		}
		count, err := w.db.Settle(ctx, events, mailer, settlement)
		if err != nil {
			return err
		}
		if count == 1 && what != "" {
			w.tell(outcome{What: what, Positions: []topic.Position{m.Position}})
		}
	}
	return nil
}

func (w *workload) tellHandOut(page store.Page) {
	if len(page.Messages) == 0 {
		return
	}
	out := outcome{What: handedOut}
	for _, m := range page.Messages {
		out.Positions = append(out.Positions, m.Position)
	}
	w.tell(out)
}

// memberInTransaction takes messages, writes an effect each and acknowledges
// them, in one transaction.
func (w *workload) memberInTransaction(ctx context.Context) error {
	var page store.Page
	_, err := w.transact(ctx, func(tx *store.Tx, table func(string) *store.Table) (err error) {
		page, err = tx.Read(ctx, table(events), store.ReadOptions{Consumer: mailer, Limit: 3})
		if err != nil || len(page.Messages) == 0 {
			return err
		}
		var at []topic.Settle
		for _, m := range page.Messages {
			at = append(at, topic.Settle{Position: m.Position, Delivery: m.Deliveries})
			if _, err := tx.Create(ctx, table(done), value.Int(int64(m.Position)), value.Fields(nil)); err != nil {
				return err
			}
		}
		count, err := tx.Settle(ctx, table(events), mailer, store.Settlement{At: at})
		if err == nil && count != len(at) {
			err = fmt.Errorf("acknowledged %d of %d messages that the transaction took itself", count, len(at))
		}
		return err
	})
	if err != nil || len(page.Messages) == 0 {
		return err
	}
	w.tellHandOut(page)
	out := outcome{What: acknowledged}
	for _, m := range page.Messages {
		out.Positions = append(out.Positions, m.Position)
	}
	w.tell(out)
	return nil
}
