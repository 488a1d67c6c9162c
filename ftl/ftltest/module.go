package ftltest

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/tidemarkdb/tidemark"
	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/value"
)

// module is a module under test. It is the call.Surroundings of the verbs.
type module struct {
	t        testing.TB
	log      *slog.Logger
	clock    *clock
	database *client.Database

	subscriptions []*subscription
	// catches are the catch verbs, by module.verb.
	catches map[string]handler
	// fakes stand in for verbs, by the functions' names.
	fakes map[string]any

	mu sync.Mutex
	// The following are protected by mu. names are the modules of Go packages,
	// defined says which topics the store has.
	names   map[string]string
	defined map[string]bool
}

// started is when every test begins, so that what it prints is always the same.
var started = time.Date(2026, time.January, 31, 10, 0, 0, 0, time.UTC)

func open(t testing.TB) *module {
	t.Helper()
	m := &module{
		t: t, clock: &clock{at: started}, catches: map[string]handler{}, fakes: map[string]any{},
		names: map[string]string{}, defined: map[string]bool{},
	}
	m.log = slog.New(slog.NewTextHandler(t.Output(), nil))
	store, err := tidemark.OpenMemory(tidemark.WithClock(m.clock.now), tidemark.WithLog(m.log))
	if err != nil {
		t.Fatalf("ftltest: %v", err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("ftltest: %v", err)
		}
	})
	if m.database, err = store.Database(t.Context(), ftlwire.Namespace, ftlwire.DefaultDatabase); err != nil {
		t.Fatalf("ftltest: %v", err)
	}
	return m
}

func (m *module) Database() *client.Database { return m.database }
func (m *module) Fake(f call.Function) any   { return m.fakes[f.String()] }
func (m *module) Log() *slog.Logger          { return m.log }

// ModuleOf is what the ftl.toml names that is next to the place or above it.
// Without one, a package is a module of its own.
func (m *module) ModuleOf(at call.Place) string {
	pkg := strings.TrimSuffix(at.Package, "_test")
	m.mu.Lock()
	defer m.mu.Unlock()
	if name, known := m.names[pkg]; known {
		return name
	}
	name := declaredName(filepath.Dir(at.File))
	if name == "" {
		name = m.freeName(schema.LowerCamel(path.Base(pkg)))
	}
	m.names[pkg] = name
	return name
}

// declaredName is the name in the ftl.toml of a folder or the next one above, ""
// where there is none.
func declaredName(folder string) string {
	for {
		var file struct {
			Module string `toml:"module"`
		}
		_, err := toml.DecodeFile(filepath.Join(folder, "ftl.toml"), &file)
		above := filepath.Dir(folder)
		if !errors.Is(err, fs.ErrNotExist) || above == folder {
			return file.Module
		}
		folder = above
	}
}

// freeName is a name that no other package has. It is called with mu held.
func (m *module) freeName(name string) string {
	if name == "" {
		name = "module"
	}
	taken := map[string]bool{}
	for _, other := range m.names {
		taken[other] = true
	}
	free := name
	for n := 2; taken[free]; n++ {
		free = name + strconv.Itoa(n)
	}
	return free
}

// StoreTopic defines a topic when it is first used.
func (m *module) StoreTopic(ctx context.Context, t call.Topic) (string, error) {
	name := ftlwire.StoreTopic(m.ModuleOf(t.Place), t.Name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.defined[name] {
		return name, nil
	}
	statement := "DEFINE TOPIC IF NOT EXISTS " + value.QuoteIdentifier(name)
	if t.Retain > 0 {
		statement += " RETAIN " + value.Duration(t.Retain).String()
	}
	if t.RetainBytes > 0 {
		statement += " RETAIN BYTES " + strconv.FormatInt(t.RetainBytes, 10)
	}
	if _, err := m.database.Exec(ctx, statement, nil); err != nil {
		return "", err
	}
	m.defined[name] = true
	return name, nil
}

// provision makes the topics and groups of what runs, and looks for what the
// directives name.
func (m *module) provision(ctx context.Context) error {
	for _, s := range m.subscriptions {
		if err := s.provision(ctx); err != nil {
			return err
		}
	}
	return nil
}

// subscribe adds a handler to a subscription.
func (m *module) subscribe(declared call.Subscription, h handler) {
	s := m.subscription(declared)
	if s == nil {
		s = &subscription{module: m, declared: declared}
		m.subscriptions = append(m.subscriptions, s)
	}
	s.handlers = append(s.handlers, h)
}

// subscription returns one that something runs for, nil for none.
func (m *module) subscription(declared call.Subscription) *subscription {
	for _, s := range m.subscriptions {
		if s.declared.Name == declared.Name && s.declared.Package == declared.Package {
			return s
		}
	}
	return nil
}

// clock is the test's clock.
type clock struct {
	mu sync.Mutex
	at time.Time // protected by mu
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// advanceTo moves the clock to a time that has not passed.
func (c *clock) advanceTo(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.at) {
		c.at = at
	}
}

// errNoCatch says that a test does not have a verb that a directive names.
func errNoCatch(h handler, catch schema.Ref) error {
	return fault.New(fault.NotFound, "%s names the catch verb %s, which the test does not have: add ftltest.WithCatch with its function", h.function, catch)
}
