package topic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// fixture is a group on a topic, with words for what a test does to them.
type fixture struct {
	t     *testing.T
	group *Group
	view  View
	keys  map[Position]string
}

func newFixture(t *testing.T, definition GroupDefinition, messages int) *fixture {
	t.Helper()
	if definition.AckDeadline == 0 {
		definition.AckDeadline = 30 * time.Second
	}
	if definition.InFlight == 0 {
		definition.InFlight = DefaultInFlight
	}
	if err := definition.Check("mail"); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, group: NewGroup(definition, Head{}), keys: map[Position]string{}}
	f.view = View{First: 1, Last: Position(messages), Now: epoch, Key: func(p Position) ([]byte, bool) {
		return []byte(f.keys[p]), f.keys[p] != ""
	}}
	return f
}

func (f *fixture) after(d time.Duration) { f.view.Now = f.view.Now.Add(d) }

func (f *fixture) apply(c Change) Change {
	f.t.Helper()
	if err := f.group.Apply(c); err != nil {
		f.t.Fatal(err)
	}
	return c
}

// read answers a READ as text: "1 2:3 lapsed 4 gave up 5:2" is message 1 for
// the first time, 2 for the third, 4 lapsed, and 5 given up on after 2.
func (f *fixture) read(limit int) string {
	f.t.Helper()
	return answerText(f.apply(f.group.HandOut(f.view, limit)))
}

func answerText(c Change) string {
	var words []string
	for _, d := range c.Out {
		words = append(words, delivery(d.Position, d.Deliveries))
	}
	if c.Lapsed > 0 {
		words = append(words, fmt.Sprintf("lapsed %d", c.Lapsed))
	}
	for i, g := range c.GivenUp {
		if i == 0 {
			words = append(words, "gave up")
		}
		words = append(words, delivery(g.Position, g.Deliveries))
	}
	return strings.Join(words, " ")
}

func delivery(p Position, n Deliveries) string {
	if n == 1 {
		return fmt.Sprint(p)
	}
	return fmt.Sprintf("%d:%d", p, n)
}

func (f *fixture) wantRead(limit int, want string) {
	f.t.Helper()
	if got := f.read(limit); got != want {
		f.t.Fatalf("READ LIMIT %d answered %q; want %q", limit, got, want)
	}
}

func at(positions ...Position) []Settle {
	settles := make([]Settle, len(positions))
	for i, p := range positions {
		settles[i].Position = p
	}
	return settles
}

func (f *fixture) want(c Change, count int) {
	f.t.Helper()
	f.apply(c)
	if c.Count != count {
		f.t.Fatalf("counted %d; want %d", c.Count, count)
	}
}

func (f *fixture) ack(count int, positions ...Position) {
	f.t.Helper()
	f.want(f.group.Acknowledge(f.view, at(positions...)), count)
}

func (f *fixture) nack(count int, positions ...Position) {
	f.t.Helper()
	f.want(f.group.Return(f.view, at(positions...), nil), count)
}

func (f *fixture) nackDelayed(delay time.Duration, positions ...Position) {
	f.t.Helper()
	f.want(f.group.Return(f.view, at(positions...), &delay), len(positions))
}

func (f *fixture) figures(want string) {
	f.t.Helper()
	g := f.group.Figures(f.view)
	got := fmt.Sprintf("position %d committed %d lag %d in flight %d redelivered %d dead %d oldest %d",
		g.Position, g.Committed, g.Lag, g.InFlight, g.Redelivered, g.DeadLettered, g.Oldest)
	if got != want {
		f.t.Fatalf("figures %s; want %s", got, want)
	}
}

func TestOneInFlightKeepsTheOrderAlsoWhileAMessageWaits(t *testing.T) {
	f := newFixture(t, GroupDefinition{}, 3)
	f.wantRead(10, "1")
	f.wantRead(10, "")
	f.ack(1, 1)
	f.ack(0, 1)
	f.wantRead(100, "2")
	f.nackDelayed(10*time.Second, 2)
	f.wantRead(100, "")
	f.after(10*time.Second - 1)
	f.wantRead(100, "")
	f.after(1)
	f.wantRead(100, "2:2")
	f.ack(1, 2, 3)
	f.figures("position 2 committed 2 lag 1 in flight 0 redelivered 1 dead 0 oldest 3")
}

func TestADueMessageIsGivenUpOnPastDeliveriesAndLeavesItsRoom(t *testing.T) {
	f := newFixture(t, GroupDefinition{AckDeadline: time.Second, Deliveries: 2, InFlight: 2, DeadLetter: "dead"}, 4)
	f.wantRead(100, "1 2")
	f.ack(1, 2)
	f.wantRead(100, "3")
	f.ack(1, 3)
	f.after(time.Second)
	f.wantRead(1, "1:2")
	f.after(time.Second)
	// A give-up does not use up the limit, and 4 takes the room.
	f.wantRead(1, "4 gave up 1:2")
	f.figures("position 4 committed 3 lag 1 in flight 1 redelivered 1 dead 1 oldest 4")
}

func TestARefusedDeadLetterIsCountedWithItsReason(t *testing.T) {
	f := newFixture(t, GroupDefinition{Deliveries: 1, DeadLetter: "dead"}, 1)
	f.wantRead(1, "1")
	f.after(30 * time.Second)
	c := f.group.HandOut(f.view, 1)
	c.Refuse(strings.Repeat("ä", MaxReasonBytes))
	f.apply(c)
	g := f.group.Figures(f.view)
	if g.DeadLettered != 1 || g.DeadLetterRefused != 1 || g.DeadLetterReason != strings.Repeat("ä", MaxReasonBytes/2) {
		t.Fatalf("%+v", g)
	}
	f.figures("position 1 committed 1 lag 0 in flight 0 redelivered 0 dead 1 oldest 0")
}

func TestDueMessagesComeFirstWhateverInFlightSays(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 3}, 9)
	f.wantRead(100, "1 2 3")
	narrow := f.group.Definition()
	narrow.InFlight = 1
	f.group.SetDefinition(narrow)
	f.nack(2, 3, 1)
	f.wantRead(1, "1:2")
	f.wantRead(9, "3:2")
	f.ack(2, 1, 2)
	// One is out still: the group empties before it goes on.
	f.wantRead(9, "")
	f.ack(1, 3)
	f.wantRead(9, "4")
}

func TestBackoffReplacesTheDeadlineTimeByTime(t *testing.T) {
	f := newFixture(t, GroupDefinition{AckDeadline: 10 * time.Second, Backoff: []time.Duration{time.Second, 5 * time.Second}}, 1)
	f.wantRead(1, "1")
	f.after(10*time.Second + 999*time.Millisecond)
	f.wantRead(1, "")
	f.after(time.Millisecond)
	f.wantRead(1, "1:2")
	f.nack(1, 1)
	f.after(5*time.Second - 1)
	f.wantRead(1, "")
	f.after(1)
	f.wantRead(1, "1:3")
	// The last one repeats; a DELAY takes its place.
	f.nack(1, 1)
	f.after(5 * time.Second)
	f.wantRead(1, "1:4")
	f.nackDelayed(0, 1)
	f.wantRead(1, "1:5")
}

func TestReleaseCountsInDeliveriesAndNotAgainstThem(t *testing.T) {
	f := newFixture(t, GroupDefinition{Deliveries: 2, Backoff: []time.Duration{time.Second, time.Minute}}, 1)
	for n := range 5 {
		f.wantRead(1, delivery(1, Deliveries(n+1)))
		f.want(f.group.Release(f.view, at(1)), 1)
		f.want(f.group.Release(f.view, at(1)), 0)
	}
	f.wantRead(1, "1:6")
	f.nack(1, 1)
	f.wantRead(1, "")
	f.after(time.Second)
	f.wantRead(1, "1:7")
	f.nackDelayed(0, 1)
	f.wantRead(1, "gave up 1:7")
}

func TestExtendIsForWhatAWorkerHolds(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 2}, 2)
	f.wantRead(2, "1 2")
	f.nackDelayed(time.Hour, 2)
	f.after(29 * time.Second)
	f.want(f.group.Extend(f.view, at(1, 2), 0), 1)
	f.after(29 * time.Second)
	f.wantRead(2, "")
	f.want(f.group.Extend(f.view, at(1), time.Minute), 1)
	f.after(time.Minute - 1)
	f.wantRead(2, "")
	f.after(1)
	// Late, but nobody was given the message.
	f.want(f.group.Extend(f.view, at(1), time.Second), 1)
	f.wantRead(2, "")
	f.after(time.Second)
	f.wantRead(2, "1:2")
}

func TestOnlyTheNamedDeliveryIsSettled(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 2}, 2)
	f.wantRead(2, "1 2")
	f.after(30 * time.Second)
	f.wantRead(1, "1:2")
	late := []Settle{{Position: 1, Delivery: 1}, {Position: 2, Delivery: 1}}
	// 2 is late as well, but nobody was given it again.
	f.want(f.group.Acknowledge(f.view, late), 1)
	f.want(f.group.Acknowledge(f.view, []Settle{{1, 1}, {1, 2}, {1, 2}}), 1)
	f.figures("position 2 committed 2 lag 0 in flight 0 redelivered 1 dead 0 oldest 0")
}

func TestAPositionNamedTwiceCountsOnce(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 9}, 9)
	f.wantRead(9, "1 2 3 4 5 6 7 8 9")
	f.nack(2, 4, 3, 3, 4, 4)
	f.ack(4, 1, 2, 9, 8, 8, 2, 1, 10, 0)
	c := f.apply(f.group.Reject(f.view, at(3, 5, 3), "bad"))
	if c.Count != 2 || !slices.Equal(c.GivenUp, []GiveUp{{3, 1, "bad"}, {5, 1, "bad"}}) {
		t.Fatalf("rejected %d: %v", c.Count, c.GivenUp)
	}
}

func TestPauseHandsOutNothingAndGivesNothingUp(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 3, Deliveries: 1}, 5)
	f.wantRead(2, "1 2")
	paused := f.group.Definition()
	paused.Paused = true
	f.group.SetDefinition(paused)
	f.after(time.Hour)
	f.wantRead(9, "")
	f.view.First = 4
	f.wantRead(9, "")
	if now, next := f.group.Ready(f.view); now || !next.IsZero() {
		t.Fatalf("ready %t %v while paused", now, next)
	}
	paused.Paused = false
	f.group.SetDefinition(paused)
	f.wantRead(9, "4 5 lapsed 1")
}

func TestStartAtForgetsWhatWasInFlightAndCountersGoOn(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 5}, 6)
	f.wantRead(4, "1 2 3 4")
	f.ack(1, 3)
	f.nack(1, 1)
	f.wantRead(1, "1:2")
	f.apply(f.group.StartAt(f.view, 1))
	f.figures("position 1 committed 1 lag 5 in flight 0 redelivered 1 dead 0 oldest 2")
	f.ack(0, 1, 2, 3, 4)
	f.wantRead(9, "2 3 4 5 6")
	f.apply(f.group.StartAt(f.view, 6))
	f.wantRead(9, "")
	f.figures("position 6 committed 6 lag 0 in flight 0 redelivered 1 dead 0 oldest 0")
	if g := f.group.Figures(f.view); g.HandedOut != 9 || g.Forgotten != 8 || g.Acknowledged != 1 {
		t.Fatalf("%+v", g)
	}
}

func TestWhatRetentionRemovedIsSettledBeforeAnybodyReads(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 3}, 9)
	f.wantRead(9, "1 2 3")
	f.ack(1, 2)
	f.view.First = 6
	f.figures("position 3 committed 5 lag 4 in flight 0 redelivered 0 dead 0 oldest 6")
	f.ack(0, 1, 3)
	c := f.group.HandOut(f.view, 2)
	if c.ForgetTo != 5 {
		t.Fatalf("rows are removed to %d; want 5", c.ForgetTo)
	}
	f.apply(c)
	if got := answerText(c); got != "6 7 lapsed 2" {
		t.Fatalf("answered %q", got)
	}
	for p := range f.group.Entries() {
		if p < 6 {
			t.Fatalf("entry %d is stored still", p)
		}
	}
	f.view.First = 10
	f.figures("position 7 committed 9 lag 0 in flight 0 redelivered 0 dead 0 oldest 0")
	f.wantRead(2, "lapsed 2")
	f.wantRead(2, "")
	f.figures("position 9 committed 9 lag 0 in flight 0 redelivered 0 dead 0 oldest 0")
}

func TestAReadWithNothingToSayWritesNothing(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 2}, 2)
	f.wantRead(2, "1 2")
	// Also where rows could be removed: an idle group writes nothing.
	f.view.First = 2
	if c := f.group.HandOut(f.view, 5); !c.Empty() {
		t.Fatalf("changed %+v", c)
	}
	if c := f.group.Acknowledge(f.view, at(1, 7)); !c.Empty() {
		t.Fatalf("changed %+v", c)
	}
}

func TestAGroupTakesAReadersPlaceOver(t *testing.T) {
	f := newFixture(t, GroupDefinition{}, 3)
	f.group = NewGroup(f.group.Definition(), Head{Position: 2})
	f.figures("position 2 committed 2 lag 1 in flight 0 redelivered 0 dead 0 oldest 3")
	f.wantRead(9, "3")
}

func TestAKeysOrderIsKeptAndKeysGoSideBySide(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 3, KeyedBy: "order", Deliveries: 1}, 9)
	f.keys = map[Position]string{1: "a", 2: "a", 3: "b", 4: "a", 6: "b", 7: "c", 8: "b", 9: "a"}
	f.wantRead(9, "1 3 5")
	f.figures("position 5 committed 0 lag 9 in flight 3 redelivered 0 dead 0 oldest 1")
	f.ack(1, 5)
	f.wantRead(9, "7")
	f.ack(1, 1)
	f.wantRead(9, "2")
	f.figures("position 7 committed 1 lag 8 in flight 3 redelivered 0 dead 0 oldest 2")
	// Giving 2 and 3 up frees 4 and 6 in the same hand-out, in order.
	f.ack(1, 7)
	f.after(30 * time.Second)
	f.wantRead(9, "4 6 gave up 2 3")
	f.ack(2, 6, 4)
	f.wantRead(9, "8 9")
}

func TestRetentionFreesAKey(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 2, KeyedBy: "order"}, 5)
	f.keys = map[Position]string{1: "a", 2: "a", 3: "a", 4: "a", 5: "b"}
	f.wantRead(9, "1 5")
	f.view.First = 3
	f.wantRead(9, "3 lapsed 1")
	f.wantRead(9, "")
	f.figures("position 5 committed 2 lag 3 in flight 2 redelivered 0 dead 0 oldest 3")
}

func TestAKeyedGroupLooksTenThousandPastItsLowest(t *testing.T) {
	const free = 1 + MaxLookahead
	f := newFixture(t, GroupDefinition{InFlight: 5, KeyedBy: "order"}, free+2)
	looked := map[Position]int{}
	f.view.Key = func(p Position) ([]byte, bool) {
		looked[p]++
		if p == free || p == free+1 {
			return nil, false
		}
		return []byte("a"), true
	}
	f.wantRead(9, fmt.Sprintf("1 %d", free))
	f.wantRead(9, "")
	f.ack(1, 1)
	// 2 is the lowest now, and one more is in sight.
	f.wantRead(9, fmt.Sprintf("2 %d", free+1))
	for p, times := range looked {
		if times != 1 {
			t.Fatalf("the key of %d was looked up %d times", p, times)
		}
	}
	if n := len(f.group.live(MaxPosition)); n != free {
		t.Fatalf("%d entries", n)
	}
}

func TestAnAnswerEndsWhereItIsFullButHoldsOne(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 5, Deliveries: 1}, 5)
	var asked []Position
	f.view.Fits = func(p Position) bool { asked = append(asked, p); return p != 3 }
	f.wantRead(9, "1 2")
	f.wantRead(9, "3 4 5")
	if !slices.Equal(asked, []Position{2, 3, 4, 5}) {
		t.Fatalf("asked for %v", asked)
	}
	f.after(30 * time.Second)
	f.view.FitsDeadLetter = func(p Position) bool { return p != 3 }
	f.wantRead(9, "gave up 1 2")
	f.wantRead(9, "gave up 3 4 5")
}

func TestOneHandOutGivesUpOnAThousandAtMost(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 2500, Deliveries: 1}, 2501)
	if c := f.apply(f.group.HandOut(f.view, 2500)); len(c.Out) != 2500 {
		t.Fatalf("handed out %d", len(c.Out))
	}
	f.after(30 * time.Second)
	for _, want := range []int{1000, 1000, 500} {
		if c := f.apply(f.group.HandOut(f.view, 1)); len(c.GivenUp) != want || (len(c.Out) == 1) != (want == 500) {
			t.Fatalf("gave up on %d and handed out %v; want %d", len(c.GivenUp), c.Out, want)
		}
	}
}

func TestReadyTellsWhenTimeAloneBringsAMessage(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 2, Backoff: []time.Duration{time.Second}}, 2)
	wantReady := func(want bool, wantNext time.Duration) {
		t.Helper()
		now, next := f.group.Ready(f.view)
		if now != want || !now && wantNext != 0 && next.Sub(epoch) != wantNext || wantNext == 0 && !next.IsZero() {
			t.Fatalf("ready %t, next %v", now, next)
		}
	}
	wantReady(true, 0)
	f.wantRead(9, "1 2")
	wantReady(false, 31*time.Second)
	f.nackDelayed(5*time.Second, 2)
	wantReady(false, 5*time.Second)
	f.after(5 * time.Second)
	wantReady(true, 0)
	f.ack(2, 1, 2)
	wantReady(false, 0)
	f.view.Last = 4
	f.view.First = 5
	wantReady(true, 0)
}

// Each case makes two commands on one state; the second is applied after the
// first was.
func TestOnlyWhatTouchesTheSameConflicts(t *testing.T) {
	read := func(limit int) func(*Group, View) Change {
		return func(g *Group, v View) Change { return g.HandOut(v, limit) }
	}
	ack := func(positions ...Position) func(*Group, View) Change {
		return func(g *Group, v View) Change { return g.Acknowledge(v, at(positions...)) }
	}
	nack := func(positions ...Position) func(*Group, View) Change {
		return func(g *Group, v View) Change { return g.Return(v, at(positions...), nil) }
	}
	startAt := func(n Position) func(*Group, View) Change {
		return func(g *Group, v View) Change { return g.StartAt(v, n) }
	}
	// In flight: 1 out, 2 returned and due, 3 out, of 5 and 9 messages.
	cases := []struct {
		name          string
		first, second func(*Group, View) Change
		conflict      bool
	}{
		{"acknowledgements of different messages", ack(1), ack(2, 3), false},
		{"acknowledgements of one message", ack(1, 2), ack(2, 3), true},
		{"an acknowledgement and a return of one message", ack(3), nack(3), true},
		{"an acknowledgement and the hand-out of new messages", ack(3), read(5), false},
		{"the hand-out of new messages and an acknowledgement", read(5), ack(3), false},
		{"an acknowledgement of a message handed out again", read(1), ack(2), true},
		{"two hand-outs of new messages", read(5), read(5), true},
		{"a hand-out of a due message and one of it and new ones", read(1), read(5), true},
		{"a return and the hand-out of new messages", nack(1), read(3), false},
		{"START AT and an acknowledgement", startAt(0), ack(1), true},
		{"START AT and a hand-out", startAt(3), read(1), true},
		{"two of START AT", startAt(0), startAt(0), true},
		{"an acknowledgement and START AT", ack(1), startAt(0), false},
		{"an acknowledgement of what is not in flight", startAt(0), ack(8), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, GroupDefinition{InFlight: 5}, 9)
			f.wantRead(3, "1 2 3")
			f.nack(1, 2)
			snapshot := f.group.Clone()
			second := c.second(snapshot, f.view)
			f.apply(c.first(f.group, f.view))
			before := describe(f.group)
			err := f.group.Apply(second)
			if c.conflict != errors.Is(err, fault.Conflict) || !c.conflict && err != nil {
				t.Fatalf("applied: %v; want a conflict: %t", err, c.conflict)
			}
			if err != nil && describe(f.group) != before {
				t.Fatal("the change that lost changed the group")
			}
		})
	}
}

func TestInFlightHoldsWhereAGroupWasNarrowedUnderATransaction(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 3}, 5)
	f.wantRead(2, "1 2")
	f.nack(2, 1, 2)
	transaction := f.group.Clone()
	again, more := transaction.HandOut(f.view, 2), transaction.HandOut(f.view, 3)
	narrow := f.group.Definition()
	narrow.InFlight = 2
	f.group.SetDefinition(narrow)
	if err := f.group.Check(more); !errors.Is(err, fault.Conflict) {
		t.Fatalf("applied beyond IN FLIGHT: %v", err)
	}
	// What is in flight already is handed out again all the same.
	narrow.InFlight = 1
	f.group.SetDefinition(narrow)
	f.apply(again)
}

func TestWhatAGroupLookedAtIsForgottenWhenItsPositionPassesIt(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 2, KeyedBy: "order"}, 5)
	f.keys = map[Position]string{1: "a", 2: "a", 3: "a", 4: "a", 5: "b"}
	f.wantRead(1, "1")
	f.ack(1, 1)
	// One member has looked at 2; another, which has not, is told that 2 to 4
	// lapsed.
	f.group.Ready(f.view)
	other := NewGroup(f.group.Definition(), f.group.Head())
	f.view.First = 5
	c := f.apply(other.HandOut(f.view, 9))
	if got := answerText(c); got != "5 lapsed 3" {
		t.Fatalf("answered %q", got)
	}
	for p, e := range f.group.Entries() {
		if p != 5 {
			t.Errorf("entry %d is %+v", p, e)
		}
	}
}

func TestLapsedMessagesAreToldToOneOfTwoTransactions(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 3, KeyedBy: "order"}, 4)
	f.keys = map[Position]string{1: "a", 2: "a", 3: "b", 4: "b"}
	f.wantRead(2, "1 3")
	// 2 was passed over and lapses; the position stays.
	f.view.First = 3
	one, two := f.group.Clone().HandOut(f.view, 9), f.group.Clone().HandOut(f.view, 9)
	if one.Lapsed != 1 || two.Lapsed != 1 {
		t.Fatalf("lapsed %d and %d", one.Lapsed, two.Lapsed)
	}
	f.apply(one)
	if err := f.group.Apply(two); !errors.Is(err, fault.Conflict) {
		t.Fatalf("told twice: %v", err)
	}
}

func TestWhatRetentionRemovesUnderATransactionIsSettledAllTheSame(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 4}, 6)
	f.wantRead(2, "1 2")
	snapshot := f.group.Clone()
	acknowledges, handsOut := snapshot.Acknowledge(f.view, at(1)), snapshot.HandOut(f.view, 9)
	f.view.First = 4
	f.group.Figures(f.view)
	f.apply(acknowledges)
	f.apply(handsOut)
	f.figures("position 4 committed 3 lag 3 in flight 1 redelivered 0 dead 0 oldest 4")
	if g := f.group.Figures(f.view); g.HandedOut != 4 || g.Acknowledged != 1 || g.Removed != 2 {
		t.Fatalf("%+v", g)
	}
	f.wantRead(9, "5 6")
}

func TestATransactionsChangesAreAppliedAllOrNone(t *testing.T) {
	f := newFixture(t, GroupDefinition{}, 5)
	transaction := f.group.Clone()
	var changes []Change
	for p := Position(1); p <= 3; p++ {
		for _, c := range []Change{transaction.HandOut(f.view, 1), {}} {
			if err := transaction.Apply(c); err != nil {
				t.Fatal(err)
			}
			changes = append(changes, c)
		}
		c := transaction.Acknowledge(f.view, at(p))
		if err := transaction.Apply(c); err != nil {
			t.Fatal(err)
		}
		changes = append(changes, c)
	}
	other := f.group.Clone()
	if err := f.group.Apply(changes...); err != nil {
		t.Fatal(err)
	}
	f.figures("position 3 committed 3 lag 2 in flight 0 redelivered 0 dead 0 oldest 4")

	// The other's group is past position 0 already.
	f.group = other
	f.wantRead(1, "1")
	before := describe(f.group)
	if err := f.group.Apply(changes...); !errors.Is(err, fault.Conflict) || describe(f.group) != before {
		t.Fatalf("applied: %v", err)
	}
}

func TestAClockThatIsBehindHandsNothingOutEarly(t *testing.T) {
	f := newFixture(t, GroupDefinition{InFlight: 2}, 2)
	f.wantRead(2, "1 2")
	ahead := f.view
	ahead.Now = epoch.Add(30 * time.Second)
	if now, _ := f.group.Ready(ahead); !now {
		t.Fatal("not ready at the deadline")
	}
	if now, next := f.group.Ready(f.view); now || !next.Equal(ahead.Now) {
		t.Fatalf("before the deadline: ready %t, next %v", now, next)
	}
	f.wantRead(2, "")
	f.ack(1, 1)
	f.view = ahead
	f.wantRead(2, "2:2")
}

func TestDefinitionsOutOfBoundsAreRefused(t *testing.T) {
	valid := GroupDefinition{AckDeadline: time.Second, InFlight: 1}
	cases := []struct {
		change func(*GroupDefinition)
		kind   fault.Kind
		names  string
	}{
		{func(*GroupDefinition) {}, "", ""},
		{func(d *GroupDefinition) { d.AckDeadline = 0 }, fault.InvalidClause, "ACK DEADLINE is 0s"},
		{func(d *GroupDefinition) { d.AckDeadline = -time.Second }, fault.InvalidClause, "ACK DEADLINE is -1s"},
		{func(d *GroupDefinition) { d.AckDeadline = MaxDuration + 1 }, fault.InvalidClause, "at most 87600h"},
		{func(d *GroupDefinition) { d.InFlight = 0 }, fault.InvalidClause, "IN FLIGHT is 0; it must be from 1 to 10000"},
		{func(d *GroupDefinition) { d.InFlight = 10_000 }, "", ""},
		{func(d *GroupDefinition) { d.InFlight = 10_001 }, fault.InvalidClause, "IN FLIGHT is 10001"},
		{func(d *GroupDefinition) { d.Deliveries = -1 }, fault.InvalidClause, "DELIVERIES is -1"},
		{func(d *GroupDefinition) { d.Deliveries = MaxDeliveries + 1 }, fault.InvalidClause, "DELIVERIES is 1000000001"},
		{func(d *GroupDefinition) { d.Backoff = []time.Duration{0, time.Hour} }, "", ""},
		{func(d *GroupDefinition) { d.Backoff = []time.Duration{-1} }, fault.InvalidClause, "BACKOFF is -1ns"},
		{func(d *GroupDefinition) { d.Backoff = make([]time.Duration, 101) }, fault.InvalidClause, "BACKOFF lists 101"},
		{func(d *GroupDefinition) { d.DeadLetter = "dead" }, fault.InvalidClause, "DEAD LETTER TO dead needs DELIVERIES"},
		{func(d *GroupDefinition) { d.DeadLetter, d.Deliveries = "mail", 1 }, fault.DeadLetterIsTheTopic, "topic mail"},
		{func(d *GroupDefinition) { d.DeadLetter, d.Deliveries = "dead", 1 }, "", ""},
	}
	for _, c := range cases {
		d := valid
		c.change(&d)
		wantFault(t, d.Check("mail"), c.kind, c.names)
	}
	wantFault(t, CheckStartAt("mail", "g", 3, 3), "", "")
	wantFault(t, CheckStartAt("mail", "g", 4, 3), fault.InvalidClause, "START AT 4 of group 'g' is past 3")
	wantFault(t, CheckDelay("DELAY", 0), "", "")
	wantFault(t, CheckDelay("DELAY", MaxDuration+1), fault.InvalidClause, "DELAY is")
}

// wantFault wants no error where kind is empty, and else one of that kind
// whose message says what it names.
func wantFault(t *testing.T, err error, kind fault.Kind, names string) {
	t.Helper()
	if kind == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), names) {
		t.Errorf("answered %v; want %s naming %q", err, kind, names)
	}
}
