// Package modules runs modules end to end, with the real binary: nodes, ftl
// deploy and the modules' processes, which are killed at random.
package modules

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

// binary is the path of the binary, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tidemark-modules-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "tidemark")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/tidemark").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("the binary does not build: %v\n%s", err, out))
	}
	removed := func() { _ = os.RemoveAll(dir) }
	defer removed()
	postgrestest.Main(m)
}

// safeBuffer is a buffer that is written and read at once.
type safeBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer // protected by mu
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// process is a process of the binary.
type process struct {
	command *exec.Cmd
	log     *safeBuffer
	exited  chan struct{}
	// said is what follows a prefix that the process prints when it is ready.
	said string
}

// start starts the binary and waits until it prints a line that holds ready.
func start(t *testing.T, ready string, arguments ...string) *process {
	t.Helper()
	p := &process{log: &safeBuffer{}, exited: make(chan struct{})}
	p.command = exec.Command(binary, arguments...)
	p.command.Stderr = p.log
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(io.TeeReader(out, p.log))
		for lines.Scan() {
			if _, after, ok := strings.Cut(lines.Text(), ready); ok {
				select {
				case said <- after:
				default:
				}
			}
		}
		_ = p.command.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.end()
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(arguments, " "), tail(p.log.String()))
		}
	})
	select {
	case p.said = <-said:
	case <-p.exited:
		t.Fatalf("tidemark %s has ended:\n%s", strings.Join(arguments, " "), p.log)
	case <-time.After(2 * time.Minute):
		t.Fatalf("tidemark %s does not become ready:\n%s", strings.Join(arguments, " "), p.log)
	}
	return p
}

func tail(text string) string {
	const most = 6000
	return text[max(len(text)-most, 0):]
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.exited
}

// end tells the process to end, and kills it where it does not.
func (p *process) end() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(40 * time.Second):
		p.kill()
	}
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// children are the processes that a process has started.
func (p *process) children() []int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.command.Process.Pid))
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
