package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/value"
)

var generated = regexp.MustCompile(`u'[0-9a-f-]{36}'`)

func TestARequestOverHTTPIsAnsweredAsTheLanguageSays(t *testing.T) {
	n := newNode(t, server.Limits{})
	inOrders := []string{"Tidemark-Namespace", "shop", "Tidemark-Database", "orders"}
	asJSON := append([]string{"Content-Type", "application/json"}, inOrders...)
	for _, c := range []struct {
		what, path, body string
		headers          []string
		status           int
		want             string
	}{
		{"text, names by headers", "/sql", `CREATE events = { kind: 'paid' }`, inOrders, 200,
			`[{"ok":true,"answer":[{"id":"events:u''","position":1,"value":{"kind":"paid"}}]}]`},
		{"text, names by path", "/sql/shop/orders", `READ FROM events LIMIT 1`, nil, 200,
			`[{"ok":true,"answer":[{"id":"events:u''","position":1,"value":{"kind":"paid"}}]}]`},
		{"names by USE", "/sql", `USE NAMESPACE shop; USE DATABASE orders; SELECT count() FROM events`, nil, 200,
			`[{"ok":true,"answer":null},{"ok":true,"answer":null},{"ok":true,"answer":[{"value":{"count":1}}]}]`},
		{"the namespace alone", "/sql", `USE DATABASE orders; READ FROM events AFTER 1`, inOrders[:2], 200,
			`[{"ok":true,"answer":null},{"ok":true,"answer":[]}]`},
		{"parameters are exact", "/sql", `{"sql":"CREATE things:$key = $v","params":{"key":9007199254740993,"v":{"n":-9223372036854775808,"f":1.0}}}`, asJSON, 200,
			`[{"ok":true,"answer":[{"id":"things:9007199254740993","value":{"f":1.0,"n":-9223372036854775808}}]}]`},
		{"a statement that fails stops none after it", "/sql", `DELETE events:1; READ FROM events AFTER 1`, inOrders, 200,
			`[{"ok":false,"error":{"kind":"TopicIsAppendOnly","message":"*"}},{"ok":true,"answer":[]}]`},
		{"a transaction that is left open is rolled back", "/sql", `BEGIN; CREATE events = 1`, inOrders, 200,
			`[{"ok":true,"answer":null},{"ok":true,"answer":[{"id":"events:u''","value":1}]}]`},
		{"and nothing of it is there", "/sql", `READ FROM events AFTER 1`, inOrders, 200, `[{"ok":true,"answer":[]}]`},
		{"FOLLOW needs a WebSocket", "/sql", `FOLLOW events`, inOrders, 200, `[{"ok":false,"error":{"kind":"InvalidClause","message":"*"}}]`},
		{"nothing is no statement", "/sql", ``, inOrders, 200, `[]`},
		{"what does not parse", "/sql", `SELEC 1`, inOrders, 400, `[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]`},
		{"what is no text", "/sql", "\xff", inOrders, 400, `[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]`},
		{"what is no JSON", "/sql", `{"sql":`, asJSON, 400, `[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]`},
		{"JSON of another shape", "/sql", `["SLEEP 1s"]`, asJSON, 400, `[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]`},
		{"a misspelt field", "/sql", `{"sql":"SLEEP 0s","parms":{}}`, asJSON, 400, `[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]`},
		{"a field that is there twice", "/sql", `{"sql":"SLEEP 0s","sql":"SLEEP 0s"}`, asJSON, 400, `[{"ok":false,"error":{"kind":"Syntax","message":"*"}}]`},
		{"a database that is not there", "/sql/shop/none", `READ FROM events`, nil, 404, `[{"ok":false,"error":{"kind":"NotFound","message":"*"}}]`},
		{"a namespace that is not there", "/sql/none/orders", `READ FROM events`, nil, 404, `[{"ok":false,"error":{"kind":"NotFound","message":"*"}}]`},
		{"a database without its namespace", "/sql", `READ FROM events`, inOrders[2:], 400, `[{"ok":false,"error":{"kind":"InvalidClause","message":"*"}}]`},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := *n
			n.T = t
			status, body, header := n.post(c.path, c.body, c.headers...)
			body = generated.ReplaceAllString(body, "u''")
			if status != c.status || !matches(c.want, body) {
				t.Fatalf("%s\nwant %d %s\ngot  %d %s", c.body, c.status, c.want, status, body)
			}
			if header.Get("Content-Type") != "application/json" || header.Get("X-Request-Id") == "" {
				t.Fatalf("the headers are %v", header)
			}
		})
	}
}

// matches compares with a text in which "*" stands for any string.
func matches(wanted, got string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(wanted), `"\*"`, `"(?:[^"\\]|\\.)+"`)
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}

func TestCBORIsTakenAndGivenWithEveryTypeAsItself(t *testing.T) {
	n := newNode(t, server.Limits{})
	moment := time.Date(2026, 1, 31, 10, 0, 0, 1, time.UTC)
	sent := value.Object{"at": value.Datetime(moment), "for": value.Duration(time.Minute), "raw": value.Bytes([]byte{0, 255})}
	body, err := value.Fields(value.Object{
		"sql":    value.String("CREATE things:1 = $v"),
		"params": value.Fields(value.Object{"v": value.Fields(sent)}),
	}).AppendCBOR(nil)
	if err != nil {
		t.Fatal(err)
	}
	status, answer, header := n.post("/sql/shop/orders", string(body), "Content-Type", "application/cbor", "Accept", "text/html, application/cbor;q=0.9")
	if status != 200 || header.Get("Content-Type") != "application/cbor" {
		t.Fatalf("status %d, %v", status, header)
	}
	got, err := value.DecodeCBOR([]byte(answer))
	if err != nil {
		t.Fatal(err)
	}
	wanted := value.Array(value.Fields(value.Object{"ok": value.Bool(true), "answer": value.Array(value.Fields(value.Object{
		"id": value.Record(value.RecordID{Table: "things", Key: value.Int(1)}), "value": value.Fields(sent),
	}))}))
	if !value.Equal(got, wanted) {
		t.Fatalf("want %s\ngot  %s", wanted, got)
	}
}

func TestTheAnswerIsInTheFormThatTheCallerPrefers(t *testing.T) {
	n := newNode(t, server.Limits{})
	for accepted, wanted := range map[string]string{
		"":                            "application/json",
		"*/*":                         "application/json",
		"text/html":                   "application/json",
		"application/cbor":            "application/cbor",
		"application/cbor, */*;q=0.1": "application/cbor",
		"application/json;q=0.1, application/cbor;q=0.9": "application/cbor",
		"application/cbor;q=0.1, application/json":       "application/json",
	} {
		if _, _, header := n.post("/sql", "SLEEP 0s", "Accept", accepted); header.Get("Content-Type") != wanted {
			t.Errorf("who accepts %q is answered %s", accepted, header.Get("Content-Type"))
		}
	}
}

func TestAnAnswerCarriesTheRequestsOwnID(t *testing.T) {
	n := newNode(t, server.Limits{})
	for given, wanted := range map[string]string{"abc-1": "abc-1", "": "*", strings.Repeat("x", 65): "*", "a b": "*"} {
		_, _, header := n.post("/sql", "SLEEP 0s", "X-Request-Id", given)
		got := header.Get("X-Request-Id")
		if wanted != "*" && got != wanted || wanted == "*" && (len(got) != 36 || got == given) {
			t.Errorf("X-Request-Id %q is answered as %q", given, got)
		}
	}
}

func TestOtherPathsAndMethodsAreRefused(t *testing.T) {
	n := newNode(t, server.Limits{})
	if status, _ := n.get("/sql"); status != http.StatusMethodNotAllowed {
		t.Errorf("GET /sql: %d", status)
	}
	if status, _ := n.get("/nothing"); status != http.StatusNotFound {
		t.Errorf("GET /nothing: %d", status)
	}
	if status, _ := n.get("/ws"); status != http.StatusUpgradeRequired {
		t.Errorf("GET /ws without an upgrade: %d", status)
	}
}

func TestAPageOfAnotherOriginCannotRunStatements(t *testing.T) {
	n := newNode(t, server.Limits{})
	for _, headers := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		if status, body, _ := n.post("/sql/shop/orders", "DROP TOPIC events", headers...); status != http.StatusForbidden {
			t.Errorf("%v: %d %s", headers, status, body)
		}
	}
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.address+"/ws", nil)
	for name, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "https://evil.example"} {
		request.Header.Set(name, v)
	}
	response, err := n.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a WebSocket of another origin: %d", response.StatusCode)
	}
}

func TestAForeignNameOverLoopbackIsRefusedWhereNobodySignsIn(t *testing.T) {
	first := newNode(t, server.Limits{})
	n := serveAgain(t, first.store, server.Options{LocalHostsOnly: true})
	for host, status := range map[string]int{"evil.example": 403, "evil.example:7420": 403, "localhost:7420": 200, "127.0.0.1": 200, "[::1]:7420": 200} {
		if got, body, _ := n.post("/sql", "SLEEP 0s", "Host", host); got != status {
			t.Errorf("Host %s: want %d, got %d %s", host, status, got, body)
		}
	}
}

func TestHealthReadyAndMetricsTellOfTheNode(t *testing.T) {
	n := newNode(t, server.Limits{})
	s := n.dial()
	run(t, s, `DEFINE GROUP 'workers' ON TOPIC events ACK DEADLINE 30s; INSERT INTO events [1, 2, 3]; READ FROM events FOR CONSUMER 'workers'; READ FROM events FOR CONSUMER 'audit' LIMIT 1`, nil)
	if status, body := n.get("/health"); status != 200 || body != "ok\n" {
		t.Errorf("/health: %d %s", status, body)
	}
	if status, body := n.get("/ready"); status != 200 || body != "ready\n" {
		t.Errorf("/ready: %d %s", status, body)
	}
	_, _, _ = n.post("/sql", "nonsense")
	status, body := n.get("/metrics")
	if status != 200 {
		t.Fatalf("/metrics: %d %s", status, body)
	}
	for _, line := range []string{
		`tidemark_topic_messages{database="orders",namespace="shop",topic="events"} 3`,
		`tidemark_topic_last_position{database="orders",namespace="shop",topic="events"} 3`,
		`tidemark_group_in_flight{database="orders",group="workers",namespace="shop",topic="events"} 1`,
		`tidemark_group_lag{database="orders",group="workers",namespace="shop",topic="events"} 3`,
		`tidemark_reader_lag{database="orders",namespace="shop",reader="audit",topic="events"} 2`,
		`tidemark_statements_total{outcome="ok",statement="READ"} 2`,
		`tidemark_refusals_total{reason="syntax"} 1`,
		`tidemark_sessions 1`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
}

func TestLimitsOfARequestAreRefusedByName(t *testing.T) {
	n := newNode(t, server.Limits{RequestBytes: 4096, Statements: 5, AnswerRows: 10, AnswerBytes: 4096, StatementTime: 50 * time.Millisecond, RequestMemoryBytes: 4096})
	large := strings.Repeat("x", 5000)
	for _, c := range []struct {
		what, body string
		status     int
		want       string
	}{
		{"the request's size", "CREATE events = '" + large + "'", 413, `"kind":"TooLarge","message":"the request has more than 4096 bytes`},
		{"its statements", "SLEEP 0s; SLEEP 0s; SLEEP 0s; SLEEP 0s; SLEEP 0s; SLEEP 0s", 413, `"kind":"TooLarge","message":"the request holds 6 statements, and 5`},
		{"rows of an answer", "INSERT INTO things [{},{},{},{},{},{},{},{},{},{},{}]", 200, `"kind":"TooLarge","message":"the statement writes, and answers, more than 10 rows; nothing of it is written`},
		{"a first record", "CREATE things:1 = { t: '" + large[:3000] + "' }", 200, `"ok":true`},
		{"a second record", "CREATE things:2 = { t: '" + large[:3000] + "' }", 200, `"ok":true`},
		{"bytes of an answer", "SELECT * FROM things", 200, `"kind":"TooLarge","message":"the answer has more than 10 rows or 4096 bytes`},
		{"answers of a transaction", "BEGIN; CREATE things:3 = { t: '" + large[:3000] + "' }; SELECT * FROM things:3; COMMIT; SELECT * FROM things:3", 200,
			`"kind":"TooLarge","message":"the answers of the transaction take more than 4096 bytes; ask for less in one transaction"}},{"ok":false,"error":{"kind":"TransactionFailed","message":"the transaction failed with TooLarge: the answers of the transaction take more than 4096 bytes; ask for less in one transaction"}},{"ok":true,"answer":[]}]`},
		{"the time of a statement", "SLEEP 10s", 200, `"kind":"Timeout","message":"the statement ran for 50ms`},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := *n
			n.T = t
			status, body, _ := n.post("/sql/shop/orders", c.body)
			if status != c.status || !strings.Contains(body, c.want) {
				t.Fatalf("want %d …%s…\ngot  %d %s", c.status, c.want, status, body)
			}
		})
	}
}

func TestABodyWithoutALengthIsBoundedTheSame(t *testing.T) {
	n := newNode(t, server.Limits{RequestBytes: 4096})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+n.address+"/sql", io.MultiReader(strings.NewReader(strings.Repeat(" ", 5000))))
	if err != nil {
		t.Fatal(err)
	}
	response, err := n.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatalf("status %d", response.StatusCode)
	}
}

func TestSlowAndSilentClientsAreCutOffAndOthersServed(t *testing.T) {
	n := newNode(t, server.Limits{ReadTime: 200 * time.Millisecond})
	var slow []net.Conn
	for _, beginning := range []string{
		"",
		"POST /sql HTTP/1.1\r\nHost: a\r\n",
		"POST /sql HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nSLEEP",
		"POST /sql HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nSLEEP\r\n",
		// Who is refused without a look at the body is no faster for it.
		"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nSLEEP",
		"PUT /sql HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nSLEEP",
		"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nSLEEP",
		"POST /sql HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer no\r\nContent-Length: 100\r\n\r\nSLEEP",
		"POST /sql HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\nSLEEP",
	} {
		for range 20 {
			conn, err := net.Dial("tcp", n.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := conn.Write([]byte(beginning)); err != nil {
				t.Fatal(err)
			}
			slow = append(slow, conn)
		}
	}
	if status, body, _ := n.post("/sql", "SLEEP 0s"); status != 200 {
		t.Fatalf("another client is answered %d %s", status, body)
	}
	for _, conn := range slow {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil {
			t.Fatalf("a slow client is not cut off: %v", err)
		}
	}
}

func TestSessionsPastTheLimitsAreRefusedAndTakenAgainLater(t *testing.T) {
	n := newNode(t, server.Limits{Sessions: 3, SessionsPerAddress: 2})
	first, second := n.open(), n.open()
	status, body, header := n.post("/sql", "SLEEP 0s")
	if status != http.StatusTooManyRequests || !strings.Contains(body, "2 sessions of the address 127.0.0.1/32") || header.Get("Retry-After") == "" {
		t.Fatalf("got %d %s %v", status, body, header)
	}
	_ = first.conn.CloseNow()
	n.await("after one session ended another is taken", func() bool {
		status, _, _ := n.post("/sql", "SLEEP 0s")
		return status == http.StatusOK
	})
	_ = second.conn.CloseNow()
}

func TestWaitingReadsPastTheLimitAreRefused(t *testing.T) {
	n := newNode(t, server.Limits{WaitingReads: 1})
	s := n.dial()
	if _, err := s.Follow(t.Context(), "FOLLOW events", nil, 1); err != nil {
		t.Fatal(err)
	}
	status, body, _ := n.post("/sql/shop/orders", "READ FROM events WAIT 1s; READ FROM events")
	if status != 200 || !strings.Contains(body, `"kind":"Unavailable","message":"1 reads wait on this node`) || !strings.Contains(body, `{"ok":true,"answer":[]}`) {
		t.Fatalf("got %d %s", status, body)
	}
}

func TestACallerThatLeavesEndsItsStatement(t *testing.T) {
	n := newNode(t, server.Limits{})
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.address+"/sql/shop/orders", strings.NewReader("READ FROM events WAIT 60s"))
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		if response, err := n.http.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	n.await("the read waits", func() bool { return n.metric("tidemark_waiting_reads") == "1" })
	leave()
	<-left
	n.await("it ended", func() bool { return n.metric("tidemark_waiting_reads") == "0" })
}

// await waits until something holds.
func (n *node) await(what string, holds func() bool) {
	n.Helper()
	nodetest.Eventually(n, 10*time.Second, holds, "%s", what)
}

// metric is the value of a metric without labels, or with those in its name.
func (n *node) metric(name string) string {
	n.Helper()
	_, body := n.get("/metrics")
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return fmt.Sprintf("no metric %s", name)
}

func TestAnswersOfOneRequestAreBoundedTogether(t *testing.T) {
	n := newNode(t, server.Limits{AnswerBytes: 8 << 20})
	s := n.dial()
	run(t, s, "CREATE things:1 = { t: $t }", map[string]value.Value{"t": value.String(strings.Repeat("x", 4<<20))})
	answers, err := s.Run(t.Context(), strings.Repeat("SELECT * FROM things; ", 7)+"CREATE events = 1; SELECT count() FROM events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) != 9 || answers[4].Err != nil {
		t.Fatalf("%d answers, the fifth %v", len(answers), answers[4].Err)
	}
	wantKind(t, answers[6].Err, fault.TooLarge, "the statement ran, but the answers of this request take more than 8388608 bytes")
	if answers[8].Err != nil {
		t.Fatalf("a small answer after it: %v", answers[8].Err)
	}
}
