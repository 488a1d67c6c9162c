package crash

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// history is what the store has said in all rounds so far.
type history struct {
	// named are the messages of events by who appended which: the positions
	// that were acknowledged.
	named map[name][]topic.Position
	// place is the highest place of billing that was acknowledged, rung the
	// highest position of ring.
	place, rung topic.Position
	// settled are the messages that were acknowledged or rejected, of them
	// rejected the latter.
	settled, rejected map[topic.Position]bool
	acknowledged      uint64
}

type name struct {
	by string
	n  int64
}

func newHistory() *history {
	return &history{
		named:   map[name][]topic.Position{},
		settled: map[topic.Position]bool{}, rejected: map[topic.Position]bool{},
	}
}

// add adds the outcomes of a round. Nothing that an earlier round settled may
// have been handed out in it.
func (h *history) add(t *testing.T, round []outcome) {
	t.Helper()
	for _, o := range round {
		if o.What != handedOut {
			continue
		}
		for _, p := range o.Positions {
			if h.settled[p] {
				t.Errorf("position %d was settled before the crash and is handed out again", p)
			}
		}
	}
	for _, o := range round {
		switch o.What {
		case appended, transacted:
			h.named[name{o.By, o.N}] = []topic.Position{o.First, o.Last}
		case consumed:
			h.place = max(h.place, o.Last)
		case rang:
			h.rung = max(h.rung, o.Last)
		case acknowledged, rejected:
			for _, p := range o.Positions {
				if h.settled[p] {
					t.Errorf("position %d was settled twice", p)
				}
				h.settled[p] = true
				if o.What == rejected {
					h.rejected[p] = true
				} else {
					h.acknowledged++
				}
			}
		}
	}
}

// inspection is one state of a store being compared with its history.
type inspection struct {
	*testing.T
	ctx     context.Context
	tx      *store.Tx
	history *history
}

// check compares a store that was reopened with its history.
func check(t *testing.T, db *store.Database, h *history) {
	t.Helper()
	ctx := t.Context()
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Cancel()
	i := &inspection{T: t, ctx: ctx, tx: tx, history: h}
	report := i.report(events)
	i.checkEvents(report)
	i.checkEffects(report)
	i.checkRing()
	i.checkGroup(report)
}

func (i *inspection) must(err error) {
	i.Helper()
	if err != nil {
		i.Fatal(err)
	}
}

func (i *inspection) table(name string) *store.Table {
	i.Helper()
	table, err := i.tx.Catalog().Table(name)
	i.must(err)
	return table
}

func (i *inspection) report(topicName string) store.TopicReport {
	i.Helper()
	report, err := i.tx.ReportTopic(i.ctx, i.table(topicName))
	i.must(err)
	return report
}

// rows visits the rows of a table, or the messages of a topic, whose positions
// must be dense up to the last.
func (i *inspection) rows(tableName string, visit func(row store.Row, v value.Value)) {
	i.Helper()
	table := i.table(tableName)
	var next topic.Position
	if table.Kind == store.Topic {
		next = i.report(tableName).First
	}
	rows := i.tx.Scan(i.ctx, table, store.ScanOptions{})
	for rows.Next() {
		row := rows.Row()
		if table.Kind == store.Topic && row.Position != next {
			i.Fatalf("position %d of %s is not there, and %d is", next, tableName, row.Position)
		}
		next++
		v, err := row.Value()
		i.must(err)
		visit(row, v)
	}
	i.must(rows.Close())
	if table.Kind == store.Topic && next != i.report(tableName).Last+1 {
		i.Fatalf("the messages of %s end before %d, and the last position is %d", tableName, next, i.report(tableName).Last)
	}
}

func nameOf(v value.Value) (n name) {
	fields, _ := v.AsObject()
	n.by, _ = fields["by"].AsString()
	n.n, _ = fields["n"].AsInt()
	return n
}

// checkEvents: every acknowledged message is where it was said to be, and every
// transaction is there whole, in both topics and in its record, or not at all.
func (i *inspection) checkEvents(report store.TopicReport) {
	found := map[name][]topic.Position{}
	i.rows(events, func(row store.Row, v value.Value) { found[nameOf(v)] = append(found[nameOf(v)], row.Position) })
	for name, positions := range i.history.named {
		got := found[name]
		if len(got) == 0 || got[0] != positions[0] || got[len(got)-1] != positions[1] {
			i.Errorf("%s %d was acknowledged at %v and is at %v", name.by, name.n, positions, got)
		}
	}
	if report.First != 1 {
		i.Errorf("a topic that keeps everything begins at %d", report.First)
	}
	booked := map[name]int{}
	i.rows(ledger, func(_ store.Row, v value.Value) { booked[nameOf(v)]++ })
	whole := 0
	i.rows(counters, func(row store.Row, v value.Value) {
		by, _ := row.ID.Key.AsString()
		last, _ := v.AsInt()
		for n := int64(1); n <= last; n++ {
			name := name{by, n}
			if p := found[name]; len(p) != 2 || p[1] != p[0]+1 || booked[name] != 1 {
				i.Errorf("%s has committed %d; of %d there are messages at %v and %d in the ledger", by, last, n, p, booked[name])
			}
			whole++
		}
		if _, beyond := i.history.named[name{by, last + 1}]; beyond {
			i.Errorf("%s was told of more than the %d that its record counts", by, last)
		}
	})
	if whole != len(booked) {
		i.Errorf("the records count %d transactions, and the ledger %d", whole, len(booked))
	}
	for name, positions := range found {
		if len(positions) == 2 && booked[name] != 1 || len(positions) > 2 {
			i.Errorf("%s %d is at %v and %d times in the ledger", name.by, name.n, positions, booked[name])
		}
	}
}

// checkEffects: each message up to the reader's place had its effect once.
func (i *inspection) checkEffects(report store.TopicReport) {
	place := report.Readers[billing].Position
	if place < i.history.place {
		i.Errorf("the reader is at %d; %d was acknowledged", place, i.history.place)
	}
	next := int64(1)
	i.rows(effects, func(row store.Row, _ value.Value) {
		if position, _ := row.ID.Key.AsInt(); position != next {
			i.Errorf("the effect of %d is not there, and that of %d is", next, position)
			next = position
		}
		next++
	})
	if topic.Position(next-1) != place {
		i.Errorf("there are effects up to %d, and the reader is at %d", next-1, place)
	}
	sum, err := total(i.ctx, i.tx, i.table(totals), billing)
	i.must(err)
	if sum != (readerTotal{count: int64(place)}) {
		i.Errorf("the reader is at %d and counted %+v", place, sum)
	}
}

// checkRing: what lapsed and what was answered add up, of a topic that is held
// to its size.
func (i *inspection) checkRing() {
	report := i.report(ring)
	if report.Last < i.history.rung {
		i.Errorf("the ring ends at %d; %d was acknowledged", report.Last, i.history.rung)
	}
	var bytes uint64
	i.rows(ring, func(row store.Row, _ value.Value) { bytes += uint64(len(row.Encoded())) })
	if bytes > ringBytes || bytes != report.Bytes {
		i.Errorf("the ring holds %d bytes, and tells of %d; it may hold %d", bytes, report.Bytes, ringBytes)
	}
	sum, err := total(i.ctx, i.tx, i.table(totals), ringer)
	i.must(err)
	if place := int64(report.Readers[ringer].Position); sum.count+sum.lapsed != place {
		i.Errorf("the ring's reader is at %d and counted %+v", place, sum)
	}
}

// checkGroup: the group's numbers add up, nothing that was settled is less, and
// every dead letter is there once.
func (i *inspection) checkGroup(report store.TopicReport) {
	f := report.Groups[mailer].Figures
	if f.HandedOut-f.Settled() != f.InFlight || f.InFlight > inFlight || f.Lag != uint64(report.Last-f.Committed) {
		i.Errorf("the group's numbers do not add up: %+v", f)
	}
	if f.Acknowledged < i.history.acknowledged {
		i.Errorf("%d acknowledgements are kept of %d", f.Acknowledged, i.history.acknowledged)
	}
	if f.Position < f.Committed {
		i.Errorf("the group is at %d and has committed %d", f.Position, f.Committed)
	}
	letters := map[topic.Position]int{}
	i.rows(dead, func(_ store.Row, v value.Value) {
		fields, _ := v.AsObject()
		position, _ := fields["position"].AsInt()
		letters[topic.Position(position)]++
	})
	for p, count := range letters {
		if count > 1 {
			i.Errorf("position %d has %d dead letters", p, count)
		}
		if i.history.settled[p] && !i.history.rejected[p] {
			i.Errorf("position %d was acknowledged and has a dead letter", p)
		}
	}
	if uint64(len(letters)) != f.DeadLettered || f.DeadLetterRefused != 0 {
		i.Errorf("there are %d dead letters of %d, %d refused", len(letters), f.DeadLettered, f.DeadLetterRefused)
	}
	for p := range i.history.rejected {
		if letters[p] == 0 {
			i.Errorf("position %d was rejected, and its dead letter is lost", p)
		}
	}
	var inTransactions uint64
	i.rows(done, func(row store.Row, _ value.Value) {
		inTransactions++
		if position, _ := row.ID.Key.AsInt(); letters[topic.Position(position)] > 0 {
			i.Errorf("position %d was acknowledged with its effect and has a dead letter", position)
		}
	})
	if inTransactions > f.Acknowledged {
		i.Errorf("%d effects of acknowledged messages are there, and %d acknowledgements", inTransactions, f.Acknowledged)
	}
}

// drain lets the group hand out all that is left, past every deadline, and
// checks that this is what nobody had settled, and that nothing is lost.
func drain(t *testing.T, db *store.Database, h *history, passDeadlines func()) {
	t.Helper()
	ctx := t.Context()
	var rest []outcome
	for {
		passDeadlines()
		page, err := db.Read(ctx, events, store.ReadOptions{Consumer: mailer, Limit: inFlight}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Messages) == 0 {
			break
		}
		taken := outcome{What: handedOut}
		var at []topic.Settle
		for _, m := range page.Messages {
			at = append(at, topic.Settle{Position: m.Position, Delivery: m.Deliveries})
			taken.Positions = append(taken.Positions, m.Position)
		}
		count, err := db.Settle(ctx, events, mailer, store.Settlement{At: at})
		if err != nil || count != len(at) {
			t.Fatalf("acknowledged %d of %d: %v", count, len(at), err)
		}
		rest = append(rest, taken, outcome{What: acknowledged, Positions: taken.Positions})
	}
	h.add(t, rest)
	check(t, db, h)
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Cancel()
	i := &inspection{T: t, ctx: ctx, tx: tx, history: h}
	report := i.report(events)
	if f := report.Groups[mailer].Figures; f.Lag != 0 || f.InFlight != 0 || f.Acknowledged+f.DeadLettered != uint64(report.Last) {
		t.Errorf("after all was handed out of %d: %+v", report.Last, f)
	}
}

// movingClock is the machine's clock and what a test adds to it.
type movingClock struct{ ahead atomic.Int64 }

func (c *movingClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *movingClock) advance(by time.Duration) { c.ahead.Add(int64(by)) }

func (h *history) String() string {
	return fmt.Sprintf("%d appends and transactions, place %d, ring %d, %d settled", len(h.named), h.place, h.rung, len(h.settled))
}
