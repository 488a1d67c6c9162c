package nodetest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy passes TCP connections on to an address as a network does: until it is
// cut, for as long as nothing is frozen, and without what gets lost.
type Proxy struct {
	listener net.Listener
	target   string
	watch    func() io.Writer

	// LoseRequests and LoseAnswers make what is sent in a direction vanish, on
	// connections that stay: with both, either end is alone and does not know.
	LoseRequests, LoseAnswers atomic.Bool
	// Answered counts the pieces of answers that passed or were lost.
	Answered atomic.Int64

	mu sync.Mutex
	// The following are protected by mu.
	connections map[net.Conn]struct{}
	// refusing turns new connections away.
	refusing bool
	// frozen is closed when what was sent goes on; nil where nothing is held.
	frozen chan struct{}
}

// NewProxy starts a proxy to an address. What clients send on a connection is
// written to what watch returns for it, before it passes; nil watches nothing.
func NewProxy(t testing.TB, target string, watch func() io.Writer) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if watch == nil {
		watch = func() io.Writer { return io.Discard }
	}
	p := &Proxy{listener: listener, target: target, watch: watch, connections: map[net.Conn]struct{}{}}
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
		p.Cut()
		p.thaw()
		serving.Wait()
	})
	return p
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut ends all connections and turns new ones away until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
	for conn := range p.connections {
		_ = conn.Close()
	}
	clear(p.connections)
}

// Break ends all connections and lets new ones pass everything.
func (p *Proxy) Break() {
	p.Cut()
	p.Heal()
}

// Freeze holds what is sent in either direction until Heal.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Heal lets everything pass again.
func (p *Proxy) Heal() {
	p.LoseRequests.Store(false)
	p.LoseAnswers.Store(false)
	p.thaw()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = false
}

func (p *Proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !p.admit(client, server) {
		return
	}
	var passing sync.WaitGroup
	passing.Go(func() { p.pass(client, server, &p.LoseRequests, p.watch(), new(atomic.Int64)) })
	passing.Go(func() { p.pass(server, client, &p.LoseAnswers, io.Discard, &p.Answered) })
	passing.Wait()
}

func (p *Proxy) admit(connections ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing {
		return false
	}
	for _, conn := range connections {
		p.connections[conn] = struct{}{}
	}
	return true
}

func (p *Proxy) pass(from, to net.Conn, lost *atomic.Bool, watch io.Writer, count *atomic.Int64) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		count.Add(1)
		_, _ = watch.Write(buffer[:n]) // It only looks.
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		if lost.Load() {
			n = 0
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}
