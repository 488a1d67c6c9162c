package nodetest

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a process that a test started.
type Process struct {
	testing.TB
	// Stdout and Stderr are what the process writes on its standard output and
	// error.
	Stdout, Stderr *Log

	command *exec.Cmd
	lines   *lines
	exited  chan struct{}
}

// The bounds of a process.
const (
	// Patience is how long a process may take to say something, or to end.
	Patience = 40 * time.Second
	// pipesTime is how long those whom a process leaves behind may hold on to
	// its output.
	pipesTime = 5 * time.Second
	// unheard is how many lines are kept that nobody has heard.
	unheard = 1024
	// shownLog is how much of the log of a process is shown, in bytes.
	shownLog = 6000
)

// Start starts a command, whose output and log the process then has.
func Start(t testing.TB, command *exec.Cmd) *Process {
	t.Helper()
	p := &Process{TB: t, Stdout: &Log{}, Stderr: &Log{}, command: command, exited: make(chan struct{})}
	p.lines = &lines{log: p.Stdout, whole: make(chan string, unheard)}
	command.Stdout, command.Stderr, command.WaitDelay = p.lines, p.Stderr, pipesTime
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = command.Wait() // How it ended is in its state.
		close(p.lines.whole)
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			log := p.Stderr.String()
			t.Logf("%s logged\n%s", strings.Join(command.Args, " "), log[max(0, len(log)-shownLog):])
		}
	})
	return p
}

// Hear returns the next line that the process prints.
func (p *Process) Hear() string {
	p.Helper()
	select {
	case line, more := <-p.lines.whole:
		if !more {
			p.Fatalf("%s has ended with %v\n%s", p.command.Args[0], p.command.ProcessState, p.Stderr)
		}
		return line
	case <-time.After(Patience):
		p.Fatalf("%s says nothing\n%s", p.command.Args[0], p.Stderr)
	}
	return ""
}

// Await returns what follows a text in the first line that has it, which the
// process prints within a time: more than Patience, where it builds something.
func (p *Process) Await(text string, within time.Duration) (after string) {
	p.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case line, more := <-p.lines.whole:
			if !more {
				p.Fatalf("%s has ended with %v and did not say %q\n%s", p.command.Args[0], p.command.ProcessState, text, p.Stderr)
			}
			if _, after, ok := strings.Cut(line, text); ok {
				return after
			}
		case <-timer.C:
			p.Fatalf("%s does not say %q within %s\n%s", p.command.Args[0], text, within, p.Stderr)
		}
	}
}

// Stop tells the process to end, by SIGTERM, waits until it has, and returns its
// status.
func (p *Process) Stop() int {
	p.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Wait()
}

// PID is the process' number.
func (p *Process) PID() int { return p.command.Process.Pid }

// Signal sends a signal to a process, which may have ended.
func (p *Process) Signal(s os.Signal) { _ = p.command.Process.Signal(s) }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits until the process has ended and returns its status.
func (p *Process) Wait() int {
	p.Helper()
	select {
	case <-p.exited:
	case <-time.After(Patience):
		p.Fatalf("%s does not end", p.command.Args[0])
	}
	return p.command.ProcessState.ExitCode()
}

// Kill ends the process as a crash would, by SIGKILL, if it has not ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.exited
}

// Node is tidemark serve in a process, which is at one address for good.
type Node struct {
	*Process
	// Address is where it listens, as 127.0.0.1:7420, and URL the same with
	// http or https before it.
	Address, URL string

	arguments []string
}

// Serve starts a node on a free port and waits until it listens.
func Serve(t testing.TB, arguments ...string) *Node {
	t.Helper()
	n := &Node{arguments: arguments}
	n.serve(t, "127.0.0.1:0")
	return n
}

// Again starts a node that has ended again, as it was and where it was.
func (n *Node) Again() {
	n.Helper()
	n.serve(n.TB, n.Address)
}

// listens is what a node prints, before its URL.
const listens = "tidemark listens on "

func (n *Node) serve(t testing.TB, address string) {
	t.Helper()
	n.Process = Start(t, exec.Command(Binary(t), append([]string{"serve", "--listen", address}, n.arguments...)...))
	line := n.Hear()
	url, ok := strings.CutPrefix(line, listens)
	if !ok {
		t.Fatalf("the node says %q\n%s", line, n.Stderr)
	}
	_, address, _ = strings.Cut(url, "://")
	n.URL, n.Address = url, address
}

// Must runs statements over HTTP all of which must succeed, and returns what is
// answered.
func (n *Node) Must(statements string) string {
	n.Helper()
	response, err := http.Post(n.URL+"/sql", "text/plain", strings.NewReader(statements))
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var body bytes.Buffer
	_, err = body.ReadFrom(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || strings.Contains(body.String(), `"ok":false`) {
		n.Fatalf("%s\n%s %s %v", statements, response.Status, &body, err)
	}
	return body.String()
}

// Log is text that is written and read at once.
type Log struct {
	mu     sync.Mutex
	buffer bytes.Buffer // protected by mu
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

// lines takes what is written to it apart.
type lines struct {
	log   *Log
	whole chan string
	begun []byte
}

func (l *lines) Write(p []byte) (int, error) {
	_, _ = l.log.Write(p) // It does not fail.
	l.begun = append(l.begun, p...)
	for {
		line, rest, whole := bytes.Cut(l.begun, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.begun = rest
		select {
		case l.whole <- string(line):
		default: // Nobody listens.
		}
	}
}
