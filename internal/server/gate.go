package server

import (
	"net"
	"net/netip"
	"sync"

	"github.com/tidemarkdb/tidemark/fault"
)

// gate admits sessions and connections up to their limits, in all and of one
// address.
type gate struct {
	limits Limits

	mu sync.Mutex
	// The following are protected by mu.
	sessions, connections tally
}

// tally counts what is admitted.
type tally struct {
	all       int
	byAddress map[netip.Prefix]int
}

// spareConnections is how many connections more than sessions may be open, in
// all and of one address: those that keep alive, scrape metrics or are about to
// be refused in words.
const (
	spareConnections           = 1024
	spareConnectionsPerAddress = 256
)

func newGate(limits Limits) *gate {
	return &gate{
		limits:      limits,
		sessions:    tally{byAddress: map[netip.Prefix]int{}},
		connections: tally{byAddress: map[netip.Prefix]int{}},
	}
}

// enterSession admits a session, which leaves by the function returned, or
// refuses it with fault.Unavailable.
func (g *gate) enterSession(remote string) (leave func(), err error) {
	address := addressOf(remote)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.sessions.all >= g.limits.Sessions:
		return nil, fault.New(fault.Unavailable, "%d sessions are open on this node, which is its limit; try again later", g.limits.Sessions)
	case g.sessions.byAddress[address] >= g.limits.SessionsPerAddress:
		return nil, fault.New(fault.Unavailable, "%d sessions of the address %s are open, which is the limit for one; close some, or share one among requests", g.limits.SessionsPerAddress, address)
	}
	g.sessions.enter(address)
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.sessions.leave(address)
	}), nil
}

func (t *tally) enter(address netip.Prefix) {
	t.all++
	t.byAddress[address]++
}

func (t *tally) leave(address netip.Prefix) {
	t.all--
	if t.byAddress[address]--; t.byAddress[address] == 0 {
		delete(t.byAddress, address)
	}
}

// sessionCount is how many sessions are open.
func (g *gate) sessionCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sessions.all
}

// addressOf is what counts as one caller: an IPv4 address, or an IPv6 network
// of 64 bits, which is what one customer is given.
func addressOf(remote string) netip.Prefix {
	port, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // What has no address, as a pipe in tests, is one caller.
	}
	address := port.Addr().Unmap()
	bits := 64
	if address.Is4() {
		bits = 32
	}
	prefix, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// listen closes connections past the limits as they come, before they have said
// anything.
func (g *gate) listen(listener net.Listener) net.Listener { return &gatedListener{listener, g} }

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressOf(conn.RemoteAddr().String())
		if l.gate.enterConnection(address) {
			return &gatedConn{Conn: conn, leave: sync.OnceFunc(func() { l.gate.leaveConnection(address) })}, nil
		}
		_ = conn.Close()
	}
}

func (g *gate) enterConnection(address netip.Prefix) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.connections.all >= g.limits.Sessions+spareConnections ||
		g.connections.byAddress[address] >= g.limits.SessionsPerAddress+spareConnectionsPerAddress {
		return false
	}
	g.connections.enter(address)
	return true
}

func (g *gate) leaveConnection(address netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.connections.leave(address)
}

type gatedConn struct {
	net.Conn
	leave func()
}

func (c *gatedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
