package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// order is what a worker, the test binary run once more, is to do.
type order struct {
	// Name is what the node is called.
	Name, URL, Schema string
	// Work has the worker do random work and write its History; otherwise it
	// does what it is asked on its standard input.
	Work    bool
	History string
	Seed    uint64
}

// orderVariable holds a worker's order, as JSON.
const orderVariable = "TIDEMARK_CLUSTER_ORDER"

// obey is the worker's main.
func obey(given string) error {
	var o order
	if err := json.Unmarshal([]byte(given), &o); err != nil {
		return err
	}
	if o.Work {
		return work(o)
	}
	return serve(o)
}

// serve opens the store as a node, and answers each line of standard input by
// appending to the topic that it names: the position, or the error. It closes
// the store at the end of the input.
func serve(o order) error {
	ctx := context.Background()
	e, err := postgres.Open(ctx, postgres.Options{URL: o.URL, Schema: o.Schema})
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, e, store.Options{NodeName: o.Name})
	if err != nil {
		return err
	}
	s.SetAddress(o.Name + ":7420")
	db, err := s.Database(ctx, "shop", "orders")
	if err != nil {
		return err
	}
	fmt.Println("open")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		messages, err := db.Append(ctx, lines.Text(), store.NewMessage{Value: value.Int(1)})
		if err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println(messages[0].Position)
	}
	return s.Close()
}

// process is a worker that runs.
type process struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	errors  bytes.Buffer
	ended   sync.Once
}

// start starts a worker and waits until it has said what it says first, unless
// it does random work.
func start(t testing.TB, o order) *process {
	t.Helper()
	given, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{command: exec.Command(os.Args[0])}
	p.command.Env = append(os.Environ(), orderVariable+"="+string(given))
	p.command.Stderr = &p.errors
	output, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.output = bufio.NewReader(output)
	if p.input, err = p.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if !o.Work {
		if said := p.hear(t); said != "open" {
			t.Fatalf("the worker says %q", said)
		}
	}
	return p
}

// hear returns the next line that the worker says.
func (p *process) hear(t testing.TB) string {
	t.Helper()
	line, err := p.output.ReadString('\n')
	if err != nil {
		p.kill()
		t.Fatalf("the worker says no more: %v\n%s", err, p.errors.String())
	}
	return strings.TrimSpace(line)
}

// ask has the worker append to a topic, and returns its answer.
func (p *process) ask(t testing.TB, topic string) string {
	t.Helper()
	if _, err := fmt.Fprintln(p.input, topic); err != nil {
		t.Fatal(err)
	}
	return p.hear(t)
}

func (p *process) signal(s syscall.Signal) { _ = p.command.Process.Signal(s) } // It may have ended.

// kill ends the worker as a crash does.
func (p *process) kill() {
	p.ended.Do(func() {
		_ = p.command.Process.Kill()
		_ = p.command.Wait() // It was killed.
	})
}

// close has the worker close its store and end.
func (p *process) close(t testing.TB) {
	t.Helper()
	p.ended.Do(func() {
		_ = p.input.Close()
		ended := make(chan error, 1)
		go func() { ended <- p.command.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the worker ended with %v\n%s", err, p.errors.String())
			}
		case <-time.After(30 * time.Second):
			_ = p.command.Process.Kill()
			t.Errorf("the worker does not end\n%s", p.errors.String())
		}
	})
}
