// Package node starts the real binary and uses it as its users do: over HTTP,
// over WebSockets, with signals, and by killing it.
package node

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/value"
)

// binary is the path of the binary, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tidemark-node-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "tidemark")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/tidemark")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "the binary does not build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// process is a node that runs.
type process struct {
	*testing.T
	command *exec.Cmd
	// url is where it listens, as http://127.0.0.1:port.
	url    string
	log    *safeBuffer
	exited chan struct{}
	err    error
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

// start starts a node on a free port and waits until it listens.
func start(t *testing.T, arguments ...string) *process {
	t.Helper()
	p := &process{T: t, log: &safeBuffer{}, exited: make(chan struct{})}
	p.command = exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, arguments...)...)
	p.command.Stderr = p.log
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the node's log:\n%s", p.log)
		}
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	_, url, listens := strings.Cut(strings.TrimSpace(line), "tidemark listens on ")
	if err != nil || !listens {
		t.Fatalf("the node says %q %v\n%s", line, err, p.log)
	}
	p.url = url
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		p.err = p.command.Wait()
		close(p.exited)
	}()
	return p
}

func (p *process) signal(s os.Signal) {
	p.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// wait waits until the node has exited, and returns its status.
func (p *process) wait() int {
	p.Helper()
	select {
	case <-p.exited:
		return p.command.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		p.Fatal("the node does not exit")
		return 0
	}
}

func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.exited
}

// prepare defines shop/orders and a topic in it.
func (p *process) prepare() {
	p.Helper()
	response, err := http.Post(p.url+"/sql", "text/plain", strings.NewReader(
		`DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE orders; USE DATABASE orders; DEFINE TOPIC events`))
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK || strings.Contains(string(body), `"ok":false`) {
		p.Fatalf("%d %s", response.StatusCode, body)
	}
}

func (p *process) dial() (*client.Session, error) {
	return client.Dial(context.Background(), p.url, client.Options{Namespace: "shop", Database: "orders"})
}

// tidemark runs the binary and returns what it prints and its status.
func tidemark(t *testing.T, input string, arguments ...string) (out, errors string, status int) {
	t.Helper()
	command := exec.Command(binary, arguments...)
	command.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), command.ProcessState.ExitCode()
}

// appender appends until its session ends, and counts what was acknowledged.
type appender struct {
	acknowledged int64
	ended        error
}

// appendUntilEnd appends numbered messages, many at once, from several
// sessions, until each has ended. acknowledged is told of every acknowledgement.
func appendUntilEnd(t *testing.T, p *process, sessions int, acknowledged func()) []*appender {
	t.Helper()
	// All are connected before the first appends: the node may be ended by
	// what one of them has acknowledged.
	appenders, connected := make([]*appender, sessions), make([]*client.Session, sessions)
	for i := range appenders {
		s, err := p.dial()
		if err != nil {
			t.Fatal(err)
		}
		appenders[i], connected[i] = &appender{}, s
	}
	var all sync.WaitGroup
	for i, s := range connected {
		all.Go(func() {
			defer func() { _ = s.Close() }()
			appenders[i].run(s, int64(i), acknowledged)
		})
	}
	all.Wait()
	return appenders
}

func (a *appender) run(s *client.Session, who int64, acknowledged func()) {
	for {
		var calls []*client.Call
		for n := range int64(40) {
			calls = append(calls, s.Start("CREATE events = $v", map[string]value.Value{
				"v": value.Fields(value.Object{"who": value.Int(who), "n": value.Int(a.acknowledged + n + 1)}),
			}))
		}
		for _, call := range calls {
			answers, err := call.Wait(context.Background())
			if err == nil && answers[0].Err != nil {
				err = answers[0].Err
			}
			if err != nil {
				a.ended = err
				return
			}
			a.acknowledged++
			acknowledged()
		}
	}
}

// checkAcknowledged reads the whole topic and holds that everything that was
// acknowledged is there, in each appender's order, at dense positions.
func checkAcknowledged(t *testing.T, p *process, appenders []*appender) {
	t.Helper()
	s, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	seen := make([]int64, len(appenders))
	after := int64(0)
	for {
		answers, err := s.Run(t.Context(), "READ FROM events AFTER $after LIMIT 10000", map[string]value.Value{"after": value.Int(after)})
		if err != nil || answers[0].Err != nil {
			t.Fatal(err, answers)
		}
		rows, _ := answers[0].Value.AsArray()
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			fields, _ := row.AsObject()
			content, _ := fields["value"].AsObject()
			who, _ := content["who"].AsInt()
			n, _ := content["n"].AsInt()
			position, _ := fields["position"].AsInt()
			if position != after+1 || n != seen[who]+1 {
				t.Fatalf("position %d holds message %d of appender %d, after position %d and message %d", position, n, who, after, seen[who])
			}
			after, seen[who] = position, n
		}
	}
	for i, a := range appenders {
		if seen[i] < a.acknowledged {
			t.Errorf("appender %d was acknowledged %d messages, and %d are there", i, a.acknowledged, seen[i])
		}
	}
	t.Logf("%d messages are there", after)
}

func TestShutdownUnderLoadLosesNothingThatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "--data", dir)
	p.prepare()
	enough := after(2000)
	go func() {
		<-enough.reached
		_ = p.command.Process.Signal(syscall.SIGTERM)
	}()
	appenders := appendUntilEnd(t, p, 8, enough.count)
	for i, a := range appenders {
		if !strings.Contains(a.ended.Error(), "shutting down") {
			t.Errorf("appender %d is told %v", i, a.ended)
		}
	}
	if status := p.wait(); status != 0 {
		t.Fatalf("the node exits with %d", status)
	}
	again := start(t, "--data", dir)
	checkAcknowledged(t, again, appenders)
}

func TestKillUnderLoadLosesNothingThatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		folder := filepath.Join(dir, fmt.Sprint(round))
		p := start(t, "--data", folder)
		p.prepare()
		enough := after(500 * (round + 1))
		go func() {
			<-enough.reached
			_ = p.command.Process.Kill()
		}()
		appenders := appendUntilEnd(t, p, 8, enough.count)
		p.wait()
		again := start(t, "--data", folder)
		checkAcknowledged(t, again, appenders)
		again.kill()
	}
}

// threshold is reached after a number of counts.
type threshold struct {
	mu      sync.Mutex
	left    int // protected by mu
	reached chan struct{}
}

func after(n int) *threshold { return &threshold{left: n, reached: make(chan struct{})} }

func (t *threshold) count() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left--; t.left == 0 {
		close(t.reached)
	}
}

func TestASecondInterruptExitsAtOnce(t *testing.T) {
	p := start(t, "--shutdown-time", "60s")
	p.prepare()
	s, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	s.Start("SLEEP 50s", nil)
	time.Sleep(100 * time.Millisecond)
	p.signal(os.Interrupt)
	select {
	case <-p.exited:
		t.Fatal("the first interrupt does not wait for what runs")
	case <-time.After(300 * time.Millisecond):
	}
	p.signal(os.Interrupt)
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
		t.Fatal("the second interrupt does not end it")
	}
	if status := p.wait(); status != 130 {
		t.Errorf("it exits with %d", status)
	}
}

func TestAShutdownIsBounded(t *testing.T) {
	p := start(t, "--shutdown-time", "300ms")
	p.prepare()
	s, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	call := s.Start("SLEEP 50s", nil)
	time.Sleep(100 * time.Millisecond)
	p.signal(os.Interrupt)
	if status := p.wait(); status != 1 {
		t.Errorf("the node exits with %d although it gave something up", status)
	}
	if _, err := call.Wait(t.Context()); err == nil {
		t.Error("the client is not told")
	}
}
