package ingest_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// promised is the second within which a declaration takes effect, and what a
// busy machine may add.
const promised = 5 * time.Second

// node is a store that runs its declared consumers, and one caller's session.
type node struct {
	*testing.T
	store      *store.Store
	supervisor *ingest.Supervisor
	session    *session.Session
	log        *logged
}

// logged is what a node logs, safe to read while it logs.
type logged struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func newNode(t *testing.T) *node {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newNodeOn(t, e)
}

func newNodeOn(t *testing.T, e engine.Engine) *node {
	t.Helper()
	log := new(logged)
	logger := slog.New(slog.NewTextHandler(log, nil))
	s, err := store.Open(t.Context(), e, store.Options{Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, store: s, log: log}
	n.startSupervisor()
	t.Cleanup(func() {
		n.session.Close()
		n.supervisor.Stop()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	n.run("DEFINE NAMESPACE IF NOT EXISTS shop; USE NAMESPACE shop; DEFINE DATABASE IF NOT EXISTS main; USE DATABASE main")
	return n
}

// startSupervisor runs the declared consumers, again where they were stopped.
func (n *node) startSupervisor() {
	inUse := n.session
	n.supervisor = ingest.Start(n.store, ingest.Options{Log: slog.New(slog.NewTextHandler(n.log, nil))})
	n.session = n.newSession()
	if inUse != nil {
		inUse.Close()
		n.run("USE NAMESPACE shop; USE DATABASE main")
	}
}

func (n *node) newSession() *session.Session {
	return session.New(n.store, session.Options{Running: n.supervisor})
}

// run runs statements that must all answer ok, and returns what the last
// answered, as JSON.
func (n *node) run(script string) string {
	n.Helper()
	return n.runWith(script, nil)
}

func (n *node) runWith(script string, params map[string]value.Value) string {
	n.Helper()
	answers, err := n.session.Run(n.Context(), script, params)
	if err != nil {
		n.Fatalf("%s\n%v", script, err)
	}
	for _, answer := range answers {
		if answer.Err != nil {
			n.Fatalf("%s\n%v", script, answer.Err)
		}
	}
	text, err := answers[len(answers)-1].Value.AppendJSON(nil)
	if err != nil {
		n.Fatal(err)
	}
	return string(text)
}

// refused runs a statement that must fail with a kind, and returns the message.
func (n *node) refused(statement string, kind fault.Kind) string {
	n.Helper()
	answers, err := n.session.Run(n.Context(), statement, nil)
	if err != nil {
		n.Fatalf("%s\n%v", statement, err)
	}
	failure := answers[len(answers)-1].Err
	if failure == nil || failure.Kind != kind {
		n.Fatalf("%s\nwant %s, got %v", statement, kind, failure)
	}
	return failure.Message
}

// eventually waits until a statement answers what is wanted.
func (n *node) eventually(statement, want string) {
	n.Helper()
	n.eventuallyIs(statement, func(got string) bool { return got == want }, want)
}

// eventuallyHas waits until a statement's answer contains what is wanted.
func (n *node) eventuallyHas(statement string, wanted ...string) string {
	n.Helper()
	return n.eventuallyIs(statement, func(got string) bool {
		for _, want := range wanted {
			if !strings.Contains(got, want) {
				return false
			}
		}
		return true
	}, strings.Join(wanted, " and "))
}

func (n *node) eventuallyIs(statement string, is func(string) bool, want string) string {
	n.Helper()
	var answers struct{ last string }
	nodetest.Eventually(n, promised, func() bool {
		answers.last = n.run(statement)
		return is(answers.last)
	}, "%s answers %s: %+v\nlog:\n%s", statement, want, &answers, n.log)
	return answers.last
}

// always checks for a while that a statement keeps answering the same.
func (n *node) always(statement, want string) {
	n.Helper()
	for range 20 {
		if got := n.run(statement); got != want {
			n.Fatalf("%s\nwant %s\ngot  %s", statement, want, got)
		}
		time.Sleep(10 * time.Millisecond) // What must not happen has time to.
	}
}
