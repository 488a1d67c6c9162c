// Package server is the node as its callers see it: statements over HTTP (POST
// /sql) and over a WebSocket (/ws), what an orchestrator asks (/health,
// /ready) and what a monitor reads (/metrics). It knows what a session is and
// nothing of how a statement runs.
//
// Four ideas:
//
//   - A request over HTTP is a session of its own. A WebSocket is one session
//     that lives as long as the connection: its requests run in the order in
//     which they came and are answered in that order.
//   - Whoever sends many requests before reading the answers pays for batches
//     and not for messages: appends that follow one another share a commit,
//     and answers that are ready share a frame.
//   - Every caller has a window: of requests that were received and not run, of
//     answers that were not taken, of messages it gave credit for. A window
//     that is full stops that caller and nobody else.
//   - Everything is bounded by Limits, and what is over one is told which.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// Options are a server's settings.
type Options struct {
	// Store is what statements run on. The server does not close it.
	Store *store.Store
	// Running tells what runs on this node; nil where nothing does.
	Running session.Running
	// Modules serves what is under /ftl, to owners of the store: the runners of
	// modules, and what deploys them; nil where nothing does.
	Modules http.Handler
	// Limits bound what callers may take; their zero fields are the defaults.
	Limits Limits
	// Origins are the web origins, as https://app.example.com, whose pages may
	// call the node from a browser. Default: only pages of the node's own.
	Origins []string
	// LocalHostsOnly refuses requests over the loopback interface that name
	// another host than localhost or an address. It keeps web pages whose name
	// was made to point at this machine away from a store that everybody on
	// the machine may use.
	LocalHostsOnly bool
	// TLS makes the node speak TLS only; nil for none.
	TLS *tls.Config
	// Registry is where the metrics are registered. Default: one of the
	// server's own, which /metrics shows.
	Registry *prometheus.Registry
	// RequireSignIn refuses those who have not signed in also while the store
	// has no owner, but for what its PUBLIC topics take.
	RequireSignIn bool
	// TokenTime is how long a token of /signin is good for. Default:
	// DefaultTokenTime.
	TokenTime time.Duration
	// Collectors are registered beside the server's own metrics and the
	// store's.
	Collectors []prometheus.Collector
	// Tracer makes a span of every request; nil for none.
	Tracer trace.Tracer
	// Log receives what an operator must know. Default: slog.Default().
	Log *slog.Logger
}

// Server serves a store. It is safe for concurrent use.
type Server struct {
	options Options
	limits  Limits
	log     *slog.Logger
	tracer  trace.Tracer
	store   *store.Store
	metrics *metrics
	gate    *gate
	waiting *session.Waiting
	signIn  *signIn
	// requestMemory is what requests that are held in memory may take together.
	requestMemory *semaphore.Weighted
	// unsent is about how many bytes the answers take that are not sent.
	unsent atomic.Int64
	// decoding is how many bytes of large requests are decoded at once.
	decoding *semaphore.Weighted
	http     *http.Server

	// draining is cancelled when no new request is taken any more, running when
	// what still runs is given up.
	draining, running context.Context
	drain, giveUp     context.CancelFunc

	// backingUp is held while a backup is taken.
	backingUp sync.Mutex

	// connections are the WebSocket sessions, which http.Server forgets.
	connections sync.WaitGroup
	mu          sync.Mutex
	// open is protected by mu.
	open map[*connection]struct{}
}

// New makes a server of a store. It serves nothing before Serve, or before its
// Handler is served by somebody else.
func New(options Options) (*Server, error) {
	s := &Server{
		options: options,
		limits:  options.Limits.withDefaults(),
		log:     options.Log,
		tracer:  options.Tracer,
		store:   options.Store,
		open:    map[*connection]struct{}{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if options.Registry == nil {
		s.options.Registry = prometheus.NewRegistry()
	}
	s.gate = newGate(s.limits)
	s.waiting = session.NewWaiting(s.limits.WaitingReads)
	s.signIn = newSignIn(s.store, options.TokenTime)
	s.decoding = semaphore.NewWeighted(decodingBytes)
	s.requestMemory = semaphore.NewWeighted(s.limits.RequestMemoryBytes)
	s.draining, s.drain = context.WithCancel(context.Background())
	s.running, s.giveUp = context.WithCancel(context.Background())
	s.metrics = newMetrics(s)
	handler, err := s.handler()
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.limits.ReadTime,
		IdleTimeout:       s.limits.IdleTime,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// maxHeaderBytes bounds a request's headers, of which none is long.
const maxHeaderBytes = 32 << 10

// Handler serves the node's paths. Shutdown ends what it serves.
func (s *Server) Handler() http.Handler { return s.http.Handler }

func (s *Server) handler() (http.Handler, error) {
	origins := http.NewCrossOriginProtection()
	for _, origin := range s.options.Origins {
		if err := origins.AddTrustedOrigin(origin); err != nil {
			return nil, fault.New(fault.InvalidClause, "the origin %q cannot be trusted: %w", origin, err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sql", s.serveSQL)
	mux.HandleFunc("POST /sql/{namespace}/{database}", s.serveSQL)
	mux.HandleFunc("GET /ws", s.serveWebSocket)
	mux.HandleFunc("GET /backup", s.serveBackup)
	mux.HandleFunc("GET /export/{namespace}/{database}", s.serveExport)
	mux.HandleFunc("GET /health", s.serveHealth)
	mux.HandleFunc("GET /ready", s.serveReady)
	mux.HandleFunc("POST /signin", s.serveSignIn)
	mux.Handle("GET /metrics", s.viewersOnly(s.metrics.handler()))
	if s.options.Modules != nil {
		mux.HandleFunc("/ftl", s.serveModules)
		mux.HandleFunc("/ftl/", s.serveModules)
	}
	return s.inWriteTime(s.inReadTime(s.checkHost(origins.Handler(mux)))), nil
}

// Serve accepts connections until Shutdown, and then returns nil.
func (s *Server) Serve(listener net.Listener) error {
	gated := s.gate.listen(listener)
	if s.options.TLS != nil {
		// A WebSocket begins as HTTP/1.1.
		config := s.options.TLS.Clone()
		config.NextProtos = []string{"http/1.1"}
		gated = tls.NewListener(gated, config)
	}
	err := s.http.Serve(gated)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown ends the server: it takes no new connection and no new request,
// ends what only waits, lets what runs finish and its answers be sent, rolls
// back the transactions that are open, and tells every session that the node
// goes away. When ctx ends it gives up what still runs, and returns ctx's
// error.
//
// What was acknowledged before stays; what a session is not told of is either
// committed whole or not at all.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain()
	s.waiting.Stop()
	s.mu.Lock()
	for c := range s.open {
		c.drain()
	}
	s.mu.Unlock()
	defer s.giveUp()
	stopped := context.AfterFunc(ctx, s.giveUp)
	defer stopped()
	err := s.http.Shutdown(ctx)
	ended := make(chan struct{})
	go func() {
		s.connections.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		if err == nil {
			err = ctx.Err()
		}
		_ = s.http.Close()
		// What was given up ends soon: its connection is gone, its context over.
		select {
		case <-ended:
		case <-time.After(givenUpTime):
		}
	}
	return err
}

// givenUpTime is how long what was given up at shutdown may take to notice.
const givenUpTime = 2 * time.Second

// errShuttingDown is the refusal of a node that goes away.
var errShuttingDown = fault.New(fault.Unavailable, "the node is shutting down; send the request to another, or again when it is back")

// newSession starts a session in the namespace and database that a caller
// names; both, the database alone or none may be left out.
func (s *Server) newSession(ctx context.Context, caller session.Caller, namespace, database string) (*session.Session, error) {
	return session.NewIn(ctx, s.store, namespace, database, session.Options{
		Caller:  caller,
		Running: s.options.Running,
		PassOn:  true,
		Limits: session.Limits{
			StatementTime: s.limits.StatementTime,
			AnswerRows:    s.limits.AnswerRows,
			AnswerBytes:   int(s.limits.AnswerBytes),
			Waiting:       s.waiting,
		},
	})
}
