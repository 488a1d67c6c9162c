package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	// maxKeptBytes is the memory for what is to be sent that an idle session
	// keeps.
	maxKeptBytes = 1 << 20
)

// Session is a session on a node. It is safe for concurrent use, but a
// transaction is the session's: callers who share it share the transaction.
type Session struct {
	conn *websocket.Conn
	// address is the node's, without a password.
	address string
	// node is which of a store's nodes it is on, where Connect dialled it.
	node   int
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu sync.Mutex
	// The following are protected by mu.
	outgoing outgoing
	calls    calls
	follows  map[int64]*Subscription
	// lastID is that of the last request, sentID of the last that may have
	// reached the node.
	lastID, sentID int64
	// ended is why the session ended, nil while it has not.
	ended error

	// filled holds a token when there is something to send.
	filled chan struct{}
	// heard says that something was received since ping looked.
	heard atomic.Bool
}

// Dial opens a session on the one node at a URL: ws://host:port or wss://…; the
// path /ws is added where there is none. A refusal of the node is returned with
// its kind.
func Dial(ctx context.Context, url string, options Options) (*Session, error) {
	address, header, err := handshake(url, options)
	if err != nil {
		return nil, err
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
	s := &Session{conn: conn, address: address, follows: map[int64]*Subscription{}, filled: make(chan struct{}, 1)}
	carrying, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() { s.send(carrying) })
	s.done.Go(func() { s.receive(carrying) })
	s.done.Go(func() { s.ping(carrying, options.pings.withDefaults()) })
	return s, nil
}

// Call is a request on its way.
type Call struct {
	id      int64
	page    bool
	answers []Answer
	err     error
	// done is closed when the call is done; where then is not nil it is told
	// instead, in the order of the calls of its session.
	done chan struct{}
	then interface{ answered() }
}

// Start sends statements and does not wait for their answers. Calls of one
// session run, and are answered, in the order of Start.
func (s *Session) Start(script string, params map[string]value.Value) *Call {
	return s.start(request{sql: script, params: params})
}

func (s *Session) start(r request) *Call {
	call := &Call{done: make(chan struct{})}
	if err := s.register(call, r); err != nil {
		call.finish(nil, err)
	}
	return call
}

// register enqueues a request and its call.
func (s *Session) register(call *Call, r request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return neverSent(s.ended)
	}
	call.id, call.page = s.nextID(), r.page
	if err := s.outgoing.addRequest(call.id, r); err != nil {
		return err
	}
	s.calls.add(call)
	s.announce()
	return nil
}

// calls are those that have no answer, by their ids, which ascend; so they are
// answered, but for one that a broken node leaves out.
type calls []*Call

func (c *calls) add(call *Call) { *c = append(*c, call) }

func (c calls) index(id int64) (at int, found bool) {
	if len(c) > 0 && c[0].id == id {
		return 0, true
	}
	return slices.BinarySearchFunc(c, id, func(call *Call, id int64) int { return cmp.Compare(call.id, id) })
}

// find is the call of an id, nil where there is none.
func (c calls) find(id int64) *Call {
	if at, found := c.index(id); found {
		return c[at]
	}
	return nil
}

// take removes the call of an id, nil where there is none.
func (c *calls) take(id int64) *Call {
	at, found := c.index(id)
	if !found {
		return nil
	}
	call := (*c)[at]
	if at > 0 {
		*c = slices.Delete(*c, at, at+1)
		return call
	}
	(*c)[0] = nil
	if *c = (*c)[1:]; len(*c) == 0 {
		*c = nil
	}
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

// finish ends the call. It is called without the session's mu.
func (c *Call) finish(answers []Answer, err error) {
	c.answers, c.err = answers, err
	if c.then != nil {
		c.then.answered()
		return
	}
	close(c.done)
}

// Run sends statements and returns their answers, one a statement; that a
// statement failed is said by its answer. The error is that of the session: it
// ended, and what was sent may have run or not.
func (s *Session) Run(ctx context.Context, script string, params map[string]value.Value) ([]Answer, error) {
	return s.start(request{sql: script, params: params, headers: headersOf(ctx)}).Wait(ctx)
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

// announce tells send that there is something to send.
func (s *Session) announce() {
	select {
	case s.filled <- struct{}{}:
	default:
	}
}

// send sends what is enqueued: what is there together, as arrays.
func (s *Session) send(ctx context.Context) {
	var spare outgoing
	for {
		select {
		case <-s.filled:
		case <-ctx.Done():
			return
		}
		runtime.Gosched() // Who is about to send goes along.
		s.mu.Lock()
		requests := s.outgoing
		s.outgoing = spare
		s.sentID = s.lastID
		s.mu.Unlock()
		for !requests.empty() {
			if err := s.conn.Write(ctx, websocket.MessageBinary, requests.nextFrame()); err != nil {
				// It closed the connection, so that receive ends, too; and only
				// that may have read why.
				return
			}
		}
		spare = requests.emptied()
	}
}

// receive hands out answers and pushes until the connection ends.
func (s *Session) receive(ctx context.Context) {
	size := 0
	for {
		frame, err := s.readFrame(ctx, size)
		size = len(frame)
		if err != nil {
			s.lost(err)
			return
		}
		s.heard.Store(true)
		if follow, pushed, ok := readPush(frame); ok {
			s.push(follow, pushed)
			continue
		}
		if replies, ok := readReplies(frame, s.isPage); ok {
			for _, r := range replies {
				s.answer(r.id, r.answers)
			}
			continue
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
		for _, element := range elements {
			if err := s.deliver(element); err != nil {
				s.lost(err)
				return
			}
		}
	}
}

// readFrame reads a frame into memory of its own: messages share it. Most frames
// are about as large as the one before.
func (s *Session) readFrame(ctx context.Context, size int) ([]byte, error) {
	_, frame, err := s.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	const least = 512
	buffer := make([]byte, 0, min(size, maxFrameBytes)+least)
	for err == nil {
		if len(buffer) == cap(buffer) {
			buffer = slices.Grow(buffer, cap(buffer))
		}
		var n int
		n, err = frame.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if cap(buffer) > 4*len(buffer) {
		// Whoever keeps a message must not keep much that is none.
		buffer = slices.Clone(buffer)
	}
	return buffer, nil
}

// push hands messages to the subscription that they are of.
func (s *Session) push(follow int64, pushed Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subscription := s.follows[follow]; subscription != nil {
		subscription.take(pushed)
	}
}

// isPage reports whether a request asked for pages.
func (s *Session) isPage(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.calls.find(id)
	return call != nil && call.page
}

// deliver hands an answer or a push to who waits for it. It returns an error
// where the node did not understand what it was sent.
func (s *Session) deliver(v value.Value) error {
	fields, _ := v.AsObject()
	if follow, ok := fields["follow"].AsInt(); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if subscription := s.follows[follow]; subscription != nil {
			subscription.deliver(fields)
		}
		return nil
	}
	told, _ := fields["answers"].AsArray()
	id, ok := fields["id"].AsInt()
	if !ok && len(told) == 1 {
		// It refuses a whole frame, so that what was in it has no answer.
		if err := answerOf(told[0]).Err; err != nil {
			return err
		}
	}
	answers := make([]Answer, len(told))
	for i, answer := range told {
		answers[i] = answerOf(answer)
	}
	s.answer(id, answers)
	return nil
}

// answer hands answers to the call that waits for them.
func (s *Session) answer(id int64, answers []Answer) {
	s.mu.Lock()
	call := s.calls.take(id)
	s.mu.Unlock()
	if call != nil {
		call.finish(answers, nil)
	}
}

// pings are the times of asking a silent node whether it is there.
type pings struct {
	// every is how long nothing was heard, and patience how long the node may
	// take to say that it is there: it may be reading what it was sent before.
	every, patience time.Duration
}

func (p pings) withDefaults() pings {
	if p.every == 0 {
		return pings{every: 15 * time.Second, patience: 30 * time.Second}
	}
	return p
}

// ping asks a node that is silent whether it is there, so that a machine which
// vanished is noticed.
func (s *Session) ping(ctx context.Context, times pings) {
	ticker := time.NewTicker(times.every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if s.heard.Swap(false) {
			continue
		}
		asking, done := context.WithTimeout(ctx, times.patience)
		err := s.conn.Ping(asking)
		done()
		if err != nil {
			s.lost(errSilent)
			_ = s.conn.CloseNow()
			return
		}
	}
}

var errSilent = errors.New("it does not answer pings")

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
		s.end(fault.New(fault.Unavailable, "the node at %s closed the session: %s", s.address, closed.Reason))
		return
	}
	s.end(fault.New(fault.Unavailable, "the connection to the node at %s was lost: %w", s.address, networkCause(cause)))
}

// end fails everything that waits, in its order, once.
func (s *Session) end(reason error) {
	s.mu.Lock()
	if s.ended != nil {
		s.mu.Unlock()
		return
	}
	s.ended = reason
	s.outgoing = outgoing{}
	calls, follows := s.calls, slices.Collect(maps.Values(s.follows))
	s.calls = nil
	clear(s.follows)
	sentID := s.sentID
	s.mu.Unlock()
	for _, call := range calls {
		if call.id > sentID {
			call.finish(nil, neverSent(reason))
		} else {
			call.finish(nil, outcomeUnknown(reason))
		}
	}
	for _, subscription := range follows {
		subscription.end(reason)
	}
}

// abort ends the session without a word to the node.
func (s *Session) abort() {
	s.end(fault.New(fault.Cancelled, "the session was closed"))
	_ = s.conn.CloseNow()
	s.cancel()
	s.done.Wait()
}
