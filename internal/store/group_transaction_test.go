package store_test

import (
	"errors"
	"slices"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// The simulation's transactions, several of them open at once.

func (s *simulation) begin(t *rapid.T) {
	if len(s.open) == 3 {
		t.Skip("enough are open")
	}
	tx, err := s.db.Begin(s.ctx)
	must(t, err)
	s.transactions++
	o := &openTransaction{
		tx: tx, base: s.model.clone(), model: s.model.clone(),
		groupCommits: s.groupCommits, definitions: s.definitions,
		effect: value.Int(s.transactions),
	}
	s.open = append(s.open, o)
	effects, err := tx.Catalog().Table(effectsTable)
	must(t, err)
	_, err = tx.Create(s.ctx, effects, o.effect, value.Fields(nil))
	must(t, err)
}

// one picks an open transaction, and tells it the time.
func (s *simulation) one(t *rapid.T) (*openTransaction, *store.Table) {
	if len(s.open) == 0 {
		t.Skip("no transaction is open")
	}
	o := s.open[rapid.IntRange(0, len(s.open)-1).Draw(t, "transaction")]
	o.model.now = s.model.now
	table, err := o.tx.Catalog().TopicTable(simulatedTopic)
	must(t, err)
	return o, table
}

func (s *simulation) handOutInTransaction(t *rapid.T) {
	o, table := s.one(t)
	limit := rapid.IntRange(1, 8).Draw(t, "limit")
	page, err := o.tx.Read(s.ctx, table, store.ReadOptions{Consumer: simulatedGroup, Limit: limit})
	must(t, err)
	wanted := o.model.handOut(limit)
	s.wantHandOut(t, o.model, page, wanted)
	o.changed = o.changed || !wanted.nothing()
	o.givenUp = append(o.givenUp, wanted.givenUp...)
}

func (s *simulation) settleInTransaction(t *rapid.T) {
	o, table := s.one(t)
	said := s.drawSettlement(t, o.model)
	count, err := o.tx.Settle(s.ctx, table, simulatedGroup, said.Settlement)
	must(t, err)
	want, givenUp := o.model.settle(said.name, said.At, said.Delay, said.By)
	if count != want {
		t.Fatalf("in a transaction %s %v counted %d; want %d", said.name, said.At, count, want)
	}
	o.changed = o.changed || count > 0
	o.givenUp = append(o.givenUp, givenUp...)
}

func (s *simulation) appendInTransaction(t *rapid.T) {
	o, table := s.one(t)
	for _, c := range s.drawMessages(t) {
		_, appended, err := o.tx.Append(s.ctx, table, value.None(), c.value())
		var own uint64
		twice := false
		for _, earlier := range o.appends {
			own += earlier.bytes()
			twice = twice || o.model.bounds.Deduplicate != nil && c.id != "" && earlier.id == c.id
		}
		keptOut := twice || o.model.keptOut(c)
		if limit := o.model.bounds.RetainBytes; !keptOut && limit > 0 && own+c.bytes() > uint64(limit) {
			if !errors.Is(err, fault.TopicRetainExceeded) {
				t.Fatalf("appending %d bytes in a transaction to a topic that retains %d: %v", own+c.bytes(), limit, err)
			}
			continue
		}
		must(t, err)
		if appended == keptOut {
			t.Fatalf("%s in a transaction: appended %t; want %t", c.value(), appended, !keptOut)
		}
		if appended {
			o.appends = append(o.appends, c)
		}
	}
}

func (s *simulation) commit(t *rapid.T) {
	o, _ := s.one(t)
	s.open = slices.DeleteFunc(s.open, func(other *openTransaction) bool { return other == o })
	if rapid.IntRange(0, 5).Draw(t, "cancel") == 0 {
		o.tx.Cancel()
		s.wantEffect(t, o, false)
		return
	}
	positions, err := o.tx.Commit(s.ctx)
	if err != nil {
		if !errors.Is(err, fault.Conflict) {
			t.Fatalf("a transaction failed: %v", err)
		}
		lostToGroup := o.changed && o.groupCommits != s.groupCommits
		if o.definitions == s.definitions && !lostToGroup {
			t.Fatalf("nobody else changed what the transaction did, and it lost: %v", err)
		}
		s.wantEffect(t, o, false)
		return
	}
	if o.definitions != s.definitions {
		t.Fatal("a transaction committed that began before a definition changed")
	}
	s.wantEffect(t, o, true)
	if o.changed {
		merged, reason := s.model.merge(o.base, o.model)
		if reason != "" {
			t.Fatalf("a transaction committed, and %s", reason)
		}
		s.model = merged
		s.groupCommits++
	}
	s.appendAtCommit(t, o, positions[simulatedTopic])
	s.bury(t, o.givenUp)
	s.model.trim()
}

// appendAtCommit gives what a transaction appended its positions.
func (s *simulation) appendAtCommit(t *rapid.T, o *openTransaction, positions store.Appended) {
	var want store.Appended
	for _, c := range o.appends {
		// Others may have published the key since the transaction looked.
		if s.model.keptOut(c) {
			continue
		}
		s.model.append(c)
		if want.First == 0 {
			want.First = s.model.last
		}
		want.Last = s.model.last
	}
	if positions != want {
		t.Fatalf("a transaction appended at %v; want %v", positions, want)
	}
}

// wantEffect checks that what a transaction wrote is there if it committed, and
// only then.
func (s *simulation) wantEffect(t *rapid.T, o *openTransaction, committed bool) {
	tx, err := s.db.Begin(s.ctx)
	must(t, err)
	defer tx.Cancel()
	effects, err := tx.Catalog().Table(effectsTable)
	must(t, err)
	_, found, err := tx.Get(s.ctx, effects, o.effect)
	must(t, err)
	if found != committed {
		t.Fatalf("the transaction committed: %t; its record is there: %t", committed, found)
	}
}

// check compares INFO with the model, and holds what is promised at every step.
func (s *simulation) check(t *rapid.T) {
	tx, err := s.db.Begin(s.ctx)
	must(t, err)
	defer tx.Cancel()
	table, err := tx.Catalog().TopicTable(simulatedTopic)
	must(t, err)
	report, err := tx.ReportTopic(s.ctx, table)
	must(t, err)
	m := s.model
	if report.First != m.first || report.Last != m.last || report.Messages != uint64(m.last+1-m.first) || report.Bytes != m.bytes() {
		t.Fatalf("the topic holds %d to %d, %d messages of %d bytes; want %d to %d of %d bytes",
			report.First, report.Last, report.Messages, report.Bytes, m.first, m.last, m.bytes())
	}
	if place := report.Readers[auditReader]; place.Position != m.audit || place.Position > 0 && place.Lag != uint64(m.last-m.audit) {
		t.Fatalf("the reader is at %+v; want %d of %d", place, m.audit, m.last)
	}
	s.checkFigures(t, report.Groups[simulatedGroup])
	s.checkOrder(t)
}

func (s *simulation) checkFigures(t *rapid.T, report store.GroupReport) {
	m, f := s.model, report.Figures
	if (f.DeadLetterRefused > 0) != (f.DeadLetterReason != "") {
		t.Fatalf("%d dead letters were refused because of %q", f.DeadLetterRefused, f.DeadLetterReason)
	}
	f.DeadLetterReason = ""
	if want := m.figures(); f != want {
		t.Fatalf("INFO tells\n%+v; want\n%+v", f, want)
	}
	if f.HandedOut-f.Settled() != f.InFlight {
		t.Fatalf("handed out %d − settled %d is not in flight %d", f.HandedOut, f.Settled(), f.InFlight)
	}
	if f.Lag != uint64(m.last-f.Committed) {
		t.Fatalf("lag %d is not last %d − committed %d", f.Lag, m.last, f.Committed)
	}
	if int(f.InFlight) > s.mostOut {
		t.Fatalf("%d messages are out of %d", f.InFlight, m.definition.InFlight)
	}
	s.mostOut = max(m.definition.InFlight, int(f.InFlight))
	switch oldest := report.OldestAppended; {
	case f.Oldest == 0 && oldest != nil, f.Oldest != 0 && (oldest == nil || !oldest.Equal(m.contents[f.Oldest].appended)):
		t.Fatalf("the oldest, %d, was appended %v; want %v", f.Oldest, oldest, m.contents[f.Oldest].appended)
	}
}

// checkOrder: no two messages of a key are out at once, and none before an
// earlier one of its key is settled.
func (s *simulation) checkOrder(t *rapid.T) {
	m := s.model
	for p := m.first; p <= m.last; p++ {
		if m.inFlight(p) && m.waitsForKey(p) {
			t.Fatalf("position %d of key %q is out before an earlier one is settled", p, m.contents[p].key)
		}
	}
}
