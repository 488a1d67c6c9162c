package cluster

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// sound is a small history and the state that it leads to, which are as they
// must be. Of five messages the group acknowledged 1, in a transaction 2, gave up
// on 3, and was cut off from the answer of acknowledging 4.
func sound() ([]operation, state) {
	took := func(p uint64) []taken { return []taken{{p, 1}} }
	history := []operation{
		{What: appends, By: "a", N: 1, First: 1, Last: 1},
		{What: appends, By: "a", N: 2, First: 2, Last: 2},
		{What: transacts, By: "t", N: 1, First: 3, Last: 4, Ledger: 1},
		{What: appends, By: "b", N: 1, Err: "Unavailable: cut off", Kind: "Unavailable"}, // It is at 5.
		{What: appends, By: "b", N: 2, Err: "Unavailable: cut off", Kind: "Unavailable"}, // It is nowhere.
		{What: transacts, By: "t", N: 2, Err: "Conflict: lost", Kind: "Conflict"},
		{What: looks, First: 1, Last: 4, Count: 3, By: "t", N: 1},
		{What: pays, By: "p1", First: 1, Count: 1},
		{What: pays, By: "p1"},
		{What: rings, By: "r", N: 1, First: 7, Last: 7},
		{What: consumes, Last: 4},
		{What: takes, Taken: took(1)},
		{What: acknowledge, Taken: took(1), Count: 1},
		{What: works, Taken: took(2)},
		{What: takes, Taken: took(3)},
		{What: rejects, Taken: took(3), Count: 1},
		{What: takes, Taken: took(4)},
		{What: acknowledge, Taken: took(4), Err: "Unavailable: cut off", Kind: "Unavailable"},
		{What: informs, Count: 3},
		{What: takes, Taken: took(5)},
		{What: acknowledge, Taken: took(5), Count: 1},
	}
	for i := range history {
		history[i].Call, history[i].Return = int64(10*i+1), int64(10*i+2)
	}
	return history, state{
		events:   []entry{{"a", 1}, {"a", 2}, {"t", 1}, {"t", 1}, {"b", 1}},
		ledger:   []entry{{"t", 1}},
		payments: []string{"p1"},
		ringLast: 7, counters: map[string]int64{"t": 1},
		effects: map[uint64]uint64{1: 1, 2: 2, 3: 3, 4: 4},
		done:    map[uint64]bool{2: true}, dead: map[uint64]int{3: 1},
		places: map[string]uint64{"billing": 4, "ringer": 5},
		totals: map[string]total{"billing": {Count: 4}, "ringer": {Count: 2, Lapsed: 3}},
		group:  groupFigures{Committed: 5, DeadLettered: 1},
	}
}

func TestTheCheckerAcceptsASoundHistory(t *testing.T) {
	if violations := check(sound()); len(violations) > 0 {
		t.Fatalf("it complains:\n%s", strings.Join(violations, "\n"))
	}
}

func TestTheCheckerRefusesADoctoredHistory(t *testing.T) {
	first := func(h []operation, what action) *operation {
		return &h[slices.IndexFunc(h, func(o operation) bool { return o.What == what })]
	}
	for name, test := range map[string]struct {
		doctor func(h []operation, s *state) []operation
		want   string
	}{
		"an acknowledged message is lost": {func(h []operation, s *state) []operation {
			s.events[4], first(h, appends).Last = entry{"b", 9}, 1
			return append(h, operation{What: appends, By: "c", N: 1, First: 5, Last: 5, Call: 1000, Return: 1001})
		}, "was acknowledged at 5"},
		"a message is there twice": {func(h []operation, s *state) []operation {
			s.events[4] = entry{"a", 1}
			return h
		}, "was appended 1 times"},
		"a message is from nowhere": {func(h []operation, s *state) []operation {
			s.events[4] = entry{"x", 1}
			return h
		}, "nobody appended"},
		"half a transaction": {func(h []operation, s *state) []operation {
			s.ledger = nil
			return h
		}, "2 messages in events and 0 in ledger"},
		"a transaction that lost is there": {func(h []operation, s *state) []operation {
			s.events = append(s.events, entry{"t", 2}, entry{"t", 2})
			return h
		}, "lost, and is at"},
		"a record is behind its transaction": {func(h []operation, s *state) []operation {
			s.counters["t"] = 0
			return h
		}, "the record of t says 0"},
		"positions run against time": {func(h []operation, s *state) []operation {
			h[0].Call, h[0].Return = 5000, 5001
			return h
		}, "no order of"},
		"a read does not see what was acknowledged before it": {func(h []operation, s *state) []operation {
			o := first(h, looks)
			o.First, o.Last, o.Count, o.By, o.N = 0, 2, 2, "a", 2
			return h
		}, "no order of"},
		"a read saw another message": {func(h []operation, s *state) []operation {
			first(h, looks).By = "a"
			return h
		}, "a read saw"},
		"a payment is there twice": {func(h []operation, s *state) []operation {
			s.payments = []string{"p1", "p1"}
			return h
		}, "in payments twice"},
		"a payment that was acknowledged is lost": {func(h []operation, s *state) []operation {
			s.payments = nil
			return h
		}, "p1 was acknowledged"},
		"an effect happened twice": {func(h []operation, s *state) []operation {
			s.effects[4] = 5
			return h
		}, "had its effect as number 5"},
		"an effect is lost": {func(h []operation, s *state) []operation {
			delete(s.effects, 4)
			return h
		}, "had its effect as number 0"},
		"a reader went back": {func(h []operation, s *state) []operation {
			first(h, consumes).Last = 5
			return h
		}, "billing was acknowledged at 5"},
		"something was passed over in silence": {func(h []operation, s *state) []operation {
			s.totals["ringer"] = total{Count: 2, Lapsed: 2}
			return h
		}, "ringer is at 5"},
		"an acknowledged message is handed out again": {func(h []operation, s *state) []operation {
			return append(h, operation{What: takes, Taken: []taken{{1, 2}}, Call: 1000, Return: 1001})
		}, "message 1 was settled and handed out again"},
		"a message is settled twice": {func(h []operation, s *state) []operation {
			return append(h, operation{What: acknowledge, Taken: []taken{{1, 1}}, Count: 1, Call: 1000, Return: 1001})
		}, "message 1 was settled twice"},
		"two members hold one delivery": {func(h []operation, s *state) []operation {
			return append(h, operation{What: takes, Taken: []taken{{5, 1}}, Call: 191, Return: 192})
		}, "delivery 1 of message 5"},
		"a message is never handed out": {func(h []operation, s *state) []operation {
			return slices.DeleteFunc(h, func(o operation) bool { return len(o.Taken) > 0 && o.Taken[0].Position == 5 })
		}, "message 5 is lost"},
		"a dead letter is lost": {func(h []operation, s *state) []operation {
			s.dead = map[uint64]int{}
			return h
		}, "message 3: reject was answered"},
		"an acknowledged message is a dead letter": {func(h []operation, s *state) []operation {
			s.dead = maps.Clone(s.dead)
			s.dead[2] = 1
			return h
		}, "message 2 has 1 dead letters"},
		"more is in flight than may be": {func(h []operation, s *state) []operation {
			first(h, informs).Count = inFlight + 1
			return h
		}, "31 messages were in flight"},
		"the figures do not add up": {func(h []operation, s *state) []operation {
			s.group.Committed = 4
			return h
		}, "the group's figures"},
		"commits were lost": {func(h []operation, s *state) []operation {
			h[4].Err = "Unavailable: PostgreSQL lost commits that it had acknowledged"
			return h
		}, "lost commits"},
		"an error that cannot be": {func(h []operation, s *state) []operation {
			h[4].Kind = "Internal"
			return h
		}, "Unavailable: cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			history, final := sound()
			history = test.doctor(history, &final)
			violations := strings.Join(check(history, final), "\n")
			if !strings.Contains(violations, test.want) {
				t.Errorf("it says\n%s\nand not %q", violations, test.want)
			}
		})
	}
}
