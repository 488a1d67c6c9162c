package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// connection is one WebSocket: a session, and the goroutines that carry it.
//
//	read ─► inbox ─► run ─► outbox ─► write
//	                  │        ▲
//	                  └► follow ┘   one a FOLLOW
//
// Only run uses the session. read and write meet the client; ping asks whether
// it is still there. Whoever of them fails ends ctx, and with it the others.
type connection struct {
	server *Server
	conn   *websocket.Conn
	format format
	log    *slog.Logger

	session *session.Session
	// texts are the scripts that were received; only read uses them. scripts are
	// those that were parsed, by their text; only run uses them.
	texts   texts
	scripts map[string]*parsedScript

	inbox  *inbox
	outbox *outbox

	ctx    context.Context
	cancel context.CancelFunc

	// takesArrays says that the client has sent an array, so that it can be
	// sent one.
	takesArrays atomic.Bool
	// draining says that what was not begun is refused.
	draining atomic.Bool
	// reading says that the connection is being read, heard that something
	// was read since ping looked.
	reading, heard atomic.Bool

	follows follows
}

// serveWebSocket serves a session over a WebSocket.
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	x := &exchange{server: s, w: w, r: r, format: formatJSON, started: time.Now()}
	x.log = s.log.With(slog.String("session", requestID(w, r)), slog.String("remote", r.RemoteAddr))
	if s.draining.Err() != nil {
		x.refuse(http.StatusServiceUnavailable, "draining", errShuttingDown)
		return
	}
	leave, err := s.gate.enterSession(r.RemoteAddr)
	if err != nil {
		x.refuse(http.StatusTooManyRequests, "sessions", err)
		return
	}
	defer leave()
	signedIn, err := s.callerOf(r)
	if err != nil {
		x.refuseCaller(err)
		return
	}
	namespace, database := namesInUse(r)
	caller, err := s.newSession(r.Context(), signedIn, namespace, database)
	if err != nil {
		x.refuse(statusOf(err), "names", err)
		return
	}
	defer caller.Close()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:   []string{subprotocolCBOR, subprotocolJSON},
		OriginPatterns: s.options.Origins,
	})
	if err != nil {
		x.log.Debug("a WebSocket is refused", slog.Any("reason", err))
		return
	}
	defer func() { _ = conn.CloseNow() }()
	// readLimited has the limit, and words for it.
	conn.SetReadLimit(-1)
	c := &connection{
		server: s, conn: conn, log: x.log, session: caller,
		texts:   texts{},
		scripts: map[string]*parsedScript{},
		inbox:   newInbox(int(s.limits.RequestBytes), s.requestMemory),
		outbox:  newOutbox(s.limits, &s.unsent),
	}
	if conn.Subprotocol() == subprotocolCBOR {
		c.format = formatCBOR
	}
	c.ctx, c.cancel = context.WithCancel(s.running)
	defer c.cancel()
	if !s.enter(c) {
		_ = conn.Close(websocket.StatusGoingAway, goingAway)
		return
	}
	defer s.leave(c)
	c.log.Debug("a session begins", slog.String("subprotocol", conn.Subprotocol()))
	c.serve()
	c.log.Debug("a session has ended", slog.Duration("took", time.Since(x.started)))
}

// goingAway is why a node that shuts down closes its sessions.
const goingAway = "the node is shutting down"

// enter registers a connection, unless the server is shutting down.
func (s *Server) enter(c *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Err() != nil {
		return false
	}
	s.open[c] = struct{}{}
	s.connections.Add(1)
	return true
}

func (s *Server) leave(c *connection) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	s.connections.Done()
}

// serve runs the session until the client leaves or the server shuts down.
func (c *connection) serve() {
	var carriers sync.WaitGroup
	carriers.Go(c.read)
	carriers.Go(c.ping)
	var writer sync.WaitGroup
	writer.Go(c.write)

	c.run()
	c.follows.end()
	c.outbox.awaitIdle()
	c.outbox.close()
	writer.Wait()
	if c.ctx.Err() == nil {
		_ = c.conn.Close(websocket.StatusGoingAway, goingAway)
	}
	c.cancel()
	_ = c.conn.CloseNow()
	c.inbox.end()
	carriers.Wait()
}

// drain takes no more requests and refuses those not begun. What runs is
// finished and answered, and then the connection is closed.
func (c *connection) drain() {
	c.draining.Store(true)
	c.inbox.end()
}

// closing tells the client why its connection is closed.
func (c *connection) closing(status websocket.StatusCode, why string, reason error) {
	c.server.metrics.refused(why)
	message := fault.Of(reason).Message
	if len(message) > maxCloseReason {
		message = message[:maxCloseReason]
	}
	c.log.Debug("a session is closed", slog.Int("status", int(status)), slog.String("reason", message))
	_ = c.conn.Close(status, message)
	c.cancel()
}

// maxCloseReason is what a close frame holds (RFC 6455, section 5.5).
const maxCloseReason = 123

// read receives frames until the connection or the session ends.
func (c *connection) read() {
	defer c.inbox.end()
	expected := 0
	for {
		c.reading.Store(true)
		kind, frame, err := c.conn.Reader(c.ctx)
		if err != nil {
			c.cancel()
			return
		}
		if (kind == websocket.MessageBinary) != (c.format == formatCBOR) {
			c.closing(websocket.StatusUnsupportedData, "broken", fault.New(fault.Syntax, "this session speaks %s; the subprotocols are %s and %s", c.format.mediaType(), subprotocolJSON, subprotocolCBOR))
			return
		}
		slow := time.AfterFunc(c.server.limits.ReadTime, func() {
			c.closing(websocket.StatusPolicyViolation, "read_time", fault.New(fault.Timeout, "a frame did not arrive within %s", c.server.limits.ReadTime))
		})
		body, release, err := readLimited(frame, c.server.limits.RequestBytes, c.server.requestMemory, expected)
		slow.Stop()
		c.reading.Store(false)
		c.heard.Store(true)
		switch {
		case errors.Is(err, fault.TooLarge):
			c.closing(websocket.StatusMessageTooBig, "request_bytes", err)
			return
		case errors.Is(err, fault.Unavailable):
			c.closing(websocket.StatusTryAgainLater, "request_memory", err)
			return
		case err != nil:
			c.cancel()
			return
		}
		// A little more, so that the end is found without growing.
		expected = len(body) + len(body)/8
		err = c.receive(body)
		release()
		if errors.Is(err, errRequestMemory) {
			c.closing(websocket.StatusTryAgainLater, "request_memory", err)
		}
		if err != nil {
			return
		}
	}
}

// receive takes a frame apart. Words on a FOLLOW that is open are heeded at
// once; everything else waits for its turn.
func (c *connection) receive(body []byte) error {
	c.inbox.awaitRoom(len(body))
	decoded, err := c.server.awaitDecoding(c.ctx, len(body))
	if err != nil {
		return err
	}
	requests, many, err := decodeFrame(c.format, body, c.texts)
	decoded()
	if many {
		c.takesArrays.Store(true)
	}
	if err != nil {
		requests = []request{{id: value.Null(), refused: err}}
	}
	turn := requests[:0]
	for _, r := range requests {
		if r.follow.IsNone() || !c.follows.heed(r) {
			turn = append(turn, r)
		}
	}
	if len(turn) == 0 {
		return nil
	}
	if err := c.inbox.put(turn); !errors.Is(err, errEnded) {
		return err
	}
	return nil // Until the connection ends the rest is read, and goes nowhere.
}

// ping asks a silent client now and then whether it is there, so that a
// connection of which only one end is left does not stay for good.
func (c *connection) ping() {
	ticker := time.NewTicker(c.server.limits.PingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
		}
		// A pong is heard only while the connection is read.
		if c.heard.Swap(false) || !c.reading.Load() {
			continue
		}
		asking, done := context.WithTimeout(c.ctx, c.server.limits.PingEvery)
		err := c.conn.Ping(asking)
		done()
		if err != nil {
			c.server.metrics.refused("ping")
			c.cancel()
			return
		}
	}
}

// run runs the requests in order.
func (c *connection) run() {
	limits := c.server.limits
	for {
		var idle time.Duration
		if c.session.InTransaction() {
			idle = limits.TransactionIdle
		}
		next, idled, ok := c.inbox.take(idle)
		if !ok {
			return
		}
		if idled {
			c.server.metrics.refused("transaction_idle")
			c.session.Abandon(fault.New(fault.Timeout, "it was left alone for %s, which is the limit, and was rolled back", limits.TransactionIdle))
			continue
		}
		c.handle(next)
		c.inbox.ran(next.held)
	}
}

// refusalBytes is about how much memory a refusal takes.
const refusalBytes = 512

// handle runs one request.
func (c *connection) handle(r taken) {
	if c.ctx.Err() != nil {
		return // There is nobody to answer.
	}
	if !r.follow.IsNone() {
		c.heedInTurn(*r.request)
		return
	}
	reply := c.outbox.reserve(r.id)
	if reply == nil {
		return
	}
	// What refuses the whole request is its only answer.
	refuse := func(err error) {
		c.outbox.finishLater(reply, refusalBytes, func() session.Answer { return session.FailedAnswer(err) })
	}
	defer func() {
		if broken := recover(); broken != nil {
			c.server.broke(c.log, broken)
			if !c.outbox.isFinished(reply) {
				refuse(fault.Internal)
			}
			c.session.Close()
		}
	}()
	if r.refused != nil {
		refuse(r.refused)
		return
	}
	if c.draining.Load() {
		refuse(errShuttingDown)
		return
	}
	parsed, err := c.parse(r.sql)
	if err == nil {
		err = c.server.checkStatements(parsed.script)
	}
	if err != nil {
		refuse(err)
		return
	}
	ctx, end, err := c.server.begin(c.ctx, "websocket", r.headers)
	if err != nil {
		refuse(err)
		return
	}
	c.session.TellTimes(r.times)
	if c.startAppend(ctx, reply, parsed, r, end) {
		return
	}
	defer end()
	c.outbox.awaitAlone()
	if r.params, err = r.values(); err != nil {
		refuse(err)
		return
	}
	script := parsed.script
	if x, ok := followOf(script); ok {
		c.startFollow(reply, *r.request, script, x)
		return
	}
	started := time.Now()
	answers := c.server.runScript(ctx, c.session, script, r.params, c.format)
	c.server.metrics.webSocket.Observe(time.Since(started).Seconds())
	c.outbox.finish(reply, answers)
}

// startAppend begins a lone append without waiting for it, where others come
// behind it or are on their way: so they share commits. An append that is alone
// is spared the detour, unless it asks for a brief answer. end is called when it
// is answered.
func (c *connection) startAppend(ctx context.Context, reply *reply, parsed *parsedScript, r taken, end func()) bool {
	if len(parsed.script.Statements) != 1 || !r.more && !r.brief && c.outbox.isAlone() {
		return false
	}
	started, brief := time.Now(), r.brief
	return c.session.StartAppend(ctx, r.received, parsed.script, r.params, r.passed, func(appended session.Appended) {
		if brief {
			appended = appended.Brief()
		}
		c.outbox.finishLater(reply, appended.Bytes(), func() session.Answer {
			answer := appended.Answer()
			parsed.count(answer)
			c.server.metrics.webSocket.Observe(time.Since(started).Seconds())
			end()
			return answer
		})
	})
}

// The bounds of the scripts that a session keeps parsed.
const (
	maxKeptScripts     = 64
	maxKeptScriptBytes = 4 << 10
)

// parsedScript is a script, and the counter of its first statement's success, nil
// where it has none.
type parsedScript struct {
	script    *lang.Script
	metrics   *metrics
	succeeded prometheus.Counter
}

// count counts the answer to the script's only statement.
func (p *parsedScript) count(answer session.Answer) {
	if answer.Err != nil {
		p.metrics.count(p.script, p.script.Statements[0], answer)
		return
	}
	p.succeeded.Inc()
}

// parse parses a script, or finds the one of the same text: clients that pass
// values as parameters send few texts.
func (c *connection) parse(source string) (*parsedScript, error) {
	if parsed := c.scripts[source]; parsed != nil {
		return parsed, nil
	}
	script, err := lang.Parse(source)
	if err != nil {
		return nil, err
	}
	parsed := &parsedScript{script: script, metrics: c.server.metrics}
	if len(script.Statements) > 0 {
		parsed.succeeded = c.server.metrics.counter(script, script.Statements[0], succeeded)
	}
	if len(source) > maxKeptScriptBytes {
		return parsed, nil
	}
	if len(c.scripts) >= maxKeptScripts {
		clear(c.scripts)
	}
	c.scripts[source] = parsed
	return parsed, nil
}

// The bounds of what is sent at once: a frame of answers holds at least one and
// ends past a size.
const (
	maxFrameReplies = 1024
	maxFrameBytes   = 256 << 10
	// maxSpareBytes keeps one huge answer from holding its memory for good.
	maxSpareBytes = 512 << 10
)

// write sends what the outbox has until that is done or the connection ends.
func (c *connection) write() {
	defer c.outbox.end()
	for {
		replies, pushes, done := c.outbox.take(maxFrameReplies)
		if done {
			return
		}
		if len(replies) == 0 && len(pushes) == 0 {
			select {
			case <-c.outbox.ready:
				continue
			case <-c.ctx.Done():
				return
			}
		}
		err := c.writeReplies(replies)
		for _, p := range pushes {
			if err == nil {
				err = c.writeFrame(p.frame)
			}
			close(p.sent)
		}
		if err != nil {
			c.cancel()
			return
		}
	}
}

// writeReplies sends replies: together, to a client that takes arrays.
func (c *connection) writeReplies(replies []*reply) error {
	spare := frameBuffers.Get().(*[]byte)
	frame := list{format: c.format, elements: (*spare)[:listRoom]}
	defer func() {
		if cap(frame.elements) <= maxSpareBytes {
			*spare = frame.elements
		}
		frameBuffers.Put(spare)
	}()
	size := 0
	for i, r := range replies {
		frame.next()
		frame.elements = r.append(c.format, frame.elements)
		size += r.bytes
		replies[i] = nil
		if c.takesArrays.Load() && len(frame.elements) < maxFrameBytes && i < len(replies)-1 {
			continue
		}
		whole := frame.elements[listRoom:]
		if c.takesArrays.Load() {
			whole = frame.enclosed()
		}
		err := c.writeFrame(whole)
		c.outbox.sent(size)
		if err != nil {
			return err
		}
		frame.count, frame.elements, size = 0, frame.elements[:listRoom], 0
	}
	return nil
}

// frameBuffers hold memory for frames of answers, listRoom at least.
var frameBuffers = sync.Pool{New: func() any {
	buffer := make([]byte, listRoom, 4<<10)
	return &buffer
}}

func (c *connection) writeFrame(frame []byte) error {
	kind := websocket.MessageText
	if c.format == formatCBOR {
		kind = websocket.MessageBinary
	}
	writing, done := context.WithTimeout(c.ctx, c.server.limits.WriteTime)
	defer done()
	if err := c.conn.Write(writing, kind, frame); err != nil {
		if errors.Is(writing.Err(), context.DeadlineExceeded) {
			c.server.metrics.refused("write_time")
		}
		return fmt.Errorf("write a frame: %w", err)
	}
	return nil
}
