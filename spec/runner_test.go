package spec_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/signin"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// startOfTime is what the store's clock shows when a script begins.
var startOfTime = time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)

// runner runs one script and collects what was answered.
type runner struct {
	t       *testing.T
	place   place
	clock   *movedClock
	store   *store.Store
	callers map[string]*caller
	params  map[string]value.Value
	names   *uuidNames
	// node serves the store, on the surface that is one; nil on the others.
	node *node
	// door counts what strangers append, until the next restart.
	door      *session.Door
	passwords *signin.Checker
}

// caller is one session, and what it must be told again after a restart.
type caller struct {
	session running
	// who is on whose authority it runs; a stranger is told apart because its
	// door is new after a restart.
	who       session.Caller
	stranger  bool
	namespace string
	database  string
	// pending are the answers of a request that was started.
	pending chan []string
}

// running runs scripts: a session of the store, or one on a node that serves it.
type running interface {
	RunScript(ctx context.Context, script *lang.Script, params map[string]value.Value, tell func(lang.Statement, session.Answer))
	Close()
}

// patience is how long a request that was started may take to be answered once
// the script waits for it.
const patience = time.Minute

// movedClock is a clock that stands still until it is moved.
type movedClock struct {
	mu  sync.Mutex
	now time.Time // protected by mu
}

func (c *movedClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *movedClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// runScript runs a script on a surface and returns it with the answers that
// were given in place of those that were written.
func runScript(t *testing.T, s *script, on surface) *script {
	clock := &movedClock{now: startOfTime}
	r := &runner{
		t: t, clock: clock, place: on.prepare(t, clock.read),
		callers: map[string]*caller{}, names: newUUIDNames(s.String()), passwords: signin.NewChecker(),
	}
	if on.served {
		r.node = &node{t: t}
	}
	r.open()
	defer r.close()
	ran := &script{path: s.path}
	for _, step := range s.steps {
		switch x := step.(type) {
		case *request:
			step = r.request(x)
		case *steering:
			answered, err := r.steer(x)
			if err != nil {
				t.Fatalf("%s:%d: %s: %v", s.path, x.line(), x.text, err)
			}
			step = answered
		}
		ran.steps = append(ran.steps, step)
	}
	return ran
}

func (r *runner) open() {
	log := slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	opened, err := store.Open(context.Background(), r.place.open(r.t), store.Options{HousekeepingEvery: -1, Log: log})
	if err != nil {
		r.t.Fatal(err)
	}
	r.store, r.door = opened, session.NewDoor()
	if r.node != nil {
		r.node.serve(opened)
	}
}

func (r *runner) close() {
	for name, c := range r.callers {
		if c.pending != nil {
			r.t.Errorf("%s was started and never finished", name)
		}
		c.session.Close()
	}
	if r.node != nil {
		r.node.stop()
	}
	if err := r.store.Close(); err != nil {
		r.t.Error(err)
	}
}

// reopen closes the store and opens it again. Callers come back with the
// namespace and database they had in use, and without their transactions.
func (r *runner) reopen() {
	r.close()
	r.open()
	for _, c := range r.callers {
		r.arrive(c)
	}
}

// arrive gives a caller a new session.
func (r *runner) arrive(c *caller) {
	if c.stranger {
		c.who = session.Anonymous(r.door, false)
	}
	if r.node != nil {
		c.session = r.node.dial(c.namespace, c.database)
		return
	}
	arrived, err := session.NewIn(context.Background(), r.store, c.namespace, c.database, session.Options{Caller: c.who})
	if err != nil {
		r.t.Fatalf("a caller arrives in %s %s: %v", c.namespace, c.database, err)
	}
	c.session = arrived
}

// signIn makes a caller the user of its name, of the database, or else the
// namespace, or else the store; or does not, where the password is another.
func (r *runner) signIn(argument string) error {
	name, quoted, _ := strings.Cut(argument, " ")
	password, err := lang.ParseExpression(quoted)
	if err != nil {
		return err
	}
	literal, ok := password.(*lang.Literal)
	if !ok {
		return errors.New("signin takes the name of a caller and a password in quotes")
	}
	text, _ := literal.Value.AsString()
	c := r.caller(name)
	ctx := context.Background()
	user, err := r.store.FindUser(ctx, c.namespace, c.database, name)
	if err != nil {
		return err
	}
	if right, err := r.passwords.Check(ctx, user.Password, text, nil); err != nil || !right {
		return fmt.Errorf("%q is not the password of %s: %w", text, name, err)
	}
	c.session.Close()
	c.who, c.stranger = session.SignedIn(user, time.Time{}), false
	r.arrive(c)
	return nil
}

// estrange makes a caller one who has not signed in.
func (r *runner) estrange(name string) {
	c := r.caller(name)
	c.session.Close()
	c.stranger = true
	r.arrive(c)
}

// caller is the caller of a name. A new one uses what the one without a name
// uses.
func (r *runner) caller(name string) *caller {
	c := r.callers[name]
	if c == nil {
		c = &caller{}
		if host := r.callers[""]; host != nil {
			c.namespace, c.database = host.namespace, host.database
		}
		r.callers[name] = c
		r.arrive(c)
	}
	return c
}

// steer does what a word says.
func (r *runner) steer(x *steering) (*steering, error) {
	answered := *x
	answered.answer = ""
	switch x.word {
	case "advance":
		d, err := parseAdvance(x.argument)
		if err != nil {
			return nil, err
		}
		r.clock.move(d)
		return &answered, r.store.Housekeep(context.Background())
	case "housekeep":
		return &answered, r.store.Housekeep(context.Background())
	case "restart":
		r.reopen()
		return &answered, nil
	case "crash":
		r.place.crash(r.t)
		r.reopen()
		return &answered, nil
	case "given":
		return &answered, r.give(x.argument)
	case "signin":
		return &answered, r.signIn(x.argument)
	case "stranger":
		r.estrange(x.argument)
		return &answered, nil
	default:
		c := r.callers[strings.TrimSpace(x.argument)]
		if c == nil || c.pending == nil {
			return nil, fmt.Errorf("nothing was started as %q", x.argument)
		}
		select {
		case answers := <-c.pending:
			answered.answer = strings.Join(answers, "\n")
			c.pending = nil
			return &answered, nil
		case <-time.After(patience):
			return nil, fmt.Errorf("there is no answer after %s", patience)
		}
	}
}

// give sets the parameters of the requests that follow, from an object.
func (r *runner) give(argument string) error {
	e, err := lang.ParseExpression(argument)
	if err != nil {
		return err
	}
	literal, ok := e.(*lang.Literal)
	if !ok {
		return errors.New("given takes an object of literals")
	}
	if r.params, ok = literal.Value.AsObject(); !ok {
		return errors.New("given takes an object")
	}
	return nil
}

// request runs a request and returns it with the answers that were given.
func (r *runner) request(x *request) *request {
	c := r.caller(x.caller)
	if c.pending != nil {
		r.t.Fatalf("line %d: %s still waits for an answer; finish it first", x.line(), x.caller)
	}
	answered := *x
	answered.lines = make([]requestLine, len(x.lines))
	for i, line := range x.lines {
		answered.lines[i].text = line.text
	}
	if !x.started {
		for i, answers := range r.run(c, x, r.params) {
			answered.lines[i].answer = strings.Join(answers, "\n")
		}
		return &answered
	}
	pending, params := make(chan []string, 1), r.params
	c.pending = pending
	go func() { pending <- slices.Concat(r.run(c, x, params)...) }()
	return &answered
}

// run sends a request and returns the answers to show under each of its lines.
func (r *runner) run(c *caller, x *request, params map[string]value.Value) [][]string {
	source := r.names.restore(x.source())
	shown := make([][]string, len(x.lines))
	parsed, err := lang.Parse(source)
	if err != nil {
		last := len(x.lines) - 1
		shown[last] = []string{r.show(nil, session.Answer{Err: fault.Of(err)})}
		return shown
	}
	c.session.RunScript(context.Background(), parsed, params, func(statement lang.Statement, a session.Answer) {
		if use, ok := statement.(*lang.Use); ok && a.Err == nil {
			c.use(use)
		}
		if a.Err == nil && a.Value.IsNull() && a.Lapsed == 0 {
			return
		}
		line := lineOf(source, statement)
		shown[line] = append(shown[line], r.show(statement, a))
	})
	return shown
}

func (c *caller) use(use *lang.Use) {
	if use.Kind == lang.Namespace {
		c.namespace, c.database = use.Name, ""
		return
	}
	c.database = use.Name
}
