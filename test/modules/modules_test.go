package modules

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/deploy"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

func TestNoEventIsLostOnTheEmbeddedEngine(t *testing.T) {
	t.Parallel()
	run(t, 1, "--data", t.TempDir())
}

func TestNoEventIsLostOnThreeNodesOfOnePostgreSQL(t *testing.T) {
	if testing.Short() {
		t.Skip("three nodes and a PostgreSQL: not in -short")
	}
	t.Parallel()
	run(t, 3, "--postgres", postgrestest.Shared(t).URL())
}

// world is the processes of one test.
type world struct {
	t         *testing.T
	addresses []string
	store     []string

	mu sync.Mutex
	// The following are protected by mu.
	nodes   []*process
	deploys []*process
	posted  []int
}

// run posts entries while runners and nodes are killed and a new version is
// deployed, and then compares what every subscription has taken.
func run(t *testing.T, nodes int, store ...string) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := &world{t: t, store: store, nodes: make([]*process, nodes)}
	for i := range nodes {
		w.addresses = append(w.addresses, freeAddress(t))
		w.startNode(i)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("testdata", "work-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	w.deploy(source(t, folder, 1))

	posting, stopPosting := context.WithCancel(t.Context())
	var posters sync.WaitGroup
	for i := range 4 {
		posters.Go(func() { w.post(posting, i) })
	}
	w.await("entries are taken", func() bool { return len(w.topic("ledger_copied")) > 0 })
	w.killRunner()
	if !testing.Short() {
		w.killNode(random.IntN(nodes), nodes > 1)
	}
	second := w.deploy(source(t, folder, 2))
	w.await("the first deployment has ended", func() bool { return !w.deploys[0].running() })
	w.killRunner()
	time.Sleep(time.Second) // of load on what has come back
	stopPosting()
	posters.Wait()

	// What was with the node that was killed comes after its deadline, or when an
	// operator says so.
	for _, subscription := range []string{"recording", "copying", "auditing"} {
		if out, err := exec.Command(nodetest.Binary(t), "ftl", "retry", "--url", "ws://"+w.addresses[0], "ledger."+subscription).CombinedOutput(); err != nil {
			t.Errorf("ftl retry: %s", out)
		}
	}
	w.await("every subscription has had everything", func() bool { return w.lag() == 0 })
	entries := w.topic("ledger_entries")
	for _, id := range w.posted {
		if !slices.Contains(entries, id) {
			t.Errorf("entry %d was accepted and is not in the topic", id)
		}
	}
	for _, exact := range []string{"ledger_recorded", "ledger_copied"} {
		if taken := w.topic(exact); !slices.Equal(taken, entries) {
			t.Errorf("%s holds %d of %d entries, or in another order, or twice: %v, want %v", exact, len(taken), len(entries), taken, entries)
		}
	}
	audited := w.topic("ledger_audited")
	for _, id := range entries {
		if !slices.Contains(audited, id) {
			t.Errorf("entry %d was never audited", id)
		}
	}
	t.Logf("%d entries, %d of them accepted; audited %d times", len(entries), len(w.posted), len(audited))
	if code := second.Stop(); code != 0 {
		t.Errorf("ftl deploy ends with %d", code)
	}
}

func (w *world) startNode(i int) {
	w.t.Helper()
	node := start(w.t, "tidemark listens on ", append([]string{"serve", "--listen", w.addresses[i]}, w.store...)...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[i] = node
}

// urls are those of the nodes.
func (w *world) urls() string { return "ws://" + strings.Join(w.addresses, ",ws://") }

func (w *world) deploy(dir string) *process {
	w.t.Helper()
	p := start(w.t, "verbs are served at ", "ftl", "deploy", "--to", w.urls(), "--ingress", "127.0.0.1:0", dir)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deploys = append(w.deploys, p)
	return p
}

// post posts entries one after the other until ctx ends.
func (w *world) post(ctx context.Context, poster int) {
	client := &http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	for n := 0; ctx.Err() == nil; n++ {
		id := poster*1_000_000 + n
		w.mu.Lock()
		ingress := w.deploys[len(w.deploys)-1].said
		w.mu.Unlock()
		response, err := client.Post(ingress+"/entry", "application/json", strings.NewReader(fmt.Sprintf(`{"id":%d}`, id)))
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				w.mu.Lock()
				w.posted = append(w.posted, id)
				w.mu.Unlock()
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// killRunner kills the process of the newest deployment, and waits until it is
// back.
func (w *world) killRunner() {
	w.t.Helper()
	newest := w.deploys[len(w.deploys)-1]
	for _, pid := range newest.children() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	w.await("the runner is started again", func() bool { return len(newest.children()) > 0 })
}

// killNode kills a node, sees that the others take over, and starts it again.
func (w *world) killNode(i int, others bool) {
	w.t.Helper()
	dead := fmt.Sprintf("/%d", w.nodes[i].PID())
	w.nodes[i].Kill()
	if others {
		began := time.Now()
		w.await("the dead node's subscriptions move", func() bool {
			status, ok := w.status((i + 1) % len(w.nodes))
			if !ok {
				return false
			}
			for _, one := range status.Modules[0].Subscriptions {
				if one.Node == "" || strings.HasSuffix(one.Node, dead) {
					return false
				}
			}
			return true
		})
		if took := time.Since(began); took > 5*time.Second {
			w.t.Errorf("ownership moved in %s", took)
		}
	}
	w.startNode(i)
}

// status asks a node.
func (w *world) status(i int) (deploy.Status, bool) {
	var status deploy.Status
	out, err := exec.Command(nodetest.Binary(w.t), "ftl", "status", "--json", "--url", "ws://"+w.addresses[i]).Output()
	return status, err == nil && json.NewDecoder(bytes.NewReader(out)).Decode(&status) == nil && len(status.Modules) == 1
}

// lag is how many events are not settled.
func (w *world) lag() (lag uint64) {
	status, ok := w.status(0)
	if !ok {
		return 1
	}
	for _, one := range status.Modules[0].Subscriptions {
		lag += one.Lag
	}
	return lag
}

// topic is the ids that a topic of the store holds, by position.
func (w *world) topic(name string) (ids []int) {
	for _, event := range w.events(name) {
		ids = append(ids, event.ID)
	}
	return ids
}

// versions are the versions of the module that took what a topic holds.
func (w *world) versions(name string) (versions []int) {
	for _, event := range w.events(name) {
		versions = append(versions, event.Version)
	}
	return versions
}

// event is what all topics of the module hold.
type event struct {
	ID      int `json:"id"`
	Version int `json:"version"`
}

func (w *world) events(name string) []event {
	session, err := client.Dial(w.t.Context(), "ws://"+w.addresses[0], client.Options{Namespace: "ftl", Database: "main"})
	if err != nil {
		return nil
	}
	defer func() { _ = session.Close() }()
	var events []event
	for position := 0; ; {
		answers, err := session.Run(w.t.Context(), fmt.Sprintf("READ FROM %s AFTER %d LIMIT 10000;", name, position), nil)
		if err != nil || answers[0].Err != nil {
			return nil
		}
		var rows []struct {
			Position int   `json:"position"`
			Value    event `json:"value"`
		}
		if err := answers[0].Value.Scan(&rows); err != nil {
			w.t.Fatal(err)
		}
		if len(rows) == 0 {
			return events
		}
		for _, row := range rows {
			events = append(events, row.Value)
			position = row.Position
		}
	}
}

// await waits until something holds.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	nodetest.Eventually(w.t, 90*time.Second, holds, "%s", what)
}

func TestDevelopmentBuildsAgainWhenAFileIsSavedAndLosesNothingMeanwhile(t *testing.T) {
	folder, err := os.MkdirTemp("testdata", "work-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	dir := source(t, folder, 1)
	w := &world{t: t, addresses: []string{freeAddress(t)}}
	ingress := freeAddress(t)
	dev := start(t, "verbs http://", "ftl", "dev", "--plain", "--listen", w.addresses[0], "--ingress", ingress, folder)
	dev.said = "http://" + ingress
	if early := postEntry(t, dev.said); early.StatusCode != http.StatusServiceUnavailable || early.Header.Get("Retry-After") == "" {
		t.Errorf("before the first build is up it answers %s, %v", early.Status, early.Header)
	}
	w.await("the first build serves", func() bool { return postEntry(t, dev.said).StatusCode == http.StatusOK })
	if told := dev.Stdout.String(); strings.Count(told, "building the modules in "+dir+"\n") != 1 || strings.Count(told, "built in ") != 1 {
		t.Errorf("of its one build it does not say when it begins and ends:\n%s", told)
	}
	w.deploys = []*process{dev}
	posting, stopPosting := context.WithCancel(t.Context())
	var posters sync.WaitGroup
	posters.Go(func() { w.post(posting, 0) })
	w.await("entries are taken", func() bool { return len(w.topic("ledger_copied")) > 0 })

	// What does not build is told, and what runs goes on.
	file := filepath.Join(dir, "ledger.go")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	save(t, file, append(good, "\nvar broken int = 'no'\"\n"...))
	w.await("the mistake is told", func() bool { return strings.Contains(dev.Stdout.String(), "ledger.go:") })
	if !strings.Contains(dev.Stdout.String(), "the build failed after ") {
		t.Error("that the build failed is not told")
	}
	saved := time.Now()
	save(t, file, bytes.Replace(good, []byte("const version = 1"), []byte("const version = 2"), 1))
	w.await("the new build takes entries", func() bool { return slices.Contains(w.versions("ledger_copied"), 2) })
	t.Logf("the new build took its first entry %s after it was saved", time.Since(saved))
	stopPosting()
	posters.Wait()
	w.await("everything is taken", func() bool { return w.lag() == 0 })
	entries := w.topic("ledger_entries")
	if taken := w.topic("ledger_copied"); !slices.Equal(taken, entries) || len(entries) < len(w.posted) {
		t.Errorf("of %d entries accepted, %d are in the topic and %v were copied, want %v", len(w.posted), len(entries), taken, entries)
	}
}

// postEntry posts an entry of its own.
func postEntry(t *testing.T, url string) *http.Response {
	t.Helper()
	response, err := http.Post(url+"/entry", "application/json", strings.NewReader(`{"id":-1}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response
}

func save(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
