package client

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a node that does with every request what a test says.
type scripted struct {
	*testing.T
	url string

	mu sync.Mutex
	// The following are protected by mu.
	heard   []heard
	headers []http.Header
	opened  int
}

// heard is a request that a node received.
type heard struct {
	connection int
	sql        string
	params     value.Object
}

// told is what the node does with a request: it answers a value or an error,
// runs it for good, or cuts the connection; with leaves it cuts it after the
// answer.
type told struct {
	answer value.Value
	err    *fault.Error
	runs   bool
	cut    bool
	leaves bool
}

func newScripted(t *testing.T, do func(heard) told) *scripted {
	n := &scripted{T: t}
	var connections sync.WaitGroup
	serving, stop := context.WithCancel(context.Background())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections.Add(1)
		defer connections.Done()
		n.mu.Lock()
		n.headers = append(n.headers, r.Header)
		n.opened++
		opened := n.opened
		n.mu.Unlock()
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"tidemark.cbor"}})
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.CloseNow() }()
		for n.frame(serving, conn, opened, do) {
		}
	}))
	n.url = "ws" + strings.TrimPrefix(s.URL, "http")
	t.Cleanup(func() {
		stop()
		s.CloseClientConnections()
		s.Close()
		connections.Wait()
	})
	return n
}

// frame answers one frame; false where the connection is to end.
func (n *scripted) frame(ctx context.Context, conn *websocket.Conn, connection int, do func(heard) told) bool {
	_, frame, err := conn.Read(ctx)
	if err != nil {
		return false
	}
	v, err := value.DecodeCBOR(frame)
	if err != nil {
		n.Error(err)
		return false
	}
	requests, _ := v.AsArray()
	for _, element := range requests {
		fields, _ := element.AsObject()
		h := heard{connection: connection}
		h.sql, _ = fields["sql"].AsString()
		h.params, _ = fields["params"].AsObject()
		n.mu.Lock()
		n.heard = append(n.heard, h)
		n.mu.Unlock()
		does := do(h)
		if does.cut {
			return false
		}
		if does.runs {
			// What comes after it waits.
			for err == nil {
				_, _, err = conn.Read(ctx)
			}
			return false
		}
		answer := value.Object{"ok": value.Bool(does.err == nil), "answer": does.answer}
		if does.err != nil {
			answer = value.Object{"ok": value.Bool(false), "error": value.Fields(value.Object{
				"kind": value.String(string(does.err.Kind)), "message": value.String(does.err.Message)})}
		}
		reply, err := value.Fields(value.Object{"id": fields["id"], "answers": value.Array(value.Fields(answer))}).AppendCBOR(nil)
		if err != nil {
			n.Error(err)
			return false
		}
		if conn.Write(ctx, websocket.MessageBinary, reply) != nil || does.leaves {
			return false
		}
	}
	return true
}

// statements are those that the node heard of one beginning.
func (n *scripted) statements(begin string) []heard {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []heard
	for _, h := range n.heard {
		if strings.HasPrefix(h.sql, begin) {
			all = append(all, h)
		}
	}
	return all
}

// connectTo opens a database on scripted nodes.
func connectTo(t *testing.T, options Options, nodes ...*scripted) *Database {
	t.Helper()
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.url)
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	s, err := Connect(t.Context(), strings.Join(urls, ","), options)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	db, err := s.Database(t.Context(), "shop", "orders")
	check(t, err)
	return db
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// row is a message as a node answers it.
func row(key, position, content value.Value) value.Value {
	fields := value.Object{"id": value.Record(value.RecordID{Table: "events", Key: key}), "position": position}
	if !content.IsNone() {
		fields["value"] = content
	}
	return value.Fields(fields)
}

func messages(rows ...value.Value) told { return told{answer: value.Array(rows...)} }

func failing(kind fault.Kind, message string) told {
	return told{err: &fault.Error{Kind: kind, Message: message}}
}

// begins reports whether a request is a statement.
func (h heard) begins(statement string) bool { return strings.HasPrefix(h.sql, statement) }

func TestAnAppendWhoseAnswerIsLostIsUnknown(t *testing.T) {
	n := newScripted(t, func(h heard) told { return told{cut: true} })
	_, _, err := connectTo(t, Options{}, n).Topic("events").Append(t.Context(), 1)
	if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the outcome is unknown") {
		t.Fatal(err)
	}
	if sent := n.statements("CREATE"); len(sent) != 1 {
		t.Fatalf("it was sent %d times", len(sent))
	}
}

func TestANamedAppendWhoseAnswerIsLostIsSentAgain(t *testing.T) {
	for _, c := range []struct {
		what string
		// again is the answer to the second sending, held what the identity holds.
		again     told
		held      value.Value
		appended  bool
		wantError error
	}{
		{"and was lost", messages(row(value.String("k"), value.Int(7), value.None())), value.None(), true, nil},
		{"and is there", failing(fault.RecordExists, "taken"), value.Int(1), true, nil},
		{"and is another's", failing(fault.RecordExists, "taken"), value.Int(2), false, fault.RecordExists},
		{"and is kept out", messages(), value.None(), false, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := newScripted(t, func(h heard) told {
				switch {
				case h.begins("SELECT"), h.begins("READ"):
					return messages(row(value.String("k"), value.Int(7), c.held))
				case len(h.params) > 0 && h.connection <= 3: // the search, the database, the first sending
					return told{cut: true}
				}
				return c.again
			})
			m, appended, err := connectTo(t, Options{}, n).Topic("events").Append(t.Context(), 1, WithKey("k"))
			if !errors.Is(err, c.wantError) || appended != c.appended {
				t.Fatalf("%v %v", appended, err)
			}
			if appended && m.Position() != 7 {
				t.Fatalf("it is at %d", m.Position())
			}
			if sent := n.statements("CREATE"); len(sent) != 2 {
				t.Fatalf("it was sent %d times", len(sent))
			}
		})
	}
}

func TestAppendsThatAreSentAgainKeepTheirOrder(t *testing.T) {
	const count = 50
	n := newScripted(t, func(h heard) told {
		if number, _ := h.params["value"].AsInt(); h.connection == 3 && number >= 10 {
			return told{cut: true}
		}
		return messages(row(h.params["key"], value.Int(1), value.None()))
	})
	topic := connectTo(t, Options{}, n).Topic("events")
	var all sync.WaitGroup
	for number := range count {
		all.Add(1)
		check(t, topic.AppendAsync(t.Context(), number, func(_ Message, appended bool, err error) {
			defer all.Done()
			if !appended || err != nil {
				t.Errorf("%d: %v %v", number, appended, err)
			}
		}, WithKey(number)))
	}
	all.Wait()
	next := map[int]int64{}
	for _, h := range n.statements("CREATE") {
		number, _ := h.params["value"].AsInt()
		if number < next[h.connection] {
			t.Fatalf("connection %d sent %d after %d", h.connection, number, next[h.connection])
		}
		next[h.connection] = number
	}
	if first, _ := n.statements("CREATE")[0].params["value"].AsInt(); first != 0 || next[4] != count-1 {
		t.Fatalf("the first is %d, the last by connection: %v", first, next)
	}
}

func TestAnAppendFindsANodeAfterItsSessionEndedIdle(t *testing.T) {
	n := newScripted(t, func(h heard) told {
		does := messages(row(value.Int(1), value.Int(1), value.None()))
		does.leaves = h.begins("CREATE")
		return does
	})
	db := connectTo(t, Options{}, n)
	appends := db.backend.(*remoteDatabase).appends
	for range 3 {
		_, appended, err := db.Topic("events").Append(t.Context(), 1)
		if err != nil || !appended {
			t.Fatalf("%v %v", appended, err)
		}
		appends.mu.Lock()
		session := appends.session
		appends.mu.Unlock()
		session.done.Wait()
	}
}

func TestANodeThatShutsDownHandsOverWhatItRefuses(t *testing.T) {
	leaving := newScripted(t, func(h heard) told {
		return failing(fault.Unavailable, shuttingDown+"; send the request to another, or again when it is back")
	})
	staying := newScripted(t, func(h heard) told {
		if h.begins("CREATE") {
			return messages(row(value.Int(1), value.Int(1), value.None()))
		}
		return told{answer: value.Null()}
	})
	db := connectTo(t, Options{}, leaving, staying)
	// It has no name, and is sent again all the same: nothing of it ran.
	_, appended, err := db.Topic("events").Append(t.Context(), 1)
	if err != nil || !appended {
		t.Fatalf("%v %v", appended, err)
	}
	_, err = db.Exec(t.Context(), "UPSERT things:1 = 1", nil)
	check(t, err)
}

func TestATransactionThatIsLostRunsAgainUnlessItWasCommitting(t *testing.T) {
	for _, c := range []struct {
		lostIn string
		runs   int
	}{{"BEGIN", 1}, {"UPSERT", 2}, {"COMMIT", 1}} {
		t.Run(c.lostIn, func(t *testing.T) {
			var lost atomic.Bool
			n := newScripted(t, func(h heard) told {
				if h.begins(c.lostIn) && lost.CompareAndSwap(false, true) {
					return told{cut: true}
				}
				return told{answer: value.Null()}
			})
			runs := 0
			err := connectTo(t, Options{}, n).Transact(t.Context(), func(tx *Tx) error {
				runs++
				return tx.Put(t.Context(), "things", 1, 1)
			})
			unknown := err != nil && strings.Contains(err.Error(), "the outcome is unknown")
			if runs != c.runs || unknown != (c.lostIn == "COMMIT") || !unknown && err != nil {
				t.Fatalf("it ran %d times: %v", runs, err)
			}
		})
	}
}

func TestOnlyWhatReadsIsSentAgain(t *testing.T) {
	for script, times := range map[string]int{
		"SELECT * FROM things":                 2,
		"  info for topic events ; ":           2,
		"READ FROM events FOR CONSUMER 'c'":    1,
		"SELECT 1; DELETE things":              1,
		"UPDATE things SET n = n + 1":          1,
		"DELETE things WHERE a = 'SELECT ; 1'": 1,
	} {
		var lost atomic.Bool
		n := newScripted(t, func(h heard) told {
			if lost.CompareAndSwap(false, true) {
				return told{cut: true}
			}
			return told{answer: value.Array()}
		})
		_, err := connectTo(t, Options{}, n).Exec(t.Context(), script, nil)
		if sent := len(n.statements(script)); sent != times || (err == nil) != (times == 2) {
			t.Errorf("%s was sent %d times: %v", script, sent, err)
		}
	}
}

func TestASettlementIsSentAgainWithItsDelivery(t *testing.T) {
	var lost atomic.Bool
	n := newScripted(t, func(h heard) told {
		switch {
		case h.begins("READ"):
			m, _ := row(value.Int(1), value.Int(3), value.Int(1)).AsObject()
			m["deliveries"] = value.Int(2)
			return messages(value.Fields(m))
		case lost.CompareAndSwap(false, true):
			return told{cut: true}
		}
		return told{answer: value.Int(1)}
	})
	group := connectTo(t, Options{}, n).Topic("events").Group("g")
	page, err := group.Read(t.Context(), 1, 0)
	check(t, err)
	count, err := group.Ack(t.Context(), page.Messages...)
	sent := n.statements("ACK events FOR CONSUMER $group AT $p0 DELIVERY $d0")
	if err != nil || count != 1 || len(sent) != 2 || !value.Equal(sent[1].params["d0"], value.Int(2)) {
		t.Fatalf("%d %v, sent %v", count, err, sent)
	}
}

func TestACallerThatGivesUpTakesItsSessionAlong(t *testing.T) {
	n := newScripted(t, func(h heard) told { return told{runs: h.begins("READ"), answer: value.Int(1)} })
	db := connectTo(t, Options{Sessions: 1}, n)
	ctx, giveUp := context.WithCancel(t.Context())
	read := make(chan error, 1)
	go func() {
		_, err := db.Topic("events").Read(ctx, ReadOptions{Wait: time.Hour})
		read <- err
	}()
	nodetest.Eventually(t, 10*time.Second, func() bool { return len(n.statements("READ")) > 0 }, "the node is asked")
	giveUp()
	if err := <-read; !errors.Is(err, fault.Cancelled) {
		t.Fatal(err)
	}
	// The one session that there may be is free, and does not wait for the READ.
	ctx, done := context.WithTimeout(t.Context(), 5*time.Second)
	defer done()
	_, err := db.Exec(ctx, "UPSERT things:1 = 1", nil)
	check(t, err)
}

func TestANodeThatIsSilentIsLeft(t *testing.T) {
	// A machine that vanished neither answers nor closes its connections.
	vanished := make(chan struct{})
	n := newScripted(t, func(h heard) told {
		if h.connection == 2 {
			<-vanished
		}
		return told{answer: value.Array()}
	})
	defer close(vanished)
	options := Options{pings: pings{every: 5 * time.Millisecond, patience: 5 * time.Millisecond}}
	_, err := connectTo(t, options, n).Exec(t.Context(), "SELECT * FROM things", nil)
	check(t, err)
	if sent := n.statements("SELECT"); len(sent) < 2 || sent[0].connection != 2 {
		t.Fatalf("sent %v", sent)
	}
}

func TestARefusalIsNotLookedElsewhere(t *testing.T) {
	var asked atomic.Int64
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if user, password, _ := r.BasicAuth(); user != "ada" || password != "s:cret" {
			t.Errorf("signed in as %s %s", user, password)
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`[{"ok":false,"error":{"kind":"NotSignedIn","message":"no"}}]`))
	}))
	defer refusing.Close()
	other := newScripted(t, func(heard) told { return told{} })
	address := strings.TrimPrefix(refusing.URL, "http://")
	for _, url := range []string{"ws://ada:s%3Acret@" + address + "," + other.url, "ws://ada:s%3Acret@" + address + "," + address} {
		if _, err := Connect(t.Context(), url, Options{Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, fault.NotSignedIn) {
			t.Fatal(err)
		}
	}
	if asked.Load() != 2 {
		t.Fatalf("asked %d times", asked.Load())
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestATokenSignsIn(t *testing.T) {
	n := newScripted(t, func(heard) told { return told{} })
	connectTo(t, Options{Token: "t0ken", User: "ada"}, n)
	if got := n.headers[0].Get("Authorization"); got != "Bearer t0ken" {
		t.Fatalf("Authorization: %s", got)
	}
}

func TestAClosedStoreFailsWhatWaits(t *testing.T) {
	n := newScripted(t, func(h heard) told { return told{runs: true} })
	s, err := Connect(t.Context(), n.url, Options{Log: slog.New(slog.DiscardHandler)})
	check(t, err)
	db, err := s.Database(t.Context(), "shop", "orders")
	check(t, err)
	failed := make(chan error, 3)
	check(t, db.Topic("events").AppendAsync(t.Context(), 1, func(_ Message, _ bool, err error) { failed <- err }))
	go func() { _, err := db.Exec(t.Context(), "SELECT 1", nil); failed <- err }()
	go func() {
		failed <- db.Topic("events").Consume(t.Context(), "c", func(context.Context, *Tx, []Message) error { return nil }, ConsumeOptions{})
	}()
	nodetest.Eventually(t, 10*time.Second, func() bool { return len(n.statements("")) >= 3 }, "the node is asked all")
	check(t, s.Close())
	for range 3 {
		if err := <-failed; !errors.Is(err, fault.Cancelled) {
			t.Errorf("it fails with %v", err)
		}
	}
	if err := db.Topic("events").AppendAsync(t.Context(), 1, nil); !errors.Is(err, fault.Cancelled) {
		t.Errorf("a closed store appends: %v", err)
	}
}
