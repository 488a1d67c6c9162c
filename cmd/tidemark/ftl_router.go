package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/deploy"
)

// router serves the verbs of several modules at one address: each request goes
// to the module that declares its method and path. A module has one listener for
// all its processes, which this process holds open, so that a request waits
// while one process follows another.
type router struct {
	server *http.Server
	// routes are nil before there is a build.
	routes atomic.Pointer[http.ServeMux]

	mu sync.Mutex
	// The following are protected by mu.
	sockets map[string]*socket
}

// socket is where a module's processes serve its verbs.
type socket struct {
	file   *os.File
	target *url.URL
	// served says that a process has begun to take requests.
	served atomic.Bool
}

func newRouter() *router {
	r := &router{sockets: map[string]*socket{}}
	r.server = &http.Server{Handler: http.HandlerFunc(r.route), ReadHeaderTimeout: routerHeaderTime}
	return r
}

// route has a request served, once there is a build.
func (r *router) route(w http.ResponseWriter, q *http.Request) {
	routes := r.routes.Load()
	if routes == nil {
		refuseEarly(w, "the modules are being built for the first time; try again when tidemark says that they listen")
		return
	}
	routes.ServeHTTP(w, q)
}

// refuseEarly answers a request that comes before a module serves.
func refuseEarly(w http.ResponseWriter, message string) {
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, message)
}

// refuse answers as a module does whose store cannot be reached.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]deploy.ErrorAnswer{"error": {Kind: string(fault.Unavailable), Message: message}})
}

// routerHeaderTime is how long a client may take to send the head of a request.
const routerHeaderTime = 10 * time.Second

// socketOf is the listener of a module, for its processes.
func (r *router) socketOf(module string) (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sockets[module]; s != nil {
		return s.file, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer func() { _ = listener.Close() }() // The file holds it open.
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	r.sockets[module] = &socket{file: file, target: &url.URL{Scheme: "http", Host: listener.Addr().String()}}
	return file, nil
}

// serve makes the routes those of modules, which were extracted together: no two
// of them serve one request.
func (r *router) serve(modules []*schema.Module) error {
	routes := http.NewServeMux()
	for _, module := range modules {
		for _, verb := range module.Verbs {
			if verb.Ingress == nil {
				continue
			}
			if _, err := r.socketOf(module.Name); err != nil {
				return err
			}
			routes.Handle(verb.Ingress.String(), r.proxyTo(module.Name))
		}
	}
	r.routes.Store(routes)
	return nil
}

// serves notes that a process of a module takes requests.
func (r *router) serves(module string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sockets[module]; s != nil {
		s.served.Store(true)
	}
}

func (r *router) proxyTo(module string) http.Handler {
	r.mu.Lock()
	s := r.sockets[module]
	r.mu.Unlock()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(q *httputil.ProxyRequest) {
			q.SetURL(s.target)
			q.SetXForwarded()
			q.Out.Host = q.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, http.StatusBadGateway, fmt.Sprintf("module %s does not answer: %s", module, err))
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !s.served.Load() {
			refuseEarly(w, fmt.Sprintf("module %s is being started for the first time; try again when it says that it listens", module))
			return
		}
		proxy.ServeHTTP(w, q)
	})
}

// end stops serving, when what is being served has ended or ctx has.
func (r *router) end(ctx context.Context) {
	_ = r.server.Shutdown(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sockets {
		_ = s.file.Close()
	}
}
