package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/munnerz/goautoneg"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// The headers that a request may carry, and every answer to it carries.
const (
	headerNamespace = "Tidemark-Namespace"
	headerDatabase  = "Tidemark-Database"
	headerRequestID = "X-Request-Id"
)

// serveSQL runs the statements of a request and answers one answer a statement,
// also where some failed. A transaction that they leave open is rolled back.
func (s *Server) serveSQL(w http.ResponseWriter, r *http.Request) {
	x := &exchange{server: s, w: w, r: r, format: acceptedFormat(r), started: time.Now()}
	x.log = s.log.With(slog.String("request", requestID(w, r)), slog.String("remote", r.RemoteAddr))
	defer x.recover()
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
	body, release, err := x.readBody()
	if err != nil {
		x.refuseBody(err)
		return
	}
	defer release()
	ctx, done := context.WithCancel(r.Context())
	defer done()
	defer context.AfterFunc(s.running, done)()
	x.run(ctx, signedIn, body)
}

// exchange is one request over HTTP and its answer.
type exchange struct {
	server  *Server
	w       http.ResponseWriter
	r       *http.Request
	format  format
	log     *slog.Logger
	started time.Time
	// answered says that the answer has begun.
	answered bool
}

// readBody reads the body within its limits. What it holds in memory is given
// back by release.
func (x *exchange) readBody() (body []byte, release func(), err error) {
	limits := x.server.limits
	if x.r.ContentLength > limits.RequestBytes {
		return nil, nil, tooLarge(limits.RequestBytes)
	}
	return readLimited(x.r.Body, limits.RequestBytes, x.server.requestMemory, 0)
}

func tooLarge(limit int64) error {
	return fault.New(fault.TooLarge, "the request has more than %d bytes, which is the limit of this node; send it in parts", limit)
}

func (x *exchange) refuseBody(err error) {
	var timeout net.Error
	switch {
	case errors.Is(err, fault.TooLarge):
		// Close: what else the client sends is not read.
		x.w.Header().Set("Connection", "close")
		x.refuse(http.StatusRequestEntityTooLarge, "request_bytes", err)
	case errors.Is(err, fault.Unavailable):
		x.w.Header().Set("Connection", "close")
		x.refuse(http.StatusServiceUnavailable, "request_memory", err)
	case errors.As(err, &timeout) && timeout.Timeout():
		x.w.Header().Set("Connection", "close")
		x.refuse(http.StatusRequestTimeout, "read_time", fault.New(fault.Timeout, "the request did not arrive within %s", x.server.limits.ReadTime))
	default:
		// The client is gone, or speaks no HTTP.
		x.w.Header().Set("Connection", "close")
		x.refuse(http.StatusBadRequest, "broken", fault.New(fault.Cancelled, "the request ended before its end"))
	}
}

// run parses the request, runs it and answers.
func (x *exchange) run(ctx context.Context, signedIn session.Caller, body []byte) {
	decoded, err := x.server.awaitDecoding(ctx, len(body))
	if err != nil {
		x.refuse(http.StatusServiceUnavailable, "draining", errShuttingDown)
		return
	}
	request, err := x.decodeBody(body)
	decoded()
	if err != nil {
		x.refuse(http.StatusBadRequest, "syntax", err)
		return
	}
	held := max(0, int64(request.footprint())-smallRequestBytes)
	if !x.server.requestMemory.TryAcquire(held) {
		x.refuseBody(errRequestMemory)
		return
	}
	defer x.server.requestMemory.Release(held)
	ctx, end, err := x.server.begin(ctx, "http", request.headers)
	if err != nil {
		x.refuse(http.StatusBadRequest, "syntax", err)
		return
	}
	defer end()
	script, err := lang.Parse(request.sql)
	if err != nil {
		x.refuse(http.StatusBadRequest, "syntax", err)
		return
	}
	if err := x.server.checkStatements(script); err != nil {
		x.refuse(http.StatusRequestEntityTooLarge, "statements", err)
		return
	}
	namespace, database := namesInUse(x.r)
	caller, err := x.server.newSession(ctx, signedIn, namespace, database)
	if err != nil {
		x.refuse(statusOf(err), "names", err)
		return
	}
	defer caller.Close()
	answers := x.server.runScript(ctx, caller, script, request.params, x.format)
	x.answer(http.StatusOK, answers)
}

// decodeBody takes the request out of the body: JSON or CBOR where the content
// type says so, the text of a script otherwise. Where it has no headers of its
// own, the trace context of the HTTP request is its headers.
func (x *exchange) decodeBody(body []byte) (request, error) {
	media, _, _ := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	var decoded value.Value
	var err error
	switch media {
	case mediaJSON:
		decoded, err = decode(formatJSON, body)
	case mediaCBOR:
		decoded, err = decode(formatCBOR, body)
	default:
		if !utf8.Valid(body) {
			return request{}, fault.New(fault.Syntax, "the statements are not valid UTF-8")
		}
		return request{sql: string(body), headers: traceHeaders(x.r)}, nil
	}
	if err != nil {
		return request{}, err
	}
	r := requestOf(decoded)
	if r.refused == nil && !r.follow.IsNone() {
		r.refused = fault.New(fault.Syntax, "follow is a WebSocket's; here a request has sql and params")
	}
	if r.headers == nil {
		r.headers = traceHeaders(x.r)
	}
	return r, r.refused
}

// checkStatements refuses a script of too many statements.
func (s *Server) checkStatements(script *lang.Script) error {
	if n := len(script.Statements); n > s.limits.Statements {
		return fault.New(fault.TooLarge, "the request holds %d statements, and %d are the limit of this node; send it in parts, none of it ran", n, s.limits.Statements)
	}
	return nil
}

// runScript runs a script and writes the answers as they are known.
func (s *Server) runScript(ctx context.Context, caller *session.Session, script *lang.Script, params map[string]value.Value, f format) *list {
	answers := &list{format: f}
	caller.RunScript(ctx, script, params, func(statement lang.Statement, answer session.Answer) {
		s.metrics.count(script, statement, answer)
		before := len(answers.elements)
		answers.next()
		answers.elements = appendAnswer(f, answers.elements, answer)
		if int64(len(answers.elements)) > s.limits.AnswerBytes+answerSlack {
			answers.elements = answers.elements[:before]
			answers.count--
			answers.next()
			answers.elements = appendAnswer(f, answers.elements, session.FailedAnswer(fault.New(fault.TooLarge,
				"the statement ran, but the answers of this request take more than %d bytes, which is the limit of this node; ask for less in one request", s.limits.AnswerBytes)))
		}
	})
	return answers
}

// answerSlack is how much larger than a statement's answer may be what a
// request answers: one answer at its limit fits, written as JSON, with the
// refusals of those after it.
const answerSlack = 16 << 20

// refuse answers a request of which nothing ran.
func (x *exchange) refuse(status int, why string, err error) {
	x.server.metrics.refused(why)
	x.log.Debug("a request is refused", slog.Int("status", status), slog.Any("reason", err))
	answers := &list{format: x.format}
	answers.next()
	answers.elements = appendAnswer(x.format, nil, session.FailedAnswer(err))
	header := x.w.Header()
	switch status {
	case http.StatusUnauthorized:
		// Not Basic, for which a browser would ask the user itself.
		header.Set("WWW-Authenticate", `Bearer realm="tidemark"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if header.Get("Retry-After") == "" {
			header.Set("Retry-After", "1")
		}
	}
	x.answer(status, answers)
}

func (x *exchange) answer(status int, answers *list) {
	x.server.setWriteDeadline(x.w)
	header := x.w.Header()
	header.Set("Content-Type", x.format.mediaType())
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	x.answered = true
	x.w.WriteHeader(status)
	_, err := x.w.Write(answers.appendTo(make([]byte, 0, len(answers.elements)+16)))
	x.server.metrics.requested("http", time.Since(x.started))
	x.log.Debug("a request is answered", slog.Int("status", status), slog.Int("answers", answers.count),
		slog.Duration("took", time.Since(x.started)), slog.Any("error", err))
}

// setWriteDeadline gives the client WriteTime to take what is written next.
func (s *Server) setWriteDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.WriteTime))
}

// inWriteTime serves requests that are answered at once. Handlers of those that
// take longer set the deadline again, when they answer.
func (s *Server) inWriteTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.setWriteDeadline(w)
		next.ServeHTTP(w, r)
	})
}

// recover answers a request whose statement broke, and keeps the node running.
func (x *exchange) recover() {
	broken := recover()
	if broken == nil {
		return
	}
	x.server.broke(x.log, broken)
	if !x.answered {
		x.refuse(http.StatusInternalServerError, "internal", fault.Internal)
	}
}

// broke logs what only a mistake of ours explains.
func (s *Server) broke(log *slog.Logger, broken any) {
	s.metrics.refused("internal")
	log.Error("a request broke inside", slog.Any("panic", broken), slog.String("stack", string(debug.Stack())))
}

// statusOf is the status of a request that could not begin.
func statusOf(err error) int {
	switch {
	case errors.As(err, new(tooMany)):
		return http.StatusTooManyRequests
	case errors.Is(err, fault.NotFound):
		return http.StatusNotFound
	case errors.Is(err, fault.NotSignedIn):
		return http.StatusUnauthorized
	case errors.Is(err, fault.NotAllowed):
		return http.StatusForbidden
	case errors.Is(err, fault.InvalidClause), errors.Is(err, fault.Syntax):
		return http.StatusBadRequest
	case errors.Is(err, fault.Unavailable):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// namesInUse are the namespace and the database that a request names: in its
// path, its headers or, as browsers set no headers on a WebSocket, its query.
func namesInUse(r *http.Request) (namespace, database string) {
	if r.PathValue("namespace") != "" {
		return r.PathValue("namespace"), r.PathValue("database")
	}
	namespace, database = r.Header.Get(headerNamespace), r.Header.Get(headerDatabase)
	if namespace == "" && database == "" && r.URL.RawQuery != "" {
		query := r.URL.Query()
		return query.Get("namespace"), query.Get("database")
	}
	return namespace, database
}

// acceptedFormat is CBOR where the caller prefers it, JSON otherwise.
func acceptedFormat(r *http.Request) format {
	if goautoneg.Negotiate(r.Header.Get("Accept"), []string{mediaJSON, mediaCBOR}) == mediaCBOR {
		return formatCBOR
	}
	return formatJSON
}

// requestID is the caller's name for a request, or one that is made up; the
// answer carries it, too.
func requestID(w http.ResponseWriter, r *http.Request) string {
	id := r.Header.Get(headerRequestID)
	printable := func(c rune) bool { return c > ' ' && c < 0x7f }
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, func(c rune) bool { return !printable(c) }) {
		id = uuid.NewString()
	}
	w.Header().Set(headerRequestID, id)
	return id
}

// serveHealth answers that the process runs.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "ok\n")
}

// serveReady answers whether the node takes requests: the engine can be read,
// and the node is not going away.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	ctx, done := context.WithTimeout(r.Context(), readyTime)
	defer done()
	if s.draining.Err() != nil {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	if _, err := s.store.Namespaces(ctx); err != nil {
		http.Error(w, string(fault.Of(err).Kind), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

// readyTime is how long the engine may take to be read by /ready.
const readyTime = 5 * time.Second

// checkHost refuses requests that a web page of a foreign name sends over the
// loopback interface; see Options.LocalHostsOnly.
func (s *Server) checkHost(next http.Handler) http.Handler {
	if !s.options.LocalHostsOnly {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocalName(r.Host) && !s.hasOwner(r.Context()) {
			s.metrics.refused("host")
			http.Error(w, "this node is for this machine alone: call it as localhost or by address, or start it with --allow-anonymous", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocalName reports whether a Host header names an address or localhost,
// neither of which a stranger can make point elsewhere.
func isLocalName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return strings.EqualFold(name, "localhost")
}
