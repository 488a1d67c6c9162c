package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// However transactions, appends and readers of many goroutines interleave, with
// retention by size and by age beside them: positions are dense in the order of
// the commits, every reader sees a prefix, a reader's place and its effect are
// one commit, and lapsed + answered + held = all.
func TestInterleavedTransactionsKeepThePromises(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(t, r)
		defer func() { w.must(w.store.Close()) }()
		var workers sync.WaitGroup
		for i, plan := range w.plans {
			workers.Go(func() {
				for _, step := range plan {
					w.run(i, step)
				}
			})
		}
		workers.Wait()
		if len(w.broken) == 0 {
			w.check()
		}
		if len(w.broken) > 0 {
			r.Fatal(strings.Join(w.broken, "\n"))
		}
	})
}

// world is a store that several goroutines work on, and what they were told.
type world struct {
	*fixture
	bounds topic.TopicDefinition
	plans  [][]step

	// ticks orders what begins and what has ended.
	ticks atomic.Int64
	// numbers gives every message its own.
	numbers atomic.Int64

	mu sync.Mutex
	// The following are protected by mu.

	// appends are all that committed, in any order.
	appends []committed
	// seen is what readers found at a position of the topic events.
	seen map[topic.Position]int64
	// pages are what named readers were answered.
	pages map[string][]store.Page

	brokenMu sync.Mutex
	// broken are the promises that were, protected by brokenMu.
	broken []string
}

// Errorf keeps what went wrong for the end, since it is called by goroutines.
func (w *world) Errorf(format string, args ...any) {
	w.brokenMu.Lock()
	defer w.brokenMu.Unlock()
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// step is one thing that a goroutine does.
type step struct {
	what  string
	count int
	name  string
}

// committed is one commit that appended, first to last in events, and for a
// transaction to the topic log as well.
type committed struct {
	begun, ended int64
	numbers      []int64
	events, log  store.Appended
}

// The names of what a world defines.
const (
	eventsTopic = "events"
	logTopic    = "log"
	totalsTable = "totals"
)

func newWorld(t *testing.T, r *rapid.T) *world {
	w := &world{fixture: newFixture(t), seen: map[topic.Position]int64{}, pages: map[string][]store.Page{}}
	if rapid.Bool().Draw(r, "retains bytes") {
		w.bounds.RetainBytes = rapid.Int64Range(40, 400).Draw(r, "RETAIN BYTES")
	}
	if rapid.Bool().Draw(r, "retains by age") {
		w.bounds.Retain = time.Duration(rapid.IntRange(1, 20).Draw(r, "RETAIN")) * time.Second
	}
	w.defineTopic(eventsTopic, w.bounds)
	w.defineTopic(logTopic, topic.TopicDefinition{})
	for _, table := range []store.Table{{Name: totalsTable, Kind: store.Collection}, {Name: effectsTable, Kind: store.Collection}} {
		_, err := w.transact(func(tx *store.Tx) error { return tx.DefineTable(w.ctx, table, store.Refuse) })
		w.must(err)
	}
	drawStep := rapid.Custom(func(r *rapid.T) step {
		return step{
			what: rapid.SampledFrom([]string{
				"append", "append", "append in a transaction", "append in a transaction",
				"read", "read by name", "consume", "consume", "cancel", "look", "keep house",
			}).Draw(r, "what"),
			count: rapid.IntRange(1, 4).Draw(r, "count"),
			name:  rapid.SampledFrom([]string{"one", "two"}).Draw(r, "name"),
		}
	})
	w.plans = rapid.SliceOfN(rapid.SliceOfN(drawStep, 5, 40), 2, 8).Draw(r, "plans")
	return w
}

func (w *world) run(worker int, s step) {
	switch s.what {
	case "append":
		w.appendAlone(s.count)
	case "append in a transaction":
		w.appendInTransaction(worker, s.count)
	case "read":
		w.read(s.count)
	case "read by name":
		w.readByName("reader "+s.name, s.count)
	case "consume":
		w.consume("consumer "+s.name, s.count)
	case "cancel":
		w.cancel("consumer "+s.name, s.count)
	case "look":
		w.look()
	case "keep house":
		w.clock.advance(time.Second)
		if err := w.store.Housekeep(w.ctx); err != nil {
			w.Errorf("housekeeping: %v", err)
		}
	}
}

// try runs a transaction once.
func (w *world) try(work func(tx *store.Tx) error) (map[string]store.Appended, error) {
	tx, err := w.db.Begin(w.ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Cancel()
	if err := work(tx); err != nil {
		return nil, err
	}
	return tx.Commit(w.ctx)
}

// errCancelled ends a transaction that changed its mind.
var errCancelled = errors.New("cancelled")

// cancel reads by name and appends, and takes both back.
func (w *world) cancel(name string, count int) {
	_, err := w.try(func(tx *store.Tx) error {
		events, err := tx.Catalog().TopicTable(eventsTopic)
		if err != nil {
			return err
		}
		if _, err := tx.Read(w.ctx, events, store.ReadOptions{Consumer: name, Limit: count}); err != nil {
			return err
		}
		if _, _, err := tx.Append(w.ctx, events, value.None(), value.Int(-1)); err != nil {
			return err
		}
		return errCancelled
	})
	if !errors.Is(err, errCancelled) {
		w.Errorf("a transaction to be cancelled: %v", err)
	}
}

func (w *world) newNumbers(count int) (numbers []int64) {
	for range count {
		numbers = append(numbers, w.numbers.Add(1))
	}
	return numbers
}

func (w *world) appendAlone(count int) {
	c := committed{begun: w.ticks.Add(1), numbers: w.newNumbers(count)}
	var messages []store.NewMessage
	for _, n := range c.numbers {
		messages = append(messages, store.NewMessage{Value: value.Int(n)})
	}
	appended, err := w.db.Append(w.ctx, eventsTopic, messages...)
	if err != nil || len(appended) != count {
		w.Errorf("appended %v: %v", appended, err)
		return
	}
	for i, m := range appended {
		if m.Position != appended[0].Position+topic.Position(i) {
			w.Errorf("one append was given position %d after %d", m.Position, appended[0].Position)
		}
	}
	c.events = store.Appended{First: appended[0].Position, Last: appended[count-1].Position}
	w.keep(c)
}

// appendInTransaction appends to two topics and counts itself in a record of
// the worker's own.
func (w *world) appendInTransaction(worker, count int) {
	c := committed{begun: w.ticks.Add(1), numbers: w.newNumbers(count)}
	positions, err := w.try(func(tx *store.Tx) error {
		events, err := tx.Catalog().TopicTable(eventsTopic)
		if err != nil {
			return err
		}
		log, err := tx.Catalog().TopicTable(logTopic)
		if err != nil {
			return err
		}
		for _, n := range c.numbers {
			for _, table := range []*store.Table{events, log} {
				if _, _, err := tx.Append(w.ctx, table, value.None(), value.Int(n)); err != nil {
					return err
				}
			}
		}
		return w.addTo(tx, value.String(fmt.Sprintf("worker %d", worker)), totals{count: int64(count)})
	})
	if err != nil {
		w.Errorf("a transaction that nobody stands against: %v", err)
		return
	}
	c.events, c.log = positions[eventsTopic], positions[logTopic]
	w.keep(c)
}

func (w *world) keep(c committed) {
	c.ended = w.ticks.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.appends = append(w.appends, c)
}

// totals are what a record counts: messages dealt with and lapsed.
type totals struct{ count, lapsed int64 }

func (w *world) total(tx *store.Tx, key value.Value) (totals, error) {
	table, err := tx.Catalog().Table(totalsTable)
	if err != nil {
		return totals{}, err
	}
	row, found, err := tx.Get(w.ctx, table, key)
	if err != nil || !found {
		return totals{}, err
	}
	v, err := row.Value()
	if err != nil {
		return totals{}, err
	}
	fields, _ := v.AsObject()
	count, _ := fields["count"].AsInt()
	lapsed, _ := fields["lapsed"].AsInt()
	return totals{count, lapsed}, nil
}

func (w *world) addTo(tx *store.Tx, key value.Value, more totals) error {
	sum, err := w.total(tx, key)
	if err != nil {
		return err
	}
	table, err := tx.Catalog().Table(totalsTable)
	if err != nil {
		return err
	}
	_, err = tx.Put(w.ctx, table, key, value.Fields(value.Object{
		"count": value.Int(sum.count + more.count), "lapsed": value.Int(sum.lapsed + more.lapsed),
	}))
	return err
}

// read reads without a name, page by page, from the start.
func (w *world) read(count int) {
	var place topic.Position
	for {
		page, err := w.db.Read(w.ctx, eventsTopic, store.ReadOptions{After: &place, Limit: count * 10}, 0)
		if err != nil {
			w.Errorf("a read: %v", err)
			return
		}
		w.note(page, place)
		if len(page.Messages) == 0 {
			return
		}
		place = page.Messages[len(page.Messages)-1].Position
	}
}

// note checks that a page goes on from a place without a gap that it does not
// tell of, and keeps what it shows.
func (w *world) note(page store.Page, place topic.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := place + topic.Position(page.Lapsed) + 1
	for _, m := range page.Messages {
		if m.Position != next {
			w.Errorf("position %d was answered after %d, of which %d lapsed", m.Position, place, page.Lapsed)
		}
		next = m.Position + 1
		w.noteOne(m)
	}
}

// noteOne is called with mu held.
func (w *world) noteOne(m store.Message) {
	v, err := m.Value()
	n, ok := v.AsInt()
	if err != nil || !ok {
		w.Errorf("message %d is %s: %v", m.Position, v, err)
	}
	if before, ok := w.seen[m.Position]; ok && before != n {
		w.Errorf("position %d was message %d and is %d now", m.Position, before, n)
	}
	w.seen[m.Position] = n
}

func (w *world) readByName(name string, count int) {
	page, err := w.db.Read(w.ctx, eventsTopic, store.ReadOptions{Consumer: name, Limit: count}, 0)
	if err != nil {
		w.Errorf("a read by name: %v", err)
		return
	}
	w.keepPage(name, page)
}

func (w *world) keepPage(name string, page store.Page) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[name] = append(w.pages[name], page)
	for _, m := range page.Messages {
		w.noteOne(m)
	}
}

// consume reads by name and writes an effect a message, and totals, in one
// transaction; it begins again until it wins.
func (w *world) consume(name string, count int) {
	for {
		var page store.Page
		_, err := w.try(func(tx *store.Tx) error {
			events, err := tx.Catalog().TopicTable(eventsTopic)
			if err != nil {
				return err
			}
			effects, err := tx.Catalog().Table(effectsTable)
			if err != nil {
				return err
			}
			if page, err = tx.Read(w.ctx, events, store.ReadOptions{Consumer: name, Limit: count}); err != nil {
				return err
			}
			for _, m := range page.Messages {
				key := value.String(fmt.Sprintf("%s at %d", name, m.Position))
				if _, err := tx.Create(w.ctx, effects, key, value.Fields(nil)); err != nil {
					return err
				}
			}
			if len(page.Messages) == 0 && page.Lapsed == 0 {
				return nil
			}
			return w.addTo(tx, value.String(name), totals{int64(len(page.Messages)), int64(page.Lapsed)})
		})
		if errors.Is(err, fault.Conflict) {
			continue
		}
		if err != nil {
			w.Errorf("consuming: %v", err)
			return
		}
		w.keepPage(name, page)
		return
	}
}

// look checks one snapshot: that it is a prefix, that places and totals agree in
// it, and that the topic holds what its bounds keep.
func (w *world) look() {
	tx, err := w.db.Begin(w.ctx)
	if err != nil {
		w.Errorf("begin: %v", err)
		return
	}
	defer tx.Cancel()
	if err := w.lookAt(tx); err != nil {
		w.Errorf("a look: %v", err)
	}
}

func (w *world) lookAt(tx *store.Tx) error {
	events, err := tx.Catalog().TopicTable(eventsTopic)
	if err != nil {
		return err
	}
	report, err := tx.ReportTopic(w.ctx, events)
	if err != nil {
		return err
	}
	for name, reader := range report.Readers {
		sum, err := w.total(tx, value.String(name))
		if err != nil {
			return err
		}
		if done := sum.count + sum.lapsed; done > 0 && done != int64(reader.Position) {
			return fmt.Errorf("%s is at %d, and dealt with %d and passed over %d", name, reader.Position, sum.count, sum.lapsed)
		}
		if reader.Lag != uint64(report.Last-reader.Position) {
			return fmt.Errorf("the lag of %s at %d of %d is %d", name, reader.Position, report.Last, reader.Lag)
		}
	}
	return w.lookAtMessages(tx, events, report)
}

func (w *world) lookAtMessages(tx *store.Tx, events *store.Table, report store.TopicReport) error {
	var bytes uint64
	next := report.First
	rows := tx.Scan(w.ctx, events, store.ScanOptions{})
	for rows.Next() {
		row := rows.Row()
		if row.Position != next {
			return fmt.Errorf("position %d follows %d", row.Position, next-1)
		}
		next++
		bytes += uint64(len(row.Encoded()))
	}
	if err := rows.Close(); err != nil {
		return err
	}
	if next != report.Last+1 || report.Messages != uint64(report.Last+1-report.First) || report.Bytes != bytes {
		return fmt.Errorf("the topic holds %d to %d, %d bytes; it tells of %d to %d, %d messages, %d bytes",
			report.First, next-1, bytes, report.First, report.Last, report.Messages, report.Bytes)
	}
	if limit := w.bounds.RetainBytes; limit > 0 && bytes > uint64(limit) {
		return fmt.Errorf("the topic holds %d bytes of %d", bytes, limit)
	}
	return nil
}

// check looks at the whole history.
func (w *world) check() {
	w.look()
	w.checkPositions()
	w.checkOrder()
	tx, err := w.db.Begin(w.ctx)
	w.must(err)
	defer tx.Cancel()
	events, err := tx.Catalog().TopicTable(eventsTopic)
	w.must(err)
	report, err := tx.ReportTopic(w.ctx, events)
	w.must(err)
	if report.Last != topic.Position(w.numbers.Load()) {
		w.Errorf("%d messages were appended; the last position is %d", w.numbers.Load(), report.Last)
	}
	for name, pages := range w.pages {
		w.checkReader(tx, name, pages, report)
	}
}

// checkPositions: every position was given to one message, and readers found
// that one.
func (w *world) checkPositions() {
	given := map[topic.Position]int64{}
	for _, c := range w.appends {
		if c.events.Last-c.events.First+1 != topic.Position(len(c.numbers)) {
			w.Errorf("%d messages of one commit are at %v", len(c.numbers), c.events)
		}
		for i, n := range c.numbers {
			p := c.events.First + topic.Position(i)
			if other, ok := given[p]; ok {
				w.Errorf("position %d was given to %d and %d", p, other, n)
			}
			given[p] = n
		}
	}
	for p := range topic.Position(len(given)) {
		if _, ok := given[p+1]; !ok {
			w.Errorf("position %d was given to nobody", p+1)
		}
	}
	w.checkBytes(given)
	for p, n := range w.seen {
		if given[p] != n {
			w.Errorf("a reader found %d at position %d, which is %d", n, p, given[p])
		}
	}
}

// checkBytes: with RETAIN BYTES alone, the newest message that was let go would
// not have fitted with all that are held.
func (w *world) checkBytes(given map[topic.Position]int64) {
	page, err := w.db.Read(w.ctx, eventsTopic, store.ReadOptions{Limit: 1}, 0)
	w.must(err)
	if w.bounds.RetainBytes == 0 || w.bounds.Retain != 0 || page.Lapsed == 0 {
		return
	}
	var bytes int
	for p := topic.Position(page.Lapsed); p <= topic.Position(len(given)); p++ {
		size, err := value.Int(given[p]).Size()
		w.must(err)
		bytes += size
	}
	if int64(bytes) <= w.bounds.RetainBytes {
		w.Errorf("position %d was let go, and %d bytes with it are kept (RETAIN BYTES %d)", page.Lapsed, bytes, w.bounds.RetainBytes)
	}
}

// checkOrder: a commit that had ended before another began lies before it, and
// two topics have their commits in one order.
func (w *world) checkOrder() {
	slices.SortFunc(w.appends, func(a, b committed) int { return cmp.Compare(a.events.First, b.events.First) })
	var latestBegun int64
	var log topic.Position
	for _, c := range w.appends {
		if c.ended < latestBegun {
			w.Errorf("the commit at %v had ended before one began that lies before it", c.events)
		}
		latestBegun = max(latestBegun, c.begun)
		if c.log.First == 0 {
			continue
		}
		if c.log.First != log+1 || c.log.Last != log+topic.Position(len(c.numbers)) {
			w.Errorf("the commit at %v of one topic is at %v of the other, after %d", c.events, c.log, log)
		}
		log = c.log.Last
	}
}

// checkReader: every position up to the reader's place was answered once or
// lapsed once, and what was answered had its effect once.
func (w *world) checkReader(tx *store.Tx, name string, pages []store.Page, report store.TopicReport) {
	answered := map[topic.Position]bool{}
	var lapsed uint64
	for _, page := range pages {
		lapsed += page.Lapsed
		for _, m := range page.Messages {
			if answered[m.Position] {
				w.Errorf("%s was answered %d twice", name, m.Position)
			}
			answered[m.Position] = true
		}
	}
	reader, kept := report.Readers[name]
	place := reader.Position
	if uint64(place) != lapsed+uint64(len(answered)) {
		w.Errorf("%s is at %d after %d answered and %d lapsed", name, place, len(answered), lapsed)
	}
	for p := range place {
		if !answered[p+1] && p+1 >= report.First {
			w.Errorf("%s passed over %d, which is held", name, p+1)
		}
	}
	if kept && report.Last != place+topic.Position(reader.Lag) {
		w.Errorf("%s has a place of %d and a lag of %d; the last is %d", name, place, reader.Lag, report.Last)
	}
	sum, err := w.total(tx, value.String(name))
	w.must(err)
	if sum.count+sum.lapsed > 0 && (sum.count != int64(len(answered)) || sum.lapsed != int64(lapsed)) {
		w.Errorf("%s counted %+v; it was answered %d and told of %d lapsed", name, sum, len(answered), lapsed)
	}
	effects, err := tx.Catalog().Table(effectsTable)
	w.must(err)
	if sum.count == 0 {
		return
	}
	for _, p := range slices.Sorted(maps.Keys(answered)) {
		_, found, err := tx.Get(w.ctx, effects, value.String(fmt.Sprintf("%s at %d", name, p)))
		w.must(err)
		if !found {
			w.Errorf("%s was answered %d, and its effect is not there", name, p)
		}
	}
}
