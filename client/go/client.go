// Package client speaks to a Tidemark node over a WebSocket.
//
// A Session is one connection, which is one session of the node: namespace,
// database and transaction in use are its own, and its requests run in the
// order in which they were sent. Requests may be sent while others are on
// their way (Start); what is sent close together shares a frame, and appends
// among it share a commit.
//
// It knows the wire and nothing of storage: values are those of package value,
// errors those of package fault.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// The bounds of a session.
const (
	// maxFrameRequests is how many requests are sent in one frame at most, and
	// maxFrameBytes about how large it is: a node takes more, and frames that
	// are larger were not measured to be faster.
	maxFrameRequests = 1024
	maxFrameBytes    = 256 << 10
)

// Options are a session's settings. The zero value is a good default.
type Options struct {
	// Namespace and Database are in use from the start. Both may be left out,
	// or Database alone.
	Namespace, Database string
	// HTTPClient connects. Default: http.DefaultClient; set it for a TLS
	// configuration of your own.
	HTTPClient *http.Client
}

// Session is a session on a node. It is safe for concurrent use, but a
// transaction is the session's: callers who share it share the transaction.
type Session struct {
	conn   *websocket.Conn
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu sync.Mutex
	// The following are protected by mu.
	outgoing []outgoing
	calls    map[int64]*Call
	follows  map[int64]*Subscription
	lastID   int64
	// ended is why the session ended, nil while it has not.
	ended error

	// filled holds a token when there is something to send.
	filled chan struct{}
}

// outgoing is an encoded request.
type outgoing []byte

// Answer is what one statement answered.
type Answer struct {
	// Value is what it answered, as the reference of the language says.
	Value value.Value
	// Lapsed is how many messages retention removed before the first of Value.
	Lapsed uint64
	// Err is why the statement failed, nil where it did not.
	Err *fault.Error
}

// Dial opens a session on the node at a URL: ws://host:port or wss://…; the
// path /ws is added where there is none. A refusal of the node is returned with
// its kind.
func Dial(ctx context.Context, url string, options Options) (*Session, error) {
	address, err := socketURL(url)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if options.Namespace != "" {
		header.Set("Tidemark-Namespace", options.Namespace)
	}
	if options.Database != "" {
		header.Set("Tidemark-Database", options.Database)
	}
	conn, response, err := websocket.Dial(ctx, address, &websocket.DialOptions{
		HTTPClient:   options.HTTPClient,
		HTTPHeader:   header,
		Subprotocols: []string{"tidemark.cbor"},
	})
	if err != nil {
		return nil, refusal(address, response, err)
	}
	if conn.Subprotocol() != "tidemark.cbor" {
		_ = conn.CloseNow()
		return nil, fault.New(fault.Unavailable, "%s does not speak tidemark.cbor; is it a Tidemark node?", address)
	}
	// The node bounds what it answers.
	conn.SetReadLimit(-1)
	s := &Session{conn: conn, calls: map[int64]*Call{}, follows: map[int64]*Subscription{}, filled: make(chan struct{}, 1)}
	carrying, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() { s.send(carrying) })
	s.done.Go(func() { s.receive(carrying) })
	return s, nil
}

// Call is a request on its way.
type Call struct {
	session *Session
	answers []Answer
	err     error
	done    chan struct{}
}

// Start sends statements and does not wait for their answers. Calls of one
// session run, and are answered, in the order of Start.
func (s *Session) Start(script string, params map[string]value.Value) *Call {
	call := &Call{session: s, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		call.fail(s.ended)
		return call
	}
	id := s.nextID()
	fields := value.Object{"id": value.Int(id), "sql": value.String(script)}
	if len(params) > 0 {
		fields["params"] = value.Fields(params)
	}
	if err := s.enqueue(fields); err != nil {
		call.fail(err)
		return call
	}
	s.calls[id] = call
	return call
}

// Wait returns the answers, one a statement. A context that ends does not take
// the request back: its effect may be there or come to be.
func (c *Call) Wait(ctx context.Context) ([]Answer, error) {
	select {
	case <-c.done:
		return c.answers, c.err
	case <-ctx.Done():
		return nil, fault.New(fault.Cancelled, "the caller gave up before the answer; what was sent may have run: %w", ctx.Err())
	}
}

func (c *Call) fail(err error) {
	c.err = err
	close(c.done)
}

// Run sends statements and returns their answers, one a statement; that a
// statement failed is said by its answer. The error is that of the session: it
// ended, and what was sent may have run or not.
func (s *Session) Run(ctx context.Context, script string, params map[string]value.Value) ([]Answer, error) {
	return s.Start(script, params).Wait(ctx)
}

// Close ends the session: its transaction is rolled back, and what is not
// answered fails.
func (s *Session) Close() error {
	s.end(fault.New(fault.Cancelled, "the session was closed"))
	err := s.conn.Close(websocket.StatusNormalClosure, "")
	s.cancel()
	s.done.Wait()
	// The node may have gone first; then there is nothing to say to it.
	var closed websocket.CloseError
	if errors.As(err, &closed) {
		return nil
	}
	return err
}

// Ended is why the session has ended, nil while it has not.
func (s *Session) Ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// nextID is called with mu held.
func (s *Session) nextID() int64 {
	s.lastID++
	return s.lastID
}

// enqueue adds a request to those to be sent. It is called with mu held.
func (s *Session) enqueue(fields value.Object) error {
	encoded, err := value.Fields(fields).AppendCBOR(nil)
	if err != nil {
		return err
	}
	s.outgoing = append(s.outgoing, encoded)
	select {
	case s.filled <- struct{}{}:
	default:
	}
	return nil
}

// send sends what is enqueued: what is there together, as arrays.
func (s *Session) send(ctx context.Context) {
	for {
		select {
		case <-s.filled:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		requests := s.outgoing
		s.outgoing = nil
		s.mu.Unlock()
		for len(requests) > 0 {
			var frame []byte
			frame, requests = nextFrame(requests)
			if err := s.conn.Write(ctx, websocket.MessageBinary, frame); err != nil {
				// It closed the connection, so that receive ends, too; and only
				// that may have read why.
				return
			}
		}
	}
}

// nextFrame makes a frame of the first requests.
func nextFrame(requests []outgoing) (frame []byte, rest []outgoing) {
	count, size := 0, 0
	for count < len(requests) && count < maxFrameRequests && (count == 0 || size+len(requests[count]) <= maxFrameBytes) {
		size += len(requests[count])
		count++
	}
	frame = appendArrayHead(make([]byte, 0, size+5), count)
	for _, request := range requests[:count] {
		frame = append(frame, request...)
	}
	return frame, requests[count:]
}

// appendArrayHead begins an array of CBOR (RFC 8949, section 3) of at most
// 65,535 elements.
func appendArrayHead(dst []byte, n int) []byte {
	if n < 24 {
		return append(dst, 0x80|byte(n))
	}
	return append(dst, 0x99, byte(n>>8), byte(n))
}

// receive hands out answers and pushes until the connection ends.
func (s *Session) receive(ctx context.Context) {
	for {
		_, frame, err := s.conn.Read(ctx)
		if err != nil {
			s.lost(err)
			return
		}
		v, err := value.DecodeCBOR(frame)
		if err != nil {
			s.lost(fmt.Errorf("the node's frame cannot be decoded: %w", err))
			return
		}
		elements, many := v.AsArray()
		if !many {
			elements = []value.Value{v}
		}
		s.mu.Lock()
		for _, element := range elements {
			if err = s.deliver(element); err != nil {
				break
			}
		}
		s.mu.Unlock()
		if err != nil {
			s.lost(err)
			return
		}
	}
}

// deliver hands an answer or a push to who waits for it. It returns an error
// where the node did not understand what it was sent. It is called with mu held.
func (s *Session) deliver(v value.Value) error {
	fields, _ := v.AsObject()
	if follow, ok := fields["follow"].AsInt(); ok {
		if subscription := s.follows[follow]; subscription != nil {
			subscription.deliver(fields)
		}
		return nil
	}
	answers, _ := fields["answers"].AsArray()
	id, ok := fields["id"].AsInt()
	if !ok && len(answers) == 1 {
		// It refuses a whole frame, so that what was in it has no answer.
		if told := answerOf(answers[0]).Err; told != nil {
			return told
		}
	}
	call := s.calls[id]
	if call == nil {
		return nil
	}
	delete(s.calls, id)
	call.answers = make([]Answer, len(answers))
	for i, answer := range answers {
		call.answers[i] = answerOf(answer)
	}
	close(call.done)
	return nil
}

func answerOf(v value.Value) Answer {
	fields, _ := v.AsObject()
	if err := errorOf(fields); err != nil {
		return Answer{Err: err}
	}
	lapsed, _ := fields["lapsed"].AsInt()
	return Answer{Value: fields["answer"], Lapsed: uint64(lapsed)}
}

// errorOf is the error that an answer or a push tells, nil for none.
func errorOf(fields value.Object) *fault.Error {
	told, ok := fields["error"].AsObject()
	if !ok {
		return nil
	}
	kind, _ := told["kind"].AsString()
	message, _ := told["message"].AsString()
	return &fault.Error{Kind: fault.Kind(kind), Message: message}
}

// lost ends a session whose connection ended.
func (s *Session) lost(cause error) {
	defer s.cancel()
	var closed websocket.CloseError
	if errors.As(cause, &closed) && closed.Reason != "" {
		s.end(fault.New(fault.Unavailable, "the node closed the session: %s; what was not answered may have run or not", closed.Reason))
		return
	}
	s.end(fault.New(fault.Unavailable, "the connection to the node was lost; what was not answered may have run or not: %w", cause))
}

// end fails everything that waits, once.
func (s *Session) end(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return
	}
	s.ended = reason
	for _, call := range s.calls {
		call.fail(reason)
	}
	for _, subscription := range s.follows {
		subscription.end(reason)
	}
	clear(s.calls)
	clear(s.follows)
}
