// Package modules runs modules end to end, with the real binary: nodes, ftl
// deploy and the modules' processes, which are killed at random.
package modules

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

func TestMain(m *testing.M) { postgrestest.Main(m, nodetest.Remove) }

// process is a process of the binary.
type process struct {
	*nodetest.Process
	// said is what follows a text that the process prints when it is ready.
	said string
}

// readyTime is how long a process may take that builds modules first.
const readyTime = 2 * time.Minute

// start starts the binary and waits until it prints a line that holds ready.
func start(t *testing.T, ready string, arguments ...string) *process {
	t.Helper()
	p := &process{Process: nodetest.Start(t, exec.Command(nodetest.Binary(t), arguments...))}
	t.Cleanup(func() {
		p.Stop() // And with it what it has started.
		if t.Failed() {
			t.Logf("%s printed\n%s", strings.Join(arguments, " "), tail(p.Stdout.String()))
		}
	})
	p.said = p.Await(ready, readyTime)
	return p
}

func tail(text string) string {
	const most = 6000
	return text[max(len(text)-most, 0):]
}

func (p *process) running() bool {
	select {
	case <-p.Exited():
		return false
	default:
		return true
	}
}

// children are the processes that a process has started.
func (p *process) children() []int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.PID()))
	var children []int
	for _, file := range tasks {
		text, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children
}

// freeAddress is an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// source copies the module, as a version of its own, to where it builds.
func source(t *testing.T, folder string, version int) string {
	t.Helper()
	dir := filepath.Join(folder, fmt.Sprintf("v%d", version))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ftl.toml", "ledger.go"} {
		text, err := os.ReadFile(filepath.Join("testdata/ledger", name))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte("const version = 1"), fmt.Appendf(nil, "const version = %d", version), 1)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
