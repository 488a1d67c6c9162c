package server

import (
	"net/http"
	"time"

	"github.com/tidemarkdb/tidemark/internal/session"
)

// serveModules serves the runners of modules, and what deploys them and looks
// after them, to owners of the store: a runner is called with what every module
// of its database is.
func (s *Server) serveModules(w http.ResponseWriter, r *http.Request) {
	x := s.newExchange(w, r)
	if s.draining.Err() != nil {
		x.refuse(http.StatusServiceUnavailable, "draining", errShuttingDown)
		return
	}
	if err := s.check(r, (*session.Session).CheckOwner); err != nil {
		x.refuseCaller(err)
		return
	}
	leave, err := s.gate.enterSession(r.RemoteAddr)
	if err != nil {
		x.refuse(http.StatusTooManyRequests, "sessions", err)
		return
	}
	defer leave()
	// It knows no limits of the server's, and works before it answers.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.StatementTime + s.limits.WriteTime))
	s.options.Modules.ServeHTTP(w, r)
}
