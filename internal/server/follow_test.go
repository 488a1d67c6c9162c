package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/value"
)

func TestAFollowPushesWhatCommitsAgainstCredit(t *testing.T) {
	n := newNode(t, server.Limits{})
	appender := n.dial()
	run(t, appender, "INSERT INTO events [1, 2, 3]", nil)
	s := n.open()
	s.send(`{"id":7,"sql":"FOLLOW events AFTER 1","credit":1}`)
	want(t, "the answer", s.receive(), `{"id":7,"answers":[{"ok":true,"answer":{"after":1,"topic":"events"}}]}`)
	want(t, "the credit's worth", ids(s.receive()), `{"follow":7,"messages":[{"id":"events:u''","position":2,"value":2}]}`)
	// Without credit nothing comes: what comes next is the answer to what was asked.
	s.send(`{"id":8,"sql":"SLEEP 50ms"}`)
	want(t, "an answer", s.receive(), `{"id":8,"answers":[{"ok":true,"answer":null}]}`)
	s.send(`{"follow":7,"credit":2}`)
	want(t, "what there is", ids(s.receive()), `{"follow":7,"messages":[{"id":"events:u''","position":3,"value":3}]}`)
	run(t, appender, "CREATE events = 4", nil)
	want(t, "what commits", ids(s.receive()), `{"follow":7,"messages":[{"id":"events:u''","position":4,"value":4}]}`)
	s.send(`{"follow":7,"cancel":true}`)
	if got := s.receive(); !matches(`{"error":{"kind":"Cancelled","message":"*"},"follow":7}`, got) {
		t.Fatal(got)
	}
	s.send(`{"follow":7,"credit":1}`)
	if got := s.receive(); !matches(`{"error":{"kind":"NotFound","message":"*"},"follow":7}`, got) {
		t.Fatal(got)
	}
}

func ids(frame string) string { return generated.ReplaceAllString(frame, "u''") }

func TestAFollowWithoutAfterBeginsWithWhatCommitsNext(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.dial()
	run(t, s, "INSERT INTO events [1, 2]", nil)
	followed, err := s.Follow(t.Context(), "FOLLOW events", nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	if followed.After != 2 {
		t.Fatalf("it begins after %d", followed.After)
	}
	run(t, s, "CREATE events = 3", nil)
	pushed, err := followed.Next(t.Context())
	if err != nil || len(pushed.Messages) != 1 || pushed.Messages[0].Position() != 3 {
		t.Fatalf("pushed %v %v", pushed, err)
	}
}

func TestAFollowTellsWhatRetentionRemovedAndGoesOn(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.dial()
	run(t, s, "DEFINE TOPIC ring RETAIN BYTES 3; INSERT INTO ring [1, 2, 3]; CREATE ring = 4; CREATE ring = 5", nil)
	followed, err := s.Follow(t.Context(), "FOLLOW ring AFTER 0", nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := followed.Next(t.Context())
	if err != nil || pushed.Lapsed != 2 || len(pushed.Messages) != 3 || pushed.Messages[0].Position() != 3 {
		t.Fatalf("pushed %v %v", pushed, err)
	}
}

func TestAFollowEndsWhenItsTopicIsDroppedAlsoIfItsNameComesBack(t *testing.T) {
	n := newNode(t, server.Limits{})
	s, other := n.dial(), n.dial()
	for _, drop := range []string{"DROP TOPIC events", "DEFINE TOPIC events; CREATE events = 1"} {
		if strings.HasPrefix(drop, "DEFINE") {
			run(t, other, drop, nil)
			drop = "DROP TOPIC events; DEFINE TOPIC events; CREATE events = 2"
		}
		followed, err := s.Follow(t.Context(), "FOLLOW events", nil, 10)
		if err != nil {
			t.Fatal(err)
		}
		run(t, other, drop, nil)
		if pushed, err := followed.Next(t.Context()); err == nil {
			t.Fatalf("after %s it is pushed %v", drop, pushed)
		} else {
			wantKind(t, fault.Of(err), fault.NotFound, "events")
		}
	}
}

func TestAFollowIsRefusedWithItsReason(t *testing.T) {
	n := newNode(t, server.Limits{Follows: 1})
	s := n.open()
	for _, c := range []struct{ sent, want string }{
		{`{"id":1,"sql":"FOLLOW none"}`, `{"id":1,"answers":[{"ok":false,"error":{"kind":"NotFound","message":"*"}}]}`},
		{`{"id":1,"sql":"FOLLOW events AFTER 'x'"}`, `{"id":1,"answers":[{"ok":false,"error":{"kind":"InvalidClause","message":"*"}}]}`},
		{`{"id":1,"sql":"FOLLOW events AFTER $n","params":{"n":-1}}`, `{"id":1,"answers":[{"ok":false,"error":{"kind":"InvalidClause","message":"*"}}]}`},
		{`{"sql":"FOLLOW events"}`, `{"id":null,"answers":[{"ok":false,"error":{"kind":"InvalidClause","message":"*"}}]}`},
		{`{"id":1,"sql":"FOLLOW events","credit":-1}`, `{"id":1,"answers":[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]}`},
		{`{"id":1,"sql":"SLEEP 0s; FOLLOW events"}`, `{"id":1,"answers":[{"ok":true,"answer":null},{"ok":false,"error":{"kind":"InvalidClause","message":"*"}}]}`},
		{`{"id":1,"sql":"BEGIN"}`, `{"id":1,"answers":[{"ok":true,"answer":null}]}`},
		{`{"id":1,"sql":"FOLLOW events"}`, `{"id":1,"answers":[{"ok":false,"error":{"kind":"InvalidClause","message":"*"}}]}`},
		{`{"id":1,"sql":"CANCEL"}`, `{"id":1,"answers":[{"ok":true,"answer":null}]}`},
		{`{"id":1,"sql":"FOLLOW events"}`, `{"id":1,"answers":[{"ok":true,"answer":{"after":0,"topic":"events"}}]}`},
		{`{"id":1,"sql":"FOLLOW events"}`, `{"id":1,"answers":[{"ok":false,"error":{"kind":"InvalidClause","message":"*"}}]}`},
		{`{"id":2,"sql":"FOLLOW events"}`, `{"id":2,"answers":[{"ok":false,"error":{"kind":"Unavailable","message":"*"}}]}`},
	} {
		s.send(c.sent)
		if got := s.receive(); !matches(c.want, got) {
			t.Fatalf("%s\nwant %s\ngot  %s", c.sent, c.want, got)
		}
	}
}

// A subscriber that gives credit for everything and takes nothing fills the
// connection; the appender and another subscriber go on, and the subscriber has
// cost no more than what is on its way to it.
func TestASubscriberThatTakesNothingHoldsNobody(t *testing.T) {
	n := newNode(t, server.Limits{WriteTime: time.Minute})
	stuck := n.open()
	stuck.send(`{"id":1,"sql":"FOLLOW events","credit":1000000}`)
	s := n.dial()
	followed, err := s.Follow(t.Context(), "FOLLOW events", nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	const messages = 400
	appender := n.dial()
	params := map[string]value.Value{"v": value.String(strings.Repeat("x", 64<<10))}
	var appending sync.WaitGroup
	appending.Go(func() {
		for range messages {
			if _, err := appender.Run(t.Context(), "CREATE events = $v", params); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer appending.Wait()
	next := int64(1)
	for next <= messages {
		pushed, err := followed.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, message := range pushed.Messages {
			if message.Position() != uint64(next) {
				t.Fatalf("position %d is pushed where %d is next", message.Position(), next)
			}
			next++
		}
	}
	taken := n.metric("tidemark_pushed_messages_total")
	var pushed float64
	if _, err := fmt.Sscan(taken, &pushed); err != nil || pushed-messages > messages-100 {
		t.Fatalf("the stuck subscriber was pushed %v of %d messages of 64 KiB although it took none", pushed-messages, messages)
	}
}

func TestADroppedDatabaseEndsWhatWaitsInItAsNotFound(t *testing.T) {
	n := newNode(t, server.Limits{})
	s, other := n.dial(), n.dial()
	followed, err := s.Follow(t.Context(), "FOLLOW events", nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	run(t, other, "CREATE events = 1", nil)
	if _, err := followed.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, other, "DROP DATABASE orders", nil)
	_, err = followed.Next(t.Context())
	wantKind(t, fault.Of(err), fault.NotFound, "orders")
	for range 2 {
		// One alone, and two that are pipelined.
		calls := []*client.Call{s.Start("CREATE events = 1", nil), s.Start("CREATE events = 1", nil)}
		for _, call := range calls {
			answers, err := call.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wantKind(t, answers[0].Err, fault.NotFound, "orders")
		}
	}
}

// Nobody looks while a FOLLOW has no credit, so what it finds afterwards is a
// topic of the same name, with messages past the place where it was.
func TestAFollowIsOfOneTopicAndNotOfAName(t *testing.T) {
	n := newNode(t, server.Limits{})
	s, other := n.open(), n.dial()
	s.send(`{"id":1,"sql":"FOLLOW events AFTER 0"}`)
	want(t, "the answer", s.receive(), `{"id":1,"answers":[{"ok":true,"answer":{"after":0,"topic":"events"}}]}`)
	run(t, other, "DROP TOPIC events; DEFINE TOPIC events; CREATE events = 1", nil)
	s.send(`{"follow":1,"credit":1}`)
	if got := s.receive(); !matches(`{"error":{"kind":"NotFound","message":"*"},"follow":1}`, got) {
		t.Fatal(got)
	}
}
