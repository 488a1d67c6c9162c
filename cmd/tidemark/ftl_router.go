package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// router serves the verbs of several modules at one address: each request goes
// to the module that declares its method and path. A module has one listener for
// all its processes, which this process holds open, so that a request waits
// while one process follows another.
type router struct {
	server *http.Server
	routes atomic.Pointer[http.ServeMux]

	mu sync.Mutex
	// The following are protected by mu.
	sockets map[string]*socket
}

// socket is where a module's processes serve its verbs.
type socket struct {
	file   *os.File
	target *url.URL
}

func newRouter() *router {
	r := &router{sockets: map[string]*socket{}}
	r.routes.Store(http.NewServeMux())
	r.server = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.routes.Load().ServeHTTP(w, q) }),
		ReadHeaderTimeout: routerHeaderTime,
	}
	return r
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

// serve makes the routes those of modules. It refuses two modules that serve the
// same request.
func (r *router) serve(modules []*schema.Module) error {
	routes := http.NewServeMux()
	type served struct {
		name    string
		ingress *schema.Ingress
	}
	var all []served
	for _, module := range modules {
		for _, verb := range module.Verbs {
			if verb.Ingress == nil {
				continue
			}
			one := served{module.Name + "." + verb.Name, verb.Ingress}
			for _, other := range all {
				if other.ingress.Overlaps(one.ingress) {
					return fmt.Errorf("%s serves %s and %s serves %s, which the same request fits; give one another path", other.name, other.ingress, one.name, one.ingress)
				}
			}
			all = append(all, one)
			if _, err := r.socketOf(module.Name); err != nil {
				return err
			}
			routes.Handle(verb.Ingress.String(), r.proxyTo(module.Name))
		}
	}
	r.routes.Store(routes)
	return nil
}

func (r *router) proxyTo(module string) http.Handler {
	r.mu.Lock()
	target := r.sockets[module].target
	r.mu.Unlock()
	return &httputil.ReverseProxy{
		Rewrite: func(q *httputil.ProxyRequest) {
			q.SetURL(target)
			q.SetXForwarded()
			q.Out.Host = q.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("module %s does not answer: %s", module, err), http.StatusBadGateway)
		},
	}
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
