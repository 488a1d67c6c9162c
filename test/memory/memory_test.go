// The race detector takes several times the memory of what it watches, and
// VmHWM is Linux's.
//go:build linux && !race

package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

var messages = flag.Int("memory.messages", 1_000_000, "how many messages the topic holds")

const (
	// residentLimit is what a node promises to stay under.
	residentLimit = 512 << 20
	// waitingAppends is how many callers wait for the disk at once.
	waitingAppends = 4096
	// pageOf is how many messages one READ answers.
	pageOf = 1000
	// paddingBytes makes a message take about 128 bytes.
	paddingBytes = 100
)

// The environment of the child process: the folder to work in, and how many
// messages to append.
const (
	folderVariable   = "TIDEMARK_MEMORY_FOLDER"
	messagesVariable = "TIDEMARK_MEMORY_MESSAGES"
)

// measured is what the child found: its highest resident size after each step,
// and what the steps counted.
type measured struct {
	Appended, Read, Selected int64
	ResidentBytes            map[string]int64
}

func TestMain(m *testing.M) {
	if folder := os.Getenv(folderVariable); folder != "" {
		if err := work(context.Background(), folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(m.Run())
}

func TestALargeTopicAndThousandsOfWaitingAppendsStayWithinTheMemoryPromised(t *testing.T) {
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), folderVariable+"="+t.TempDir(), messagesVariable+"="+strconv.Itoa(*messages))
	var complaints bytes.Buffer
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, complaints.Bytes())
	}
	var m measured
	if err := json.Unmarshal(output, &m); err != nil {
		t.Fatalf("the child said %q: %v", output, err)
	}
	want := int64(*messages)
	if m.Appended != want || m.Read != want || m.Selected != want/2 {
		t.Errorf("appended %d, read %d, selected %d of %d", m.Appended, m.Read, m.Selected, want)
	}
	for step, resident := range m.ResidentBytes {
		t.Logf("%s: %d MiB", step, resident>>20)
		if resident > residentLimit {
			t.Errorf("%s took %d MiB; the limit is %d", step, resident>>20, residentLimit>>20)
		}
	}
}

// work is the child process.
func work(ctx context.Context, folder string) (err error) {
	count, err := strconv.ParseInt(os.Getenv(messagesVariable), 10, 64)
	if err != nil {
		return err
	}
	store, err := tidemark.Open(folder)
	if err != nil {
		return err
	}
	defer func() {
		if closing := store.Close(); err == nil {
			err = closing
		}
	}()
	db, err := store.Database(ctx, "shop", "orders")
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, "DEFINE TOPIC events", nil); err != nil {
		return err
	}
	m := measured{ResidentBytes: map[string]int64{}}
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"4,096 waiting appends", func() (err error) { m.Appended, err = appendAll(ctx, db.Topic("events"), count); return err }},
		{"a READ of all", func() (err error) { m.Read, err = readAll(ctx, db); return err }},
		{"a SELECT over all", func() (err error) { m.Selected, err = selectEven(ctx, db); return err }},
	} {
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if _, m.ResidentBytes[step.name], err = nodetest.Resident(os.Getpid()); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// appendAll lets many callers append at once, each waiting for its answer.
func appendAll(ctx context.Context, topic *tidemark.Topic, count int64) (appended int64, err error) {
	numbers := make(chan int64, waitingAppends)
	var callers sync.WaitGroup
	var mu sync.Mutex
	padding := strings.Repeat("x", paddingBytes)
	for range waitingAppends {
		callers.Go(func() {
			for n := range numbers {
				_, _, failed := topic.Append(ctx, map[string]any{"n": n, "padding": padding})
				mu.Lock()
				if failed == nil {
					appended++
				} else if err == nil {
					err = failed
				}
				mu.Unlock()
			}
		})
	}
	for n := range count {
		numbers <- n
	}
	close(numbers)
	callers.Wait()
	return appended, err
}

// readAll reads the topic page by page.
func readAll(ctx context.Context, db *tidemark.Database) (read int64, err error) {
	for {
		rows, err := db.Query(ctx, "READ FROM events AFTER $place LIMIT $limit", tidemark.Params{"place": read, "limit": pageOf})
		if err != nil || rows.Len() == 0 {
			return read, err
		}
		read += int64(rows.Len())
	}
}

func selectEven(ctx context.Context, db *tidemark.Database) (int64, error) {
	rows, err := db.Query(ctx, "SELECT count() AS even FROM events WHERE n % 2 = 0", nil)
	if err != nil {
		return 0, err
	}
	var row struct {
		Even int64 `json:"even"`
	}
	err = rows.Scan(&row)
	return row.Even, err
}
