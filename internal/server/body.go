package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// leftoverTime is how long a body may go on arriving that nobody waits for any
// more: net/http reads what a handler left of it before it answers.
const leftoverTime = time.Second

// inReadTime serves requests whose bodies must arrive within ReadTime, also where
// they are refused without a look at the body. A node that shuts down does not
// wait for them.
func (s *Server) inReadTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		body := &punctualBody{ReadCloser: r.Body, connection: http.NewResponseController(w)}
		body.within(s.limits.ReadTime)
		stop := context.AfterFunc(s.draining, func() { body.within(leftoverTime) })
		r.Body = body
		next.ServeHTTP(w, r)
		stop()
		body.within(leftoverTime)
	})
}

// punctualBody is a request's body that must have arrived at a time. When it has,
// the connection is read on without one, to notice that the caller is gone; after
// a failure the deadline stays, for the rest of the body.
type punctualBody struct {
	io.ReadCloser
	connection *http.ResponseController

	mu sync.Mutex
	// arrived is protected by mu.
	arrived bool
}

func (b *punctualBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.arrived = true
		_ = b.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// within has what is left of the body arrive within a time from now.
func (b *punctualBody) within(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.arrived {
		_ = b.connection.SetReadDeadline(time.Now().Add(d))
	}
}
