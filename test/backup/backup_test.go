// Package backup_test takes backups of real processes while clients write, and
// compares what is restored.
package backup_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/value"
)

func TestMain(m *testing.M) { postgrestest.Main(m, nodetest.Remove) }

// writers append to two databases, first to first and then to second, and count
// what was acknowledged.
type writers struct {
	first, second atomic.Int64
	// busy is closed when enough was acknowledged for a backup to be in the
	// middle.
	busy chan struct{}
	stop context.CancelFunc
	done sync.WaitGroup
}

func startWriters(t *testing.T, url string, count int) *writers {
	ctx, stop := context.WithCancel(context.Background())
	w := &writers{stop: stop, busy: make(chan struct{})}
	t.Cleanup(w.end)
	for i := range count {
		first, second := session(t, url, "first"), session(t, url, "second")
		w.done.Go(func() {
			defer func() { _, _ = first.Close(), second.Close() }()
			for n := 0; ctx.Err() == nil; n++ {
				message := map[string]value.Value{"v": value.Fields(value.Object{"writer": value.Int(int64(i)), "n": value.Int(int64(n))})}
				for _, to := range []struct {
					session *client.Session
					count   *atomic.Int64
				}{{first, &w.first}, {second, &w.second}} {
					if _, err := to.session.Run(context.Background(), "CREATE events = $v;", message); err != nil {
						t.Error(err)
						return
					}
					if to.count.Add(1) == enough && to.count == &w.second {
						close(w.busy)
					}
				}
			}
		})
	}
	return w
}

// enough is how many messages are appended before a backup begins.
const enough = 200

func (w *writers) end() {
	w.stop()
	w.done.Wait()
}

func session(t *testing.T, url, database string) *client.Session {
	t.Helper()
	s, err := client.Dial(t.Context(), url, client.Options{Namespace: "n", Database: database})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// soon is how long something may take that a node does by itself.
const soon = 20 * time.Second

const define = `DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE first; DEFINE DATABASE second;
	USE DATABASE first; DEFINE TOPIC events; USE DATABASE second; DEFINE TOPIC events;`

// messages are the lines of a JSON export of a database: its messages, whole.
func messages(t *testing.T, database string, source ...string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(nodetest.MustRun(t, "", append(append([]string{"export"}, source...), "--format", "json", "--database", "n/"+database)...)) {
		if strings.Contains(line, `"table":"events"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestABackupTakenWhileClientsWriteIsOneMomentOfTheStore(t *testing.T) {
	shared := postgrestest.New(t).URL()
	for _, c := range []struct {
		name             string
		source, restored []string
	}{
		{name: "pebble", source: []string{"--data", filepath.Join(t.TempDir(), "store")}, restored: []string{"--data", filepath.Join(t.TempDir(), "restored")}},
		{name: "postgres", source: []string{"--postgres", shared}, restored: []string{"--data", filepath.Join(t.TempDir(), "restored")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := nodetest.Serve(t, c.source...).URL
			nodetest.MustRun(t, define, "run", "--url", url)
			w := startWriters(t, url, 8)
			select {
			case <-w.busy:
			case <-time.After(time.Minute):
				t.Fatal("the clients do not come to write")
			}
			before := w.first.Load()
			beforeSecond := w.second.Load()
			folder := t.TempDir()
			path := strings.TrimSpace(nodetest.MustRun(t, "", "backup", "--url", url, folder))
			w.end()
			if held, err := os.ReadDir(folder); err != nil || len(held) != 1 || filepath.Join(folder, held[0].Name()) != path {
				t.Fatalf("the folder of the backup holds %v, %v, and %s was told", held, err, path)
			}
			if out := nodetest.MustRun(t, "", "restore", "--check", path); !strings.HasPrefix(out, "whole") {
				t.Errorf("the backup is said to be %s", out)
			}
			nodetest.MustRun(t, "", append([]string{"restore", path}, c.restored...)...)

			counts := map[string]int{}
			for _, database := range []string{"first", "second"} {
				original, restored := messages(t, database, "--url", url), messages(t, database, c.restored...)
				if len(restored) > len(original) || strings.Join(restored, "") != strings.Join(original[:len(restored)], "") {
					t.Errorf("%s: the %d messages restored are no prefix of the %d there are", database, len(restored), len(original))
				}
				counts[database] = len(restored)
			}
			if int64(counts["first"]) < before || int64(counts["second"]) < beforeSecond {
				t.Errorf("%v were restored, and %d and %d were acknowledged before the backup began", counts, before, beforeSecond)
			}
			if counts["second"] > counts["first"] {
				t.Errorf("%v were restored: of some the second database has what followed in the first", counts)
			}
			t.Logf("restored %v", counts)
			// Positions go on.
			out := nodetest.MustRun(t, "USE NAMESPACE n; USE DATABASE first; CREATE events = 'next';", append([]string{"run", "--json"}, c.restored...)...)
			if want := fmt.Sprintf(`"position":%d,`, counts["first"]+1); !strings.Contains(out, want) {
				t.Errorf("the next message is not at %s: %s", want, out)
			}
		})
	}
}

func TestAStoreMovesBetweenEnginesAndBack(t *testing.T) {
	folder := t.TempDir()
	first, again := filepath.Join(folder, "first"), filepath.Join(folder, "again")
	nodetest.MustRun(t, define+"CREATE events = { n: 1 }; READ FROM events FOR CONSUMER 'c';", "run", "--data", first)
	shared := postgrestest.New(t).URL()
	nodetest.MustRun(t, nodetest.MustRun(t, "", "backup", "--data", first, "-"), "restore", "--postgres", shared, "-")
	nodetest.MustRun(t, nodetest.MustRun(t, "", "backup", "--postgres", shared, "-"), "restore", "--data", again, "-")
	info := "USE NAMESPACE n; USE DATABASE second; INFO FOR TOPIC events; READ FROM events;"
	want, got := nodetest.MustRun(t, info, "run", "--json", "--data", first), nodetest.MustRun(t, info, "run", "--json", "--data", again)
	if got != want || !strings.Contains(want, `"readers":{"c":{"lag":0,"position":1}}`) {
		t.Errorf("there and back it is\n%s\nand was\n%s", got, want)
	}
	if _, errors, status := nodetest.Run(t, nodetest.MustRun(t, "", "backup", "--data", first, "-"), "restore", "--postgres", shared, "-"); status == 0 || !strings.Contains(errors, "must be empty") {
		t.Errorf("a store is restored over another: %d %s", status, errors)
	}
}

func TestAnExportGoesThroughANodeAndBack(t *testing.T) {
	url := nodetest.Serve(t).URL
	nodetest.MustRun(t, define+`CREATE events = { n: 1 }; CREATE events:'x' = 'two'; DEFINE TABLE orders (at datetime);
		INSERT INTO orders [{ id: 1, at: d'2026-01-31T10:00:00Z' }];`, "run", "--url", url)
	for _, format := range []string{"statements", "json"} {
		exported := nodetest.MustRun(t, "", "export", "--url", url, "--database", "n/second", "--format", format)
		into := nodetest.Serve(t).URL
		nodetest.MustRun(t, exported, "import", "--url", into, "--database", "n/second", "--quiet", "-")
		look := "USE NAMESPACE n; USE DATABASE second; SELECT * FROM orders; INFO FOR DATABASE; SELECT count() AS n FROM events;"
		if got, want := nodetest.MustRun(t, look, "run", "--json", "--url", into), nodetest.MustRun(t, look, "run", "--json", "--url", url); got != want {
			t.Errorf("%s: imported is\n%s\nand exported was\n%s\nby\n%s", format, got, want, exported)
		}
	}
}

// Who takes a backup of a node that is told to end has none, and knows it; and
// the node ends in order.
func TestABackupOfANodeThatIsToldToEndIsNone(t *testing.T) {
	data := filepath.Join(t.TempDir(), "store")
	node := nodetest.Serve(t, "--data", data)
	nodetest.MustRun(t, define, "run", "--url", node.URL)
	writer := session(t, node.URL, "second")
	defer func() { _ = writer.Close() }()
	const count = 64
	large := map[string]value.Value{"v": value.String(strings.Repeat("x", 1<<20))}
	for range count {
		if answers, err := writer.Run(t.Context(), "CREATE events = $v;", large); err != nil || answers[0].Err != nil {
			t.Fatal(err, answers)
		}
	}
	way := nodetest.NewProxy(t, node.Address, nil)
	folder := t.TempDir()
	type outcome struct {
		errors string
		status int
	}
	taken := make(chan outcome, 1)
	go func() {
		_, errors, status := nodetest.Run(t, "", "backup", "--url", "http://"+way.Address(), folder)
		taken <- outcome{errors, status}
	}()
	nodetest.Eventually(t, soon, func() bool { return way.Answered.Load() > 0 }, "the backup begins")
	way.Freeze() // So that it does not end before the node does.
	node.Signal(syscall.SIGTERM)
	nodetest.Eventually(t, soon, func() bool {
		response, err := http.Get(node.URL + "/ready")
		if err != nil {
			return true
		}
		_ = response.Body.Close()
		return response.StatusCode != http.StatusOK
	}, "the node goes away")
	way.Heal()
	if status := node.Wait(); status != 0 {
		t.Errorf("the node ends with %d\n%s", status, node.Stderr)
	}
	if o := <-taken; o.status != 1 || !strings.Contains(o.errors, "cut off") {
		t.Errorf("the backup ends with %d: %s", o.status, o.errors)
	}
	if held, err := os.ReadDir(folder); err != nil || len(held) > 0 {
		t.Errorf("it leaves %v %v", held, err)
	}
	if kept := len(messages(t, "second", "--data", data)); kept != count {
		t.Errorf("of %d messages the store has %d", count, kept)
	}
}
