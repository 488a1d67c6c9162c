// Package node starts the real binary and uses it as its users do: over HTTP,
// over WebSockets, with signals, and by killing it.
package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/value"
)

func TestMain(m *testing.M) { postgrestest.Main(m, nodetest.Remove) }

// soon is how long something may take that a node does by itself.
const soon = 20 * time.Second

// process is a node that runs.
type process struct{ *nodetest.Node }

// start starts a node on a free port and waits until it listens.
func start(t *testing.T, arguments ...string) *process {
	t.Helper()
	return &process{nodetest.Serve(t, arguments...)}
}

// prepare defines shop/orders and a topic in it.
func (p *process) prepare() {
	p.Helper()
	p.Must(`DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE orders; USE DATABASE orders; DEFINE TOPIC events`)
}

// dial opens a session in shop/orders, which ends with the test.
func (p *process) dial() *client.Session {
	p.Helper()
	s, err := client.Dial(p.Context(), p.URL, client.Options{Namespace: "shop", Database: "orders"})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = s.Close() })
	return s
}

// sleep is a statement that runs for long, once the node runs it.
func (p *process) sleep() *client.Call {
	p.Helper()
	call := p.dial().Start("SLEEP 0s; SLEEP 50s", nil)
	nodetest.Eventually(p, soon, func() bool {
		return strings.Contains(get(p, p.URL+"/metrics"), `tidemark_statements_total{outcome="ok",statement="SLEEP"} 1`)
	}, "the first of two statements is answered")
	return call
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
		appenders[i], connected[i] = &appender{}, p.dial()
	}
	var all sync.WaitGroup
	for i, s := range connected {
		all.Go(func() { appenders[i].run(s, int64(i), acknowledged) })
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
	s := p.dial()
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
		p.Signal(syscall.SIGTERM)
	}()
	appenders := appendUntilEnd(t, p, 8, enough.count)
	for i, a := range appenders {
		if !strings.Contains(a.ended.Error(), "shutting down") {
			t.Errorf("appender %d is told %v", i, a.ended)
		}
	}
	if status := p.Wait(); status != 0 {
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
			p.Kill()
		}()
		appenders := appendUntilEnd(t, p, 8, enough.count)
		p.Wait()
		again := start(t, "--data", folder)
		checkAcknowledged(t, again, appenders)
		again.Kill()
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
	p.sleep()
	p.Signal(os.Interrupt)
	select {
	case <-p.Exited():
		t.Fatal("the first interrupt does not wait for what runs")
	case <-time.After(300 * time.Millisecond):
	}
	p.Signal(os.Interrupt)
	select {
	case <-p.Exited():
	case <-time.After(5 * time.Second): // Of the 60 that the first has.
		t.Fatal("the second interrupt does not end it")
	}
	if status := p.Wait(); status != 130 {
		t.Errorf("it exits with %d", status)
	}
}

func TestAShutdownIsBounded(t *testing.T) {
	p := start(t, "--shutdown-time", "300ms")
	p.prepare()
	call := p.sleep()
	p.Signal(os.Interrupt)
	if status := p.Wait(); status != 1 {
		t.Errorf("the node exits with %d although it gave something up", status)
	}
	if _, err := call.Wait(t.Context()); err == nil {
		t.Error("the client is not told")
	}
}
