package cluster

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

// proxy is a way to a PostgreSQL, which counts what that is asked.
type proxy struct {
	*nodetest.Proxy
	// statements counts the statements that were sent to be run.
	statements atomic.Int64

	mu sync.Mutex
	// most is after how many statements it cuts by itself; 0 is never. It is
	// protected by mu, which is held until it has cut: heal comes before or
	// after, and not in the middle.
	most int64
}

func newProxy(t testing.TB, port int) *proxy {
	t.Helper()
	p := &proxy{}
	p.Proxy = nodetest.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", port), func() io.Writer { return &statementCounter{proxy: p} })
	return p
}

func (p *proxy) url() string {
	return "postgres://postgres@" + p.Address() + "/postgres?sslmode=disable"
}

// cutAfter cuts as soon as so many more statements were sent.
func (p *proxy) cutAfter(statements int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = p.statements.Load() + statements
}

// heal lets everything pass again.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = 0
	p.Heal()
}

// sent counts a statement.
func (p *proxy) sent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.statements.Add(1); p.most > 0 && n > p.most {
		p.most = 0
		p.Cut()
	}
}

// statementCounter reads what a client sends in PostgreSQL's protocol, and
// counts the messages Query and Execute. A message is a byte that says what it
// is and its length, with itself, in four; the first has no such byte.
type statementCounter struct {
	proxy   *proxy
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
			c.proxy.sent()
		}
		c.started, c.head = true, c.head[:0]
	}
	return len(sent), nil
}
