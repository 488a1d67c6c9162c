package ftlwire

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/fxamacker/cbor/v2"

	"github.com/tidemarkdb/tidemark/fault"
)

// The bounds of a connection.
const (
	// MaxMessageBytes bounds what is received at once. An event is as large as a
	// request to a node may be, and so is a few of them.
	MaxMessageBytes = 64 << 20
	// sendBytes is about how much is sent at once: what waits beyond that goes
	// into the next message.
	sendBytes = 1 << 20
	// maxWaiting is how many frames may wait to be sent. Credit keeps what waits
	// far below it; a peer that takes none is given up on.
	maxWaiting = 100_000
	// PingEvery is how often each side asks whether the other is still there, and
	// PingTime how long that may take to answer: a peer that is gone without a
	// word is noticed within fifteen seconds.
	PingEvery = 5 * time.Second
	PingTime  = 10 * time.Second
	// writeTime is how long a message may take to be sent.
	writeTime = 30 * time.Second
)

// Conn is one connection of a runner and a node. Send may be called by anybody,
// Receive by one goroutine.
type Conn struct {
	conn *websocket.Conn
	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup
	// flushed is closed when nothing is sent any more.
	flushed chan struct{}

	// received are the frames of the last message that are not yet returned;
	// only Receive uses it.
	received []Frame

	// wake holds a token when something waits to be sent.
	wake chan struct{}
	mu   sync.Mutex
	// The following are protected by mu.
	waiting []Frame
	closing bool
}

// Dial connects a runner to the node at a URL, as ws://host:port, and says
// hello; header is added to the request, nil for none. Its error is
// fault.Unavailable where the node cannot be reached, and otherwise why it
// refused; Final tells whether trying again helps.
func Dial(ctx context.Context, node string, header http.Header, hello Hello) (*Conn, *Welcome, error) {
	target, err := url.Parse(node)
	if err != nil {
		return nil, nil, fault.New(fault.InvalidClause, "%q is no URL of a node; write it as ws://127.0.0.1:7420", node)
	}
	target.Path = Path
	socket, response, err := websocket.Dial(ctx, target.String(), &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		return nil, nil, dialError(target, response, err)
	}
	c := newConn(socket)
	c.Send(Frame{Hello: &hello})
	answer, err := c.Receive(ctx)
	switch {
	case err != nil:
		err = fault.New(fault.Unavailable, "the node at %s left before it answered: %w", target.Host, err)
	case answer.Refused != nil:
		err = &RefusedError{*answer.Refused}
	case answer.Welcome == nil:
		err = fault.New(fault.Internal, "what is at %s does not answer as a node does", target.Host)
	default:
		return c, answer.Welcome, nil
	}
	c.Close("")
	return nil, nil, err
}

func dialError(target *url.URL, response *http.Response, err error) error {
	if response == nil {
		return fault.New(fault.Unavailable, "the node at %s cannot be reached: %w", target.Host, err)
	}
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return &RefusedError{Refused{Kind: string(fault.NotSignedIn), Message: "the node at " + target.Host + " wants a user and a password", Final: true}}
	case http.StatusForbidden:
		return &RefusedError{Refused{Kind: string(fault.NotAllowed), Message: "the node at " + target.Host + " does not let this user run modules", Final: true}}
	case http.StatusNotFound:
		return &RefusedError{Refused{Kind: string(fault.NotFound), Message: "the node at " + target.Host + " takes no runners", Final: true}}
	}
	return fault.New(fault.Unavailable, "the node at %s answers %s", target.Host, response.Status)
}

// RefusedError is a node's refusal of a runner.
type RefusedError struct{ Refused }

func (e *RefusedError) Error() string { return e.Message }

// Unwrap returns the error of package fault.
func (e *RefusedError) Unwrap() error { return fault.New(fault.Kind(e.Kind), "%s", e.Message) }

// Accept takes a runner's connection and returns it with what it said first.
func Accept(w http.ResponseWriter, r *http.Request, helloTime time.Duration) (*Conn, *Hello, error) {
	socket, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil, nil, err
	}
	c := newConn(socket)
	ctx, done := context.WithTimeout(r.Context(), helloTime)
	defer done()
	first, err := c.Receive(ctx)
	if err == nil && first.Hello == nil {
		err = errors.New("it does not begin with hello")
	}
	if err != nil {
		c.Close("")
		return nil, nil, err
	}
	return c, first.Hello, nil
}

func newConn(socket *websocket.Conn) *Conn {
	socket.SetReadLimit(MaxMessageBytes)
	ctx, stop := context.WithCancel(context.Background())
	c := &Conn{conn: socket, ctx: ctx, stop: stop, wake: make(chan struct{}, 1), flushed: make(chan struct{})}
	c.done.Go(c.write)
	c.done.Go(c.ping)
	return c
}

// Send sends a frame, after those sent before. It does not wait: what cannot be
// sent ends the connection, which Receive tells.
func (c *Conn) Send(f Frame) {
	c.mu.Lock()
	c.waiting = append(c.waiting, f)
	full := len(c.waiting) > maxWaiting
	c.mu.Unlock()
	if full {
		c.stop()
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Receive returns the next frame. An error ends the connection.
func (c *Conn) Receive(ctx context.Context) (Frame, error) {
	for len(c.received) == 0 {
		reading, done := context.WithCancel(ctx)
		stop := context.AfterFunc(c.ctx, done)
		_, message, err := c.conn.Read(reading)
		stop()
		done()
		if err != nil {
			c.stop()
			return Frame{}, err
		}
		if err := cbor.Unmarshal(message, &c.received); err != nil {
			c.stop()
			return Frame{}, err
		}
	}
	first := c.received[0]
	c.received = c.received[1:]
	return first, nil
}

// Ended is closed when the connection has ended or is about to.
func (c *Conn) Ended() <-chan struct{} { return c.ctx.Done() }

// Close sends what waits, ends the connection and waits until it has. Closing
// twice does nothing.
func (c *Conn) Close(reason string) {
	c.mu.Lock()
	first := !c.closing
	c.closing = true
	c.mu.Unlock()
	if first {
		select {
		case c.wake <- struct{}{}:
		default:
		}
		<-c.flushed
		// Before the reading ends, which would end the connection without what
		// is on its way.
		_ = c.conn.Close(websocket.StatusNormalClosure, reason)
		c.stop()
	}
	c.done.Wait()
}

// CloseNow ends the connection at once, as if it were lost.
func (c *Conn) CloseNow() {
	c.stop()
	_ = c.conn.CloseNow()
	c.done.Wait()
}

// write sends what waits until the connection ends.
func (c *Conn) write() {
	defer close(c.flushed)
	for {
		runtime.Gosched() // Who is about to send goes along.
		c.mu.Lock()
		frames := c.waiting
		c.waiting = nil
		closing := c.closing
		c.mu.Unlock()
		if err := c.writeAll(frames); err != nil {
			c.stop()
			return
		}
		if closing {
			return
		}
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
	}
}

// writeAll sends frames in as few messages as their sizes allow.
func (c *Conn) writeAll(frames []Frame) error {
	for len(frames) > 0 {
		count, size := 0, 0
		for count < len(frames) && (count == 0 || size < sendBytes) {
			size += frames[count].size()
			count++
		}
		message, err := cbor.Marshal(frames[:count])
		if err != nil {
			return err
		}
		ctx, done := context.WithTimeout(c.ctx, writeTime)
		err = c.conn.Write(ctx, websocket.MessageBinary, message)
		done()
		if err != nil {
			return err
		}
		frames = frames[count:]
	}
	return nil
}

// size is about how many bytes a frame takes.
func (f *Frame) size() int {
	const others = 256
	switch {
	case f.Call != nil:
		return others + len(f.Call.Event)
	case f.Done != nil:
		return others + len(f.Done.Result)
	}
	return others
}

// ping notices a peer that is gone without a word.
func (c *Conn) ping() {
	ticker := time.NewTicker(PingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
		}
		ctx, done := context.WithTimeout(c.ctx, PingTime)
		err := c.conn.Ping(ctx)
		done()
		if err != nil {
			c.stop()
			return
		}
	}
}
