package postgres_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy passes TCP connections on to PostgreSQL, as far as it is told to.
type proxy struct {
	listener net.Listener
	target   string

	// dropRequests and dropAnswers make what is sent in a direction vanish.
	dropRequests, dropAnswers atomic.Bool
	// refusing turns new connections away.
	refusing atomic.Bool
	// answered counts the pieces of answers that passed or vanished.
	answered atomic.Int64

	mu sync.Mutex
	// connections is protected by mu.
	connections map[net.Conn]struct{}
}

func newProxy(t *testing.T, port int) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: fmt.Sprintf("127.0.0.1:%d", port), connections: map[net.Conn]struct{}{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		serving.Wait()
	})
	return p
}

// url is how to connect to the database through the proxy.
func (p *proxy) url() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres", p.listener.Addr())
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	if p.refusing.Load() {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	p.mu.Lock()
	p.connections[client] = struct{}{}
	p.connections[server] = struct{}{}
	p.mu.Unlock()
	var passing sync.WaitGroup
	passing.Go(func() { p.pass(client, server, &p.dropRequests, new(atomic.Int64)) })
	passing.Go(func() { p.pass(server, client, &p.dropAnswers, &p.answered) })
	passing.Wait()
}

func (p *proxy) pass(from, to net.Conn, drop *atomic.Bool, passed *atomic.Int64) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		passed.Add(1)
		if !drop.Load() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut closes all connections, and lets new ones pass everything.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.connections {
		_ = conn.(io.Closer).Close()
	}
	p.connections = map[net.Conn]struct{}{}
	p.dropRequests.Store(false)
	p.dropAnswers.Store(false)
}
