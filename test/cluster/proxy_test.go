package cluster

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy passes TCP connections on to a PostgreSQL, as far as it is told to, and
// counts what PostgreSQL is asked.
type proxy struct {
	listener net.Listener
	target   string
	// statements counts the statements that were sent to be run.
	statements atomic.Int64

	mu sync.Mutex
	// The following are protected by mu.

	// most is after how many statements it cuts by itself; 0 is never.
	most int64

	connections map[net.Conn]struct{}
	// refusing turns new connections away.
	refusing bool
	// frozen is closed when what was sent goes on; nil where nothing is held.
	frozen chan struct{}
}

func newProxy(t testing.TB, port int) *proxy {
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
		p.heal()
		serving.Wait()
	})
	return p
}

// address is where the proxy listens.
func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) url() string {
	return "postgres://postgres@" + p.address() + "/postgres?sslmode=disable"
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !p.admit(client, server) {
		return
	}
	asked := &statementCounter{into: &p.statements}
	var passing sync.WaitGroup
	passing.Go(func() { p.pass(client, server, asked) })
	passing.Go(func() { p.pass(server, client, io.Discard) })
	passing.Wait()
}

func (p *proxy) admit(connections ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range connections {
		p.connections[conn] = struct{}{}
	}
	return !p.refusing
}

func (p *proxy) pass(from, to net.Conn, tell io.Writer) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		_, _ = tell.Write(buffer[:n]) // It only counts.
		p.mu.Lock()
		frozen := p.frozen
		if p.most > 0 && p.statements.Load() > p.most {
			p.cutLocked()
		}
		p.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// cut ends all connections and turns new ones away until heal.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// cutAfter cuts as soon as so many more statements were sent.
func (p *proxy) cutAfter(statements int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = p.statements.Load() + statements
}

// cutLocked is called with mu held.
func (p *proxy) cutLocked() {
	p.most = 0
	p.refusing = true
	for conn := range p.connections {
		_ = conn.Close()
	}
	p.connections = map[net.Conn]struct{}{}
}

// freeze holds what is sent in either direction until heal, as a network does
// that loses all packets for a while.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// heal lets everything pass again.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing, p.most = false, 0
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// statementCounter reads what a client sends in PostgreSQL's protocol, and
// counts the messages Query and Execute. A message is a byte that says what it
// is and its length, with itself, in four; the first has no such byte.
type statementCounter struct {
	into    *atomic.Int64
	started bool
	head    []byte
	skip    int
}

func (c *statementCounter) Write(sent []byte) (int, error) {
	for rest := sent; len(rest) > 0; {
		if c.skip > 0 {
			n := min(c.skip, len(rest))
			c.skip, rest = c.skip-n, rest[n:]
			continue
		}
		c.head, rest = append(c.head, rest[0]), rest[1:]
		lengthAt := 1
		if !c.started {
			lengthAt = 0
		}
		if len(c.head) < lengthAt+4 {
			continue
		}
		c.skip = int(binary.BigEndian.Uint32(c.head[lengthAt:])) - 4
		if c.started && (c.head[0] == 'Q' || c.head[0] == 'E') {
			c.into.Add(1)
		}
		c.started, c.head = true, c.head[:0]
	}
	return len(sent), nil
}
