// Package backup_test takes backups of real processes while clients write, and
// compares what is restored.
package backup_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/value"
)

var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	folder, err := os.MkdirTemp("", "tidemark-backup-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	binary = filepath.Join(folder, "tidemark")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/tidemark").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "the binary does not build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// tidemark runs the binary to its end.
func tidemark(t *testing.T, stdin string, arguments ...string) string {
	t.Helper()
	command := exec.Command(binary, arguments...)
	command.Stdin = strings.NewReader(stdin)
	var failure strings.Builder
	command.Stderr = &failure
	out, err := command.Output()
	if err != nil {
		t.Fatalf("tidemark %s: %v\n%s%s", strings.Join(arguments, " "), err, out, failure.String())
	}
	return string(out)
}

// serve starts a node and returns its URL.
func serve(t *testing.T, arguments ...string) string {
	t.Helper()
	command := exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, arguments...)...)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, url, listens := strings.Cut(strings.TrimSpace(line), "listens on ")
	if !listens {
		t.Fatalf("the node says %q, %v", line, err)
	}
	return url
}

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

const define = `DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE first; DEFINE DATABASE second;
	USE DATABASE first; DEFINE TOPIC events; USE DATABASE second; DEFINE TOPIC events;`

// messages are the lines of a JSON export of a database: its messages, whole.
func messages(t *testing.T, database string, source ...string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(tidemark(t, "", append(append([]string{"export"}, source...), "--format", "json", "--database", "n/"+database)...)) {
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
			url := serve(t, c.source...)
			tidemark(t, define, "run", "--url", url)
			w := startWriters(t, url, 8)
			select {
			case <-w.busy:
			case <-time.After(time.Minute):
				t.Fatal("the clients do not come to write")
			}
			before := w.first.Load()
			beforeSecond := w.second.Load()
			folder := t.TempDir()
			path := strings.TrimSpace(tidemark(t, "", "backup", "--url", url, folder))
			w.end()
			if held, err := os.ReadDir(folder); err != nil || len(held) != 1 || filepath.Join(folder, held[0].Name()) != path {
				t.Fatalf("the folder of the backup holds %v, %v, and %s was told", held, err, path)
			}
			if out := tidemark(t, "", "restore", "--check", path); !strings.HasPrefix(out, "whole") {
				t.Errorf("the backup is said to be %s", out)
			}
			tidemark(t, "", append([]string{"restore", path}, c.restored...)...)

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
			out := tidemark(t, "USE NAMESPACE n; USE DATABASE first; CREATE events = 'next';", append([]string{"run", "--json"}, c.restored...)...)
			if want := fmt.Sprintf(`"position":%d,`, counts["first"]+1); !strings.Contains(out, want) {
				t.Errorf("the next message is not at %s: %s", want, out)
			}
		})
	}
}

func TestAStoreMovesBetweenEnginesAndBack(t *testing.T) {
	folder := t.TempDir()
	first, again := filepath.Join(folder, "first"), filepath.Join(folder, "again")
	tidemark(t, define+"CREATE events = { n: 1 }; READ FROM events FOR CONSUMER 'c';", "run", "--data", first)
	shared := postgrestest.New(t).URL()
	tidemark(t, tidemark(t, "", "backup", "--data", first, "-"), "restore", "--postgres", shared, "-")
	tidemark(t, tidemark(t, "", "backup", "--postgres", shared, "-"), "restore", "--data", again, "-")
	info := "USE NAMESPACE n; USE DATABASE second; INFO FOR TOPIC events; READ FROM events;"
	want, got := tidemark(t, info, "run", "--json", "--data", first), tidemark(t, info, "run", "--json", "--data", again)
	if got != want || !strings.Contains(want, `"readers":{"c":{"lag":0,"position":1}}`) {
		t.Errorf("there and back it is\n%s\nand was\n%s", got, want)
	}
	command := exec.Command(binary, "restore", "--postgres", shared, "-")
	command.Stdin = strings.NewReader(tidemark(t, "", "backup", "--data", first, "-"))
	if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), "must be empty") {
		t.Errorf("a store is restored over another: %v %s", err, out)
	}
}

func TestAnExportGoesThroughANodeAndBack(t *testing.T) {
	url := serve(t)
	tidemark(t, define+`CREATE events = { n: 1 }; CREATE events:'x' = 'two'; DEFINE TABLE orders (at datetime);
		INSERT INTO orders [{ id: 1, at: d'2026-01-31T10:00:00Z' }];`, "run", "--url", url)
	for _, format := range []string{"statements", "json"} {
		exported := tidemark(t, "", "export", "--url", url, "--database", "n/second", "--format", format)
		into := serve(t)
		tidemark(t, exported, "import", "--url", into, "--database", "n/second", "--quiet", "-")
		look := "USE NAMESPACE n; USE DATABASE second; SELECT * FROM orders; INFO FOR DATABASE; SELECT count() AS n FROM events;"
		if got, want := tidemark(t, look, "run", "--json", "--url", into), tidemark(t, look, "run", "--json", "--url", url); got != want {
			t.Errorf("%s: imported is\n%s\nand exported was\n%s\nby\n%s", format, got, want, exported)
		}
	}
}
