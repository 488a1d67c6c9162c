package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
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
	*nodetest.Process
	input io.WriteCloser
}

// start starts a worker and waits until it has said what it says first, unless
// it does random work.
func start(t testing.TB, o order) *process {
	t.Helper()
	given, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), orderVariable+"="+string(given))
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Process: nodetest.Start(t, command), input: input}
	if !o.Work {
		if said := p.Hear(); said != "open" {
			t.Fatalf("the worker says %q", said)
		}
	}
	return p
}

// ask has the worker append to a topic, and returns its answer.
func (p *process) ask(topic string) string {
	p.Helper()
	if _, err := fmt.Fprintln(p.input, topic); err != nil {
		p.Fatal(err)
	}
	return p.Hear()
}

// close has the worker close its store and end.
func (p *process) close() {
	p.Helper()
	_ = p.input.Close()
	if status := p.Wait(); status != 0 {
		p.Errorf("the worker ended with %d\n%s", status, p.Stderr)
	}
}
