package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/value"
)

func TestAWebSocketIsOneSession(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.open()
	for _, c := range []struct{ what, sent, want string }{
		{"a request", `{"id":1,"sql":"CREATE events = 1"}`, `{"id":1,"answers":[{"ok":true,"answer":[{"id":"events:u''","position":1,"value":1}]}]}`},
		{"an id that is text", `{"id":"a","sql":"SLEEP 0s"}`, `{"id":"a","answers":[{"ok":true,"answer":null}]}`},
		{"no id", `{"sql":"SLEEP 0s"}`, `{"id":null,"answers":[{"ok":true,"answer":null}]}`},
		{"several statements", `{"id":2,"sql":"SLEEP 0s; READ FROM events AFTER 1"}`, `{"id":2,"answers":[{"ok":true,"answer":null},{"ok":true,"answer":[]}]}`},
		{"a transaction lasts over requests", `{"id":3,"sql":"BEGIN"}`, `{"id":3,"answers":[{"ok":true,"answer":null}]}`},
		{"its write", `{"id":4,"sql":"CREATE events = $v","params":{"v":2}}`, `{"id":4,"answers":[{"ok":true,"answer":[{"id":"events:u''","value":2}]}]}`},
		{"its commit", `{"id":5,"sql":"COMMIT"}`, `{"id":5,"answers":[{"ok":true,"answer":{"appended":{"events":[2,2]}}}]}`},
		{"the database in use lasts", `{"id":6,"sql":"DEFINE DATABASE other; USE DATABASE other"}`, `{"id":6,"answers":[{"ok":true,"answer":null},{"ok":true,"answer":null}]}`},
		{"and is another", `{"id":7,"sql":"READ FROM events"}`, `{"id":7,"answers":[{"ok":false,"error":{"kind":"NotFound","message":"*"}}]}`},
		{"what does not parse", `{"id":8,"sql":"nonsense"}`, `{"id":8,"answers":[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]}`},
		{"what is no JSON", `{"id":9,`, `{"id":null,"answers":[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]}`},
		{"what is no request", `7`, `{"id":null,"answers":[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]}`},
		{"a misspelt field", `{"id":10,"sqll":"SLEEP 0s"}`, `{"id":10,"answers":[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]}`},
		{"an id that is none", `{"id":1.5,"sql":"SLEEP 0s"}`, `{"id":1.5,"answers":[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]}`},
		{"neither sql nor follow", `{"id":11}`, `{"id":11,"answers":[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]}`},
		{"the session lives on", `{"id":12,"sql":"SLEEP 0s"}`, `{"id":12,"answers":[{"ok":true,"answer":null}]}`},
	} {
		s.send(c.sent)
		got := generated.ReplaceAllString(s.receive(), "u''")
		if !matches(c.want, got) {
			t.Fatalf("%s: %s\nwant %s\ngot  %s", c.what, c.sent, c.want, got)
		}
	}
}

func TestAFrameOfRequestsIsAnsweredByFramesOfAnswersInOrder(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.open("tidemark.json")
	s.send(`[{"id":1,"sql":"CREATE events = 1"},{"id":2,"sql":"CREATE events = 2"},7,{"id":3,"sql":"READ FROM events FOR CONSUMER 'c'"},{"id":4,"sql":"CREATE events = 3"}]`)
	var got []string
	for len(got) < 5 {
		var answers []struct {
			ID      any             `json:"id"`
			Answers json.RawMessage `json:"answers"`
		}
		frame := ids(s.receive())
		if err := json.Unmarshal([]byte(frame), &answers); err != nil {
			t.Fatalf("a client that sends arrays is sent %s", frame)
		}
		for _, answer := range answers {
			got = append(got, fmt.Sprint(answer.ID, " ", string(answer.Answers)))
		}
	}
	for i, wanted := range []string{
		`1 [{"ok":true,"answer":[{"id":"events:u''","position":1,"value":1}]}]`,
		`2 [{"ok":true,"answer":[{"id":"events:u''","position":2,"value":2}]}]`,
		`<nil> [{"ok":false,"error":{"kind":"Syntax","message":"*"}}]`,
		`3 [{"ok":true,"answer":[{"id":"events:u''","position":1,"value":1},{"id":"events:u''","position":2,"value":2}]}]`,
		`4 [{"ok":true,"answer":[{"id":"events:u''","position":3,"value":3}]}]`,
	} {
		if !matches(wanted, got[i]) {
			t.Errorf("answer %d\nwant %s\ngot  %s", i, wanted, got[i])
		}
	}
	s.send(`[]`)
	s.send(`[{"id":5,"sql":"READ FROM events FOR CONSUMER 'c'"}]`)
	if got := generated.ReplaceAllString(s.receive(), "u''"); got != `[{"id":5,"answers":[{"ok":true,"answer":[{"id":"events:u''","position":3,"value":3}]}]}]` {
		t.Errorf("after the frame: %s", got)
	}
}

func TestWhatIsPipelinedRunsAndIsAnsweredInOrder(t *testing.T) {
	n := newNode(t, server.Limits{Pipelined: 64})
	s := n.dial()
	const requests = 3000
	var calls []*client.Call
	for i := range requests {
		switch i % 10 {
		case 3:
			calls = append(calls, s.Start("READ FROM events AFTER $after LIMIT 1", map[string]value.Value{"after": value.Int(int64(appendsBefore(i) - 1))}))
		case 7:
			calls = append(calls, s.Start("BEGIN; CREATE things = { }; COMMIT", nil))
		default:
			calls = append(calls, s.Start("CREATE events = $i", map[string]value.Value{"i": value.Int(int64(i))}))
		}
	}
	for i, call := range calls {
		answers, err := call.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, answer := range answers {
			if answer.Err != nil {
				t.Fatalf("request %d: %v", i, answer.Err)
			}
		}
		rows, _ := answers[0].Value.AsArray()
		switch i % 10 {
		case 7:
		case 3:
			// It sees the append just before it.
			if len(rows) != 1 || positionOf(rows[0]) != int64(appendsBefore(i)) {
				t.Fatalf("request %d reads %s", i, answers[0].Value)
			}
		default:
			if len(rows) != 1 || positionOf(rows[0]) != int64(appendsBefore(i)+1) {
				t.Fatalf("request %d is answered %s", i, answers[0].Value)
			}
		}
	}
}

// appendsBefore is how many of the requests before one append.
func appendsBefore(i int) int {
	before := 0
	for j := range i {
		if j%10 != 3 && j%10 != 7 {
			before++
		}
	}
	return before
}

func positionOf(row value.Value) int64 {
	fields, _ := row.AsObject()
	position, _ := fields["position"].AsInt()
	return position
}

func TestAppendsThatArePipelinedShareCommits(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.dial()
	run(t, s, "DEFINE TOPIC quick MAX BYTES 10", nil)
	var calls []*client.Call
	for range 2000 {
		calls = append(calls, s.Start("CREATE quick = 1", nil))
	}
	calls = append(calls, s.Start("CREATE quick = 'longer than ten bytes'", nil), s.Start("CREATE quick = 2", nil))
	for i, call := range calls {
		answers, err := call.Wait(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case i == 2000:
			wantKind(t, answers[0].Err, fault.TopicMessageTooLarge, "")
		case answers[0].Err != nil:
			t.Fatal(answers[0].Err)
		}
	}
	last := run(t, s, "READ FROM quick AFTER 2000", nil)
	rows, _ := last.Value.AsArray()
	if len(rows) != 1 || positionOf(rows[0]) != 2001 {
		t.Fatalf("the append after the refused one has %s", last.Value)
	}
}

func TestATransactionThatIsLeftAloneIsRolledBackAndSaysSo(t *testing.T) {
	n := newNode(t, server.Limits{TransactionIdle: 50 * time.Millisecond})
	s := n.dial()
	run(t, s, "BEGIN; CREATE things:1 = { }", nil)
	n.await("the transaction is rolled back", func() bool {
		return n.metric(`tidemark_refusals_total{reason="transaction_idle"}`) != "0" && strings.HasPrefix(n.metric(`tidemark_refusals_total{reason="transaction_idle"}`), "1")
	})
	answers, err := s.Run(t.Context(), "CREATE things:2 = { }; COMMIT; SELECT * FROM things; BEGIN; CREATE things:3 = { }; COMMIT", nil)
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, answers[0].Err, fault.TransactionFailed, "left alone for 50ms")
	wantKind(t, answers[1].Err, fault.TransactionFailed, "left alone for 50ms")
	if rows, _ := answers[2].Value.AsArray(); len(rows) != 0 || answers[5].Err != nil {
		t.Fatalf("afterwards: %v", answers[2:])
	}
}

func TestInvalidFramesEndOnlyTheirSession(t *testing.T) {
	n := newNode(t, server.Limits{RequestBytes: 4096, ReadTime: 200 * time.Millisecond})
	other := n.dial()
	t.Run("too large", func(t *testing.T) {
		s := n.open()
		s.send(`{"id":1,"sql":"` + strings.Repeat(" ", 5000) + `"}`)
		s.wantClosed(websocket.StatusMessageTooBig, "more than 4096 bytes")
	})
	t.Run("binary where text is spoken", func(t *testing.T) {
		s := n.open()
		if err := s.conn.Write(t.Context(), websocket.MessageBinary, []byte{1}); err != nil {
			t.Fatal(err)
		}
		s.wantClosed(websocket.StatusUnsupportedData, "application/json")
	})
	t.Run("too slow", func(t *testing.T) {
		s := n.open()
		w, err := s.conn.Writer(t.Context(), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		// More than the writer's own buffer, so that the frame's beginning goes.
		if _, err := w.Write(make([]byte, 5000)[:4090]); err != nil {
			t.Fatal(err)
		}
		s.wantClosed(websocket.StatusPolicyViolation, "did not arrive within")
	})
	t.Run("too many requests in one", func(t *testing.T) {
		n := newNode(t, server.Limits{})
		s := n.open()
		s.send("[" + strings.Repeat(`1,`, 16_384) + `1]`)
		if got := s.receive(); !strings.Contains(got, "16385 requests, and 16384 are the limit") {
			t.Fatal(got)
		}
	})
	t.Run("a decoder's depth", func(t *testing.T) {
		s := n.open()
		s.send(strings.Repeat("[", 2000))
		if got := s.receive(); !strings.Contains(got, `"kind":"Syntax"`) {
			t.Fatal(got)
		}
	})
	t.Run("not a frame at all", func(t *testing.T) {
		status, _, _ := n.post("/sql", "SLEEP 0s")
		if status != 200 {
			t.Fatal(status)
		}
	})
	run(t, other, "CREATE events = 1", nil)
}

func TestAClientThatTakesNoAnswersIsCutOff(t *testing.T) {
	n := newNode(t, server.Limits{WriteTime: 200 * time.Millisecond})
	filled := n.dial()
	run(t, filled, "INSERT INTO things $rows", map[string]value.Value{"rows": value.Array(
		value.Fields(value.Object{"t": value.String(strings.Repeat("x", 4<<20))}))})
	s := n.open()
	for i := range 20 {
		s.send(fmt.Sprintf(`{"id":%d,"sql":"SELECT * FROM things"}`, i))
	}
	n.await("it is cut off", func() bool { return n.metric(`tidemark_refusals_total{reason="write_time"}`) == "1" })
	run(t, filled, "CREATE events = 1", nil)
}

func TestASilentClientIsAskedWhetherItIsThere(t *testing.T) {
	n := newNode(t, server.Limits{PingEvery: 50 * time.Millisecond})
	here := n.dial()
	// A client that never reads answers no ping, as one that is gone.
	_ = n.open()
	n.await("the silent one is cut off", func() bool { return n.metric(`tidemark_refusals_total{reason="ping"}`) == "1" })
	run(t, here, "CREATE events = 1", nil)
}

func TestShutdownFinishesWhatRunsAndTellsEverybody(t *testing.T) {
	n := newNode(t, server.Limits{})
	type outcome struct {
		acknowledged int
		err          error
	}
	outcomes := make(chan outcome, 8)
	var begun sync.WaitGroup
	for range 8 {
		s := n.dial()
		begun.Add(1)
		go func() {
			var o outcome
			first := sync.OnceFunc(begun.Done)
			for o.err == nil {
				var calls []*client.Call
				for range 50 {
					calls = append(calls, s.Start("CREATE events = 1", nil))
				}
				for _, call := range calls {
					answers, err := call.Wait(context.Background())
					switch {
					case err != nil:
						o.err = err
					case answers[0].Err != nil:
						o.err = answers[0].Err
					default:
						o.acknowledged++
						first()
					}
				}
			}
			outcomes <- o
		}()
	}
	waiting := n.dial()
	wait := waiting.Start("READ FROM events AFTER 1000000 WAIT 60s", nil)
	follower := n.dial()
	followed, err := follower.Follow(t.Context(), "FOLLOW events AFTER 10000000", nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	begun.Wait()
	n.await("the read waits", func() bool { return n.metric("tidemark_waiting_reads") == "2" })
	ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
	defer done()
	started := time.Now()
	if err := n.server.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("the shutdown took %s", took)
	}
	acknowledged := 0
	for range 8 {
		o := <-outcomes
		acknowledged += o.acknowledged
		if !strings.Contains(o.err.Error(), "shutting down") {
			t.Errorf("an appender is told %v", o.err)
		}
	}
	answers, err := wait.Wait(t.Context())
	if err != nil || answers[0].Err == nil {
		t.Fatalf("the read that waits is answered %v %v", answers, err)
	}
	wantKind(t, answers[0].Err, fault.Unavailable, "shutting down")
	if _, err := followed.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("the follower is told %v", err)
	}
	if err := <-n.served; err != nil {
		t.Error(err)
	}
	again := serveAgain(t, n.store, server.Options{})
	last := run(t, again.dial(), "SELECT count() FROM events", nil)
	rows, _ := last.Value.AsArray()
	fields, _ := rows[0].AsObject()
	content, _ := fields["value"].AsObject()
	if count, _ := content["count"].AsInt(); int(count) < acknowledged {
		t.Fatalf("%d appends were acknowledged, %d are there", acknowledged, count)
	}
}

func TestShutdownDoesNotWaitForBodiesThatDoNotArrive(t *testing.T) {
	n := newNode(t, server.Limits{})
	for _, path := range []string{"/nothing", "/sql"} {
		conn, err := net.Dial("tcp", n.address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 100\r\n\r\nSLEEP", path, n.address); err != nil {
			t.Fatal(err)
		}
	}
	n.await("the second body is read", func() bool { return n.metric("tidemark_sessions") == "1" })
	ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
	defer done()
	if err := n.server.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestShutdownGivesUpWhatDoesNotEnd(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.dial()
	// SLEEP stands for a statement that runs for long: once the first has been
	// answered, the second runs.
	call := s.Start("SLEEP 0s; SLEEP 60s", nil)
	n.await("it runs", func() bool { return n.metric(`tidemark_statements_total{outcome="ok",statement="SLEEP"}`) == "1" })
	ctx, done := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer done()
	if err := n.server.Shutdown(ctx); err == nil {
		t.Error("a shutdown that gave up says nothing of it")
	}
	if _, err := call.Wait(t.Context()); err == nil {
		t.Error("the client is not told")
	}
}

func TestAnswersThatAreReadyTogetherShareAFrame(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.open()
	const requests = 500
	s.send("[" + strings.Repeat(`{"id":1,"sql":"CREATE events = 1"},`, requests-1) + `{"id":1,"sql":"CREATE events = 1"}]`)
	frames := 0
	for answers := 0; answers < requests; frames++ {
		answers += strings.Count(s.receive(), `{"id":1,`)
	}
	if frames > requests/2 {
		t.Fatalf("%d answers came in %d frames", requests, frames)
	}
}

func TestABriefAppendIsAnsweredWithoutItsValue(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.open("tidemark.json")
	s.send(`{"id":1,"sql":"CREATE events:7 = 'known'","brief":true}`)
	want(t, "an append", s.receive(), `{"id":1,"answers":[{"ok":true,"answer":[{"id":"events:7","position":1}]}]}`)
	s.send(`{"id":2,"sql":"CREATE events:7 = 'again'","brief":true}`)
	if answer := s.receive(); !strings.Contains(answer, `"kind":"RecordExists"`) {
		t.Errorf("a refusal is brief: %s", answer)
	}
	s.send(`{"id":3,"sql":"READ FROM events","brief":true}`)
	want(t, "what is no append", s.receive(), `{"id":3,"answers":[{"ok":true,"answer":[{"id":"events:7","position":1,"value":"known"}]}]}`)
}
