// How much memory a process takes Linux tells, and that 127.0.0.2 is this
// machine, too.
//go:build linux

package node

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

// The bounds of a node under attack.
const (
	// hostileMemory is how much more than at rest a node may take, in bytes: half
	// of it held, and half garbage that the collector leaves for a while
	// (mostGarbage in package collection).
	hostileMemory = 256 << 20
	// servedWithin is in what time others are answered.
	servedWithin = 5 * time.Second
	// cutOffWithin is in what time who is slower than a second is cut off. A
	// WebSocket has five seconds to say that it heard so.
	cutOffWithin = 10 * time.Second
)

// besieged is a node that others than the attacker use.
type besieged struct {
	*process
	other  *client.Session
	atRest int64
}

// besiege starts a node whose patience with slow clients is short.
func besiege(t *testing.T, arguments ...string) *besieged {
	t.Helper()
	p := start(t, append([]string{"--read-time", "1s", "--ping-every", "1s"}, arguments...)...)
	p.prepare()
	b := &besieged{process: p, other: p.dial()}
	b.rests()
	b.holds()
	return b
}

// rests takes the most memory that the node has had as what it has at rest.
func (b *besieged) rests() {
	b.Helper()
	var err error
	if _, b.atRest, err = nodetest.Resident(b.PID()); err != nil {
		b.Fatal(err)
	}
}

// holds checks that others are served, and that memory is bounded.
func (b *besieged) holds() {
	b.Helper()
	ctx, done := context.WithTimeout(b.Context(), servedWithin)
	defer done()
	if answers, err := b.other.Run(ctx, "CREATE events = 'other'", nil); err != nil || answers[0].Err != nil {
		b.Errorf("others are not served: %v %v", err, answers)
	}
	_, most, err := nodetest.Resident(b.PID())
	if err != nil {
		b.Fatal(err)
	}
	if most > b.atRest+hostileMemory {
		b.Errorf("the node takes %d MiB, and %d at rest", most>>20, b.atRest>>20)
	}
}

// metric is whether the node's metrics hold a line.
func (b *besieged) metric(line string) func() bool {
	return func() bool { return strings.Contains(get(b, b.URL+"/metrics"), line+"\n") }
}

// wire is a connection that a test writes byte by byte.
type wire struct {
	testing.TB
	net.Conn
	answers *bufio.Reader
}

// connect opens a connection and writes how it begins.
func connect(t testing.TB, address, beginning string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w := &wire{t, conn, bufio.NewReader(conn)}
	_, _ = io.WriteString(conn, beginning) // It may be refused already.
	return w
}

// upgrade opens a WebSocket in shop/orders.
func upgrade(t testing.TB, address, subprotocol string) *wire {
	t.Helper()
	w := connect(t, address, "GET /ws?namespace=shop&database=orders HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: "+subprotocol+"\r\n\r\n")
	response, err := http.ReadResponse(w.answers, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the WebSocket is answered %v %v", response, err)
	}
	return w
}

// The first byte of a frame, and the bit that says it is the last of a message
// (RFC 6455, section 5.2).
const (
	continued, textFrame, binaryFrame = 0x0, 0x1, 0x2
	finalFrame                        = 0x80
)

// frame is a frame as a client sends it: masked, here with zeros.
func frame(first byte, payload string) []byte {
	head := []byte{first}
	switch n := len(payload); {
	case n < 126:
		head = append(head, 0x80|byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 0x80|126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 0x80|127), uint64(n))
	}
	return append(append(head, 0, 0, 0, 0), payload...)
}

// next reads the next frame that the node sends, and returns its payload.
func (w *wire) next() string {
	w.Helper()
	_ = w.SetReadDeadline(time.Now().Add(soon))
	head := make([]byte, 2, 10)
	if _, err := io.ReadFull(w.answers, head); err != nil {
		w.Fatal(err)
	}
	n := int(head[1])
	for wide, bytes := range map[int]int{126: 2, 127: 8} {
		if n == wide {
			long := make([]byte, 8)
			if _, err := io.ReadFull(w.answers, long[8-bytes:]); err != nil {
				w.Fatal(err)
			}
			n = int(binary.BigEndian.Uint64(long))
			break
		}
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(w.answers, payload); err != nil {
		w.Fatal(err)
	}
	return string(payload)
}

// rest is what the node still says before it closes the connection.
func (w *wire) rest() string {
	w.Helper()
	_ = w.SetReadDeadline(time.Now().Add(soon))
	said, err := io.ReadAll(w.answers)
	if timeout := net.Error(nil); err != nil && errors.As(err, &timeout) && timeout.Timeout() {
		w.Errorf("the node does not close the connection, and says %q", said)
	}
	return string(said)
}

// drip writes text byte by byte, slower than the node has patience for, until
// the node closes the connection.
func (w *wire) drip(text string) {
	for i := range len(text) {
		if _, err := io.WriteString(w.Conn, text[i:i+1]); err != nil {
			return
		}
		time.Sleep(50 * time.Millisecond) // A slow client is what is tested.
	}
}

// Both ends of a connection stay, and what either sends is lost.
func TestASessionWhoseClientIsCutOffEndsAndHoldsNothing(t *testing.T) {
	b := besiege(t)
	proxy := nodetest.NewProxy(t, b.Address, nil)
	s, err := client.Dial(t.Context(), "ws://"+proxy.Address(), client.Options{Namespace: "shop", Database: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Follow(t.Context(), "FOLLOW events", nil, 1000); err != nil {
		t.Fatal(err)
	}
	b.Must("USE NAMESPACE shop; USE DATABASE orders; DEFINE COLLECTION things; DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 1s")
	for _, statement := range []string{"BEGIN", "CREATE things:1 = { }", "READ FROM events FOR CONSUMER 'g' LIMIT 1"} {
		if answers, err := s.Run(t.Context(), statement, nil); err != nil || answers[0].Err != nil {
			t.Fatal(err, answers)
		}
	}
	proxy.LoseRequests.Store(true)
	proxy.LoseAnswers.Store(true)
	b.holds()
	nodetest.Eventually(t, soon, b.metric("tidemark_sessions 1"), "the session of who is cut off ends")
	if !b.metric(`tidemark_refusals_total{reason="ping"} 1`)() || !b.metric("tidemark_waiting_reads 0")() {
		t.Error("it ended otherwise, or its FOLLOW did not")
	}
	b.Must("USE NAMESPACE shop; USE DATABASE orders; CREATE things:1 = { }; READ FROM events FOR CONSUMER 'g' LIMIT 1")
	b.holds()
}

func TestClientsThatDripAreCutOff(t *testing.T) {
	b := besiege(t)
	const head = "POST /sql HTTP/1.1\r\nHost: localhost\r\n"
	long := strings.Repeat("x", 1<<12)
	type slow struct {
		connect func() *wire
		drips   string
		told    string
	}
	// dripping has all of them at once.
	dripping := func(t *testing.T, name string, c slow) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := c.connect()
			began := time.Now()
			go w.drip(c.drips)
			if said := w.rest(); !strings.Contains(said, c.told) {
				t.Errorf("who drips %s is told %q, want %q in it", name, said, c.told)
			}
			if took := time.Since(began); took > cutOffWithin {
				t.Errorf("who drips %s is cut off after %s", name, took)
			}
		})
	}
	t.Run("", func(t *testing.T) {
		for name, c := range map[string]slow{
			"the headers":      {func() *wire { return connect(t, b.Address, head) }, "X-Slow: " + long, ""},
			"a body":           {func() *wire { return connect(t, b.Address, head+"Content-Length: 5000\r\n\r\n") }, long, "did not arrive within 1s"},
			"a body of pieces": {func() *wire { return connect(t, b.Address, head+"Transfer-Encoding: chunked\r\n\r\n") }, strings.Repeat("1\r\nx\r\n", 1<<10), "did not arrive within 1s"},
			"a sign-in": {func() *wire {
				return connect(t, b.Address, strings.Replace(head, "/sql", "/signin", 1)+"Content-Length: 5000\r\n\r\n")
			}, long, "did not arrive within 1s"},
			"a frame":                  {func() *wire { return upgrade(t, b.Address, "tidemark.json") }, string(frame(textFrame|finalFrame, long)), "did not arrive within 1s"},
			"a message of many frames": {func() *wire { return upgrade(t, b.Address, "tidemark.json") }, string(frame(textFrame, "{")) + strings.Repeat(string(frame(continued, " ")), 1<<10), "did not arrive within 1s"},
			"half a frame's beginning": {func() *wire { return upgrade(t, b.Address, "tidemark.json") }, string(frame(textFrame|finalFrame, long)[:1]), ""},
		} {
			dripping(t, name, c)
		}
	})
	b.holds()
}

func TestAMessageOfManyFramesIsOneRequest(t *testing.T) {
	b := besiege(t, "--read-time", "20s")
	w := upgrade(t, b.Address, "tidemark.json")
	for i, request := range []string{`{"id":1,"sql":"SLEEP 0s"}`, `[{"id":2,"sql":"SLEEP 0s"}]`} {
		first := byte(textFrame)
		for _, c := range request {
			// Each byte a frame, and each byte of the frame a packet.
			for _, piece := range frame(first, string(c)) {
				if _, err := w.Write([]byte{piece}); err != nil {
					t.Fatal(err)
				}
			}
			first = continued
		}
		if _, err := w.Write(frame(continued|finalFrame, "")); err != nil {
			t.Fatal(err)
		}
		if want, got := []string{`{"id":1,"answers":[{"ok":true,"answer":null}]}`, `[{"id":2,"answers":[{"ok":true,"answer":null}]}]`}[i], w.next(); got != want {
			t.Errorf("%s byte by byte is answered %s", request, got)
		}
	}
	b.holds()
}

// huge are values of CBOR that announce more than there is.
func huge() map[string]string {
	largest := "\xff\xff\xff\xff\xff\xff\xff\xff"
	values := map[string]string{
		"an array nested deep":          strings.Repeat("\x81", 1<<20),
		"an object nested deep":         strings.Repeat("\xa1\x61a", 1<<20),
		"arrays without a length":       strings.Repeat("\x9f", 1<<20),
		"arrays that announce millions": strings.Repeat("\x9a\x00\x7f\xff\xff", 1<<16),
	}
	for name, major := range map[string]byte{"bytes": 0x40, "a text": 0x60, "an array": 0x80, "an object": 0xa0, "a tag": 0xc0} {
		values[name+" of 2^64-1"] = string([]byte{major | 27}) + largest
		values[name+" of 2^63-1"] = string([]byte{major | 27}) + "\x7f" + largest[1:]
		values[name+" of 2^31-1"] = string([]byte{major | 26, 0x7f, 0xff, 0xff, 0xff})
	}
	return values
}

func TestLengthsThatAreAnnouncedTakeNoMemory(t *testing.T) {
	b := besiege(t)
	// A request in whose parameters the value stands, and the value as the
	// whole.
	const request = "\xa2\x63sql\x68SLEEP 0s\x66params\xa1\x61v"
	for name, value := range huge() {
		for _, body := range []string{request + value, value} {
			status, answer := b.send(func(r *http.Request) { r.Header.Set("Content-Type", "application/cbor") }, "POST", "/sql", body)
			if status != http.StatusBadRequest || !strings.Contains(answer, `"Syntax"`) {
				t.Errorf("%s: %d %s", name, status, answer)
			}
			w := upgrade(t, b.Address, "tidemark.cbor")
			if _, err := w.Write(frame(binaryFrame|finalFrame, body)); err != nil {
				t.Fatal(err)
			}
			if answer := w.next(); !strings.Contains(answer, "Syntax") {
				t.Errorf("%s over a WebSocket: %q", name, answer)
			}
		}
	}
	b.holds()

	w := connect(t, b.Address, "POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000000000\r\n\r\n")
	if said := w.rest(); !strings.HasPrefix(said, "HTTP/1.1 413 ") {
		t.Errorf("a body of 10^18 bytes is answered %q", said)
	}
	for name, length := range map[string]uint64{"2^62": 1 << 62, "2^63": 1 << 63} {
		w := upgrade(t, b.Address, "tidemark.json")
		if _, err := w.Write(append(binary.BigEndian.AppendUint64([]byte{textFrame | finalFrame, 0x80 | 127}, length), 0, 0, 0, 0, '{')); err != nil {
			t.Fatal(err)
		}
		if said := w.rest(); said == "" && length == 1<<62 {
			t.Errorf("a frame of %s bytes is closed without a word", name)
		}
	}
	b.holds()
}

func TestRequestsThatNobodyReadsTheAnswersOfHoldNobodyElse(t *testing.T) {
	const requests = 100_000
	b := besiege(t)
	w := upgrade(t, b.Address, "tidemark.json")
	var sent []byte
	for i := range requests {
		sent = append(sent, frame(textFrame|finalFrame, fmt.Sprintf(`{"id":%d,"sql":"SLEEP 0s"}`, i))...)
	}
	written := make(chan error, 1)
	go func() {
		_, err := w.Write(sent)
		written <- err
	}()
	for range 20 {
		b.holds()
	}
	for i := range requests {
		if want, got := fmt.Sprintf(`{"id":%d,"answers":[{"ok":true,"answer":null}]}`, i), w.next(); got != want {
			t.Fatalf("answer %d is %s", i, got)
		}
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	b.holds()
}

func TestCreditPastEveryBoundIsCreditUpToIt(t *testing.T) {
	b := besiege(t)
	w := upgrade(t, b.Address, "tidemark.json")
	send := func(request string) {
		t.Helper()
		if _, err := w.Write(frame(textFrame|finalFrame, request)); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range []string{"-1", "2147483648", "1e3", "99999999999999999999", `"1"`} {
		send(`{"id":1,"sql":"FOLLOW events AFTER 0","credit":` + wrong + `}`)
		if got := w.next(); !strings.Contains(got, `"kind":"Syntax"`) {
			t.Errorf("credit %s is answered %s", wrong, got)
		}
	}
	send(`{"id":1,"sql":"FOLLOW events"}`)
	_ = w.next()
	send("[" + strings.Repeat(`{"follow":1,"credit":2147483647},`, 10_000) + `{"follow":1,"credit":2147483647}]`)
	for range 3 {
		b.holds() // It appends.
		if got := w.next(); !strings.Contains(got, `"value":"other"`) {
			t.Errorf("with more credit than there can be it is pushed %s", got)
		}
	}
}

// Wrong passwords come from one address by the hundred at once, while those who
// have signed in work, and the memory is that of two hashes.
func TestAFloodOfSignInsHoldsNobodyWhoHasSignedIn(t *testing.T) {
	p := startOwned(t)
	atRest, _, err := nodetest.Resident(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	transport := &http.Transport{DialContext: from.DialContext}
	defer transport.CloseIdleConnections()
	const strangers = 100
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	var refused [600]atomic.Int64
	for i := range strangers {
		flood.Go(func() {
			for ctx.Err() == nil {
				body := fmt.Sprintf(`{"user":"user %d","password":"x"}`, i)
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/signin", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				request.Header.Set("Content-Type", "application/json")
				response, err := transport.RoundTrip(request)
				if err != nil {
					continue // The test is over.
				}
				_ = response.Body.Close()
				refused[response.StatusCode].Add(1)
			}
		})
	}
	var took []time.Duration
	for refused[http.StatusTooManyRequests].Load() < 1000 {
		began := time.Now()
		p.must(asRoot, "", "SLEEP 0s")
		took = append(took, time.Since(began))
	}
	stop()
	flood.Wait()
	if slowest := slices.Max(took); slowest > servedWithin {
		t.Errorf("among strangers who sign in, root waits %s", slowest)
	}
	for status := range refused {
		if n := refused[status].Load(); n > 0 && status != http.StatusUnauthorized && status != http.StatusTooManyRequests {
			t.Errorf("%d sign-ins are answered %d", n, status)
		}
	}
	_, most, err := nodetest.Resident(p.PID())
	if err != nil || most > atRest+hostileMemory {
		t.Errorf("the node takes %d MiB, and %d at rest; %v", most>>20, atRest>>20, err)
	}
}

// An address that takes all the connections that one may leaves the others
// theirs, and has them back when it lets go.
func TestOneAddressDoesNotTakeAllConnections(t *testing.T) {
	b := besiege(t, "--sessions-per-address", "20", "--read-time", "20s")
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	const each, most = 400, 20 + 256
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	for range each {
		conn, err := from.DialContext(t.Context(), "tcp", b.Address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	b.holds()
	closed := 0
	for _, conn := range open {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			closed++
		}
	}
	if closed != each-most {
		t.Errorf("of %d connections of one address %d are closed, want %d", each, closed, each-most)
	}
	b.holds()
}
