package topic

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/fault"
)

// TestMain gives rapid more to do than it would by itself; its flags, as in
// -rapid.checks=100000, give it more still.
func TestMain(m *testing.M) {
	flag.Parse()
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": "2000", "rapid.steps": "150"} {
		if !set[name] {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// A group does what the model does, through hand-outs and all that settles,
// transactions that commit late or lose, retention, restarts, definitions that
// change and a clock that jumps; and what it promises holds at every step.
func TestAGroupDoesWhatThePlainModelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulation(t)
		t.Repeat(map[string]func(*rapid.T){
			"":         s.check,
			"append":   s.append,
			"advance":  s.advance,
			"retain":   s.retain,
			"hand out": s.lone(s.handOut),
			// More often than the others, so that groups get somewhere.
			"hand out again": s.lone(s.handOut),
			"settle":         s.lone(s.settle),
			"settle more":    s.lone(s.settle),
			"start at":       s.startAt,
			"alter":          s.alter,
			"restart":        s.restart,
			"begin":          s.begin,
			"in transaction": s.inTransaction,
			"commit":         s.commit,
		})
	})
}

// simulation is a group under test, the model beside it, and the rows that a
// store would have.
type simulation struct {
	model *model
	group *Group
	head  []byte
	rows  map[Position][]byte
	open  []*transaction
}

type transaction struct {
	group *Group
	// base is the model at the snapshot, model what the transaction made of
	// it.
	base, model *model
	changes     []Change
	startsAt    *Position
}

var epoch = time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)

func newSimulation(t *rapid.T) *simulation {
	m := &model{
		definition: drawDefinition(t),
		first:      1,
		now:        epoch,
		messages:   make([]modelMessage, 1),
		keys:       make([]string, 1),
	}
	// A group may take over a reader's place.
	for range rapid.IntRange(0, 5).Draw(t, "messages before the group") {
		m.append(drawKey(t))
		if rapid.Bool().Draw(t, "read by the reader") && m.position == m.last-1 {
			m.messages[m.last].state = forgotten
			m.position = m.last
		}
	}
	head := Head{Position: m.position}
	return &simulation{
		model: m,
		group: NewGroup(m.definition, head),
		head:  head.Append(nil),
		rows:  map[Position][]byte{},
	}
}

func drawDefinition(t *rapid.T) GroupDefinition {
	d := GroupDefinition{}
	if rapid.Bool().Draw(t, "keyed") {
		d.KeyedBy = "key"
	}
	return redraw(t, d)
}

// redraw is what ALTER GROUP may change.
func redraw(t *rapid.T, d GroupDefinition) GroupDefinition {
	d.AckDeadline = drawSeconds(t, "deadline", 1, 20)
	d.Deliveries = rapid.IntRange(0, 3).Draw(t, "DELIVERIES")
	d.InFlight = rapid.IntRange(1, 6).Draw(t, "IN FLIGHT")
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

func drawKey(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key")
}

// view is the topic of a model, for the group beside it.
func (m *model) view() View {
	keys := m.keys
	return View{First: m.first, Last: m.last, Now: m.now, Key: func(p Position) ([]byte, bool) {
		return []byte(keys[p]), keys[p] != ""
	}}
}

func (s *simulation) append(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "messages") {
		s.model.append(drawKey(t))
	}
}

func (s *simulation) advance(t *rapid.T) {
	s.model.now = s.model.now.Add(drawSeconds(t, "by", 0, 12))
	if rapid.IntRange(0, 19).Draw(t, "jump") == 19 {
		s.model.now = s.model.now.Add(time.Hour)
	}
	for _, tx := range s.open {
		tx.model.now = s.model.now
	}
}

func (s *simulation) retain(t *rapid.T) {
	held := int(s.model.last + 1 - s.model.first)
	s.model.first += Position(rapid.IntRange(0, min(held, 4)).Draw(t, "removed"))
}

// A command runs on a group and the model of the same state, compares what
// they answer, and returns the change, not applied yet.
type command func(*rapid.T, *Group, *model) Change

// lone is a command that is a statement alone: it runs on the newest state.
func (s *simulation) lone(run command) func(*rapid.T) {
	return func(t *rapid.T) { s.apply(t, run(t, s.group, s.model)) }
}

func (s *simulation) handOut(t *rapid.T, g *Group, m *model) Change {
	limit := rapid.IntRange(1, 8).Draw(t, "limit")
	fits := rapid.IntRange(1, 8).Draw(t, "fits")
	fitsDead := rapid.IntRange(1, 8).Draw(t, "dead letters fit")
	v := m.view()
	left, leftDead := fits-1, fitsDead-1
	v.Fits = func(Position) bool { left--; return left >= 0 }
	v.FitsDeadLetter = func(Position) bool { leftDead--; return leftDead >= 0 }

	wantReady, wantNext := m.ready()
	ready, next := g.Ready(v)
	if ready != wantReady || !next.Equal(wantNext) {
		t.Fatalf("ready %t, next %v; want %t, %v", ready, next, wantReady, wantNext)
	}
	c := g.HandOut(v, limit)
	handedOut, gaveUp, lapsedNow := m.handOut(limit, fits, fitsDead)
	if !slices.Equal(c.Out, handedOut) || !slices.Equal(c.GivenUp, gaveUp) || c.Lapsed != lapsedNow {
		t.Fatalf("handed out %v, gave up %v, lapsed %d; want %v, %v, %d", c.Out, c.GivenUp, c.Lapsed, handedOut, gaveUp, lapsedNow)
	}
	if c.Empty() == ready {
		t.Fatalf("the group was ready: %t; and wrote nothing: %t", ready, c.Empty())
	}
	s.refuse(t, &c, m)
	return c
}

// refuse lets the dead letter topic take some and not others.
func (s *simulation) refuse(t *rapid.T, c *Change, m *model) {
	for range c.GivenUp {
		if rapid.Bool().Draw(t, "refused") {
			c.Refuse("full")
			m.counts.refused++
		}
	}
}

func (s *simulation) settle(t *rapid.T, g *Group, m *model) Change {
	at := make([]Settle, rapid.IntRange(1, 6).Draw(t, "positions"))
	for i := range at {
		at[i].Position = Position(rapid.IntRange(0, int(m.position)+1).Draw(t, "position"))
		at[i].Delivery = Deliveries(max(0, rapid.IntRange(-4, 3).Draw(t, "delivery")))
	}
	var delay *time.Duration
	if rapid.Bool().Draw(t, "delayed") {
		d := drawSeconds(t, "delay", 0, 10)
		delay = &d
	}
	by := drawSeconds(t, "by", 0, 20)
	name := rapid.SampledFrom([]string{"ACK", "ACK", "ACK", "NACK", "EXTEND", "REJECT", "RELEASE"}).Draw(t, "command")
	v := m.view()
	var c Change
	switch name {
	case "ACK":
		c = g.Acknowledge(v, at)
	case "NACK":
		c = g.Return(v, at, delay)
	case "EXTEND":
		c = g.Extend(v, at, by)
	case "REJECT":
		c = g.Reject(v, at, "broken")
	case "RELEASE":
		c = g.Release(v, at)
	}
	if count := m.settle(name, at, delay, by); c.Count != count {
		t.Fatalf("%s %v counted %d; want %d", name, at, c.Count, count)
	}
	if c.Empty() != (c.Count == 0) {
		t.Fatalf("%s counted %d and wrote nothing: %t", name, c.Count, c.Empty())
	}
	s.refuse(t, &c, m)
	return c
}

func (s *simulation) startAt(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") != 0 {
		return
	}
	n := Position(rapid.IntRange(0, int(s.model.last)).Draw(t, "n"))
	c := s.group.StartAt(s.model.view(), n)
	s.model.startAt(n)
	s.apply(t, c)
}

// alter changes the definition; open transactions lose by that.
func (s *simulation) alter(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") != 0 {
		return
	}
	s.model.definition = redraw(t, s.model.definition)
	s.group.SetDefinition(s.model.definition)
	s.open = nil
}

// apply applies changes and writes their rows as a store does.
func (s *simulation) apply(t *rapid.T, changes ...Change) {
	if err := s.group.Check(changes...); err != nil {
		t.Fatalf("checking changes of the newest state: %v", err)
	}
	if err := s.group.Apply(changes...); err != nil {
		t.Fatalf("applying changes of the newest state: %v", err)
	}
	s.write(t, changes)
}

func (s *simulation) write(t *rapid.T, changes []Change) {
	before := s.head
	changesHead := false
	for _, c := range changes {
		for p := range s.rows {
			if p <= c.ForgetTo {
				delete(s.rows, p)
			}
		}
		for _, entry := range c.Entries {
			if entry.After.State == Settled {
				delete(s.rows, entry.Position)
			} else {
				s.rows[entry.Position] = entry.After.Append(nil)
			}
		}
		changesHead = changesHead || c.ChangesHead()
	}
	s.head = s.group.Head().Append(nil)
	if !changesHead && !slices.Equal(before, s.head) {
		t.Fatalf("the head changed and no change said so")
	}
}

// stored is the group as a node that starts reads it.
func (s *simulation) stored(t *rapid.T) *Group {
	head, err := DecodeHead(s.head)
	if err != nil {
		t.Fatal(err)
	}
	g := NewGroup(s.model.definition, head)
	for p, row := range s.rows {
		e, err := DecodeEntry(row)
		if err != nil {
			t.Fatalf("row %d: %v", p, err)
		}
		if err := g.Load(p, e); err != nil {
			t.Fatalf("row %d: %v", p, err)
		}
	}
	return g
}

func (s *simulation) restart(t *rapid.T) {
	s.group = s.stored(t)
	s.open = nil
}

func (s *simulation) begin(*rapid.T) {
	if len(s.open) < 3 {
		s.open = append(s.open, &transaction{group: s.group.Clone(), base: s.model.clone(), model: s.model.clone()})
	}
}

func (s *simulation) inTransaction(t *rapid.T) {
	if len(s.open) == 0 {
		t.Skip("none is open")
	}
	tx := s.open[rapid.IntRange(0, len(s.open)-1).Draw(t, "transaction")]
	var c Change
	switch rapid.IntRange(0, 9).Draw(t, "command") {
	case 0:
		if len(tx.changes) > 0 {
			t.Skip("START AT comes first in a transaction")
		}
		n := Position(rapid.IntRange(0, int(tx.model.last)).Draw(t, "n"))
		tx.startsAt = &n
		c = tx.group.StartAt(tx.model.view(), n)
		tx.base.startAt(n)
		tx.model.startAt(n)
		// What START AT forgets is counted when it is applied.
		tx.model.counts = tx.base.counts
	case 1, 2, 3, 4:
		c = s.handOut(t, tx.group, tx.model)
	default:
		c = s.settle(t, tx.group, tx.model)
	}
	if err := tx.group.Apply(c); err != nil {
		t.Fatalf("a transaction's own change: %v", err)
	}
	tx.changes = append(tx.changes, c)
}

func (s *simulation) commit(t *rapid.T) {
	if len(s.open) == 0 {
		t.Skip("none is open")
	}
	i := rapid.IntRange(0, len(s.open)-1).Draw(t, "transaction")
	tx := s.open[i]
	s.open = slices.Delete(s.open, i, i+1)

	before := describe(s.group)
	checked := s.group.Check(tx.changes...)
	err := s.group.Apply(tx.changes...)
	if (checked == nil) != (err == nil) {
		t.Fatalf("checked %v and applied %v", checked, err)
	}
	merged, reason := s.model.merge(tx)
	if err != nil {
		if !errors.Is(err, fault.Conflict) {
			t.Fatalf("not a conflict: %v", err)
		}
		if reason == "" {
			t.Fatalf("nothing stands against the transaction, and it lost: %v", err)
		}
		if after := describe(s.group); after != before {
			t.Fatalf("a transaction that lost changed the group:\n%s\n%s", before, after)
		}
		return
	}
	if reason != "" {
		t.Fatalf("the transaction committed, and should have lost: %s", reason)
	}
	s.model = merged
	s.write(t, tx.changes)
}

// merge is the model after a transaction commits, or why it cannot.
func (m *model) merge(tx *transaction) (merged *model, reason string) {
	merged = m.clone()
	if len(tx.changes) == 0 || !slices.ContainsFunc(tx.changes, func(c Change) bool { return !c.Empty() }) {
		return merged, ""
	}
	if tx.startsAt != nil {
		if m.epoch != tx.base.epoch-1 {
			return nil, "START AT"
		}
		merged.startAt(*tx.startsAt)
		// Nothing of what others did is left.
		tx.base.position = merged.position
		for p := range tx.base.messages {
			tx.base.messages[p] = merged.messages[p]
		}
	} else if m.epoch != tx.base.epoch {
		return nil, "START AT"
	}
	if tx.model.position != tx.base.position {
		if merged.position != tx.base.position {
			return nil, "new messages"
		}
		merged.position = tx.model.position
	}
	var removedTwice uint64
	before := merged.countInFlight()
	for p := range tx.base.messages {
		base, mine, theirs := tx.base.messages[p], tx.model.messages[p], &merged.messages[p]
		switch {
		case mine == base && !tx.touched(Position(p)):
		case mine.state == removed && merged.inFlight(Position(p)):
			*theirs = mine
		case mine.state == removed:
			// Another's hand-out said so first, or it was settled before.
			removedTwice++
		case *theirs != base:
			return nil, fmt.Sprintf("position %d", p)
		default:
			*theirs = mine
		}
	}
	if after := merged.countInFlight(); after > before && after > m.definition.InFlight && m.moreInFlight(tx) {
		return nil, "IN FLIGHT"
	}
	c, a, b := &merged.counts, tx.model.counts, tx.base.counts
	c.handedOut += a.handedOut - b.handedOut
	c.redelivered += a.redelivered - b.redelivered
	c.acknowledged += a.acknowledged - b.acknowledged
	c.givenUp += a.givenUp - b.givenUp
	c.removed += a.removed - b.removed - removedTwice
	c.lapsed += a.lapsed - b.lapsed
	c.refused += a.refused - b.refused
	return merged, ""
}

// touched reports whether a transaction changed a message, also if it is now
// as it was.
func (tx *transaction) touched(p Position) bool {
	return slices.ContainsFunc(tx.changes, func(c Change) bool {
		return slices.ContainsFunc(c.Entries, func(t Transition) bool { return t.Position == p })
	})
}

// moreInFlight reports whether the transaction handed out anything that was
// not in flight.
func (m *model) moreInFlight(tx *transaction) bool {
	return tx.model.counts.handedOut != tx.base.counts.handedOut
}

func describe(g *Group) string {
	text := fmt.Sprintf("%+v", g.head)
	for p, e := range g.Entries() {
		text += fmt.Sprintf("\n%d %+v", p, e)
	}
	return text
}

// check holds at every step.
func (s *simulation) check(t *rapid.T) {
	f := s.group.Figures(s.model.view())
	f.DeadLetterReason = ""
	if want := s.model.figures(); f != want {
		t.Fatalf("figures\n%+v; want\n%+v", f, want)
	}
	if f.HandedOut-f.Settled() != f.InFlight {
		t.Fatalf("handed out %d − settled %d is not in flight %d", f.HandedOut, f.Settled(), f.InFlight)
	}
	if f.Lag != uint64(s.model.last-f.Committed) {
		t.Fatalf("lag %d is not last %d − committed %d", f.Lag, s.model.last, f.Committed)
	}
	if got, want := describe(s.group), describe(s.stored(t)); got != want {
		t.Fatalf("the group\n%s\nand its rows\n%s", got, want)
	}
	s.checkOrder(t)
}

// checkOrder: no two messages of a key are in flight at once, and none before
// an earlier one of its key is settled.
func (s *simulation) checkOrder(t *rapid.T) {
	m := s.model
	if m.definition.KeyedBy == "" {
		return
	}
	unsettled := map[string]Position{}
	for p := m.first; p <= m.last; p++ {
		key := m.keys[p]
		if key == "" || m.settled(p) {
			continue
		}
		if earlier, ok := unsettled[key]; ok && m.inFlight(p) {
			t.Fatalf("position %d is in flight, and %d of its key %q is not settled", p, earlier, key)
		}
		if unsettled[key] == 0 {
			unsettled[key] = p
		}
	}
}
