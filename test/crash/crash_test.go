// Package crash kills a store at random moments and checks what it kept: every
// commit that was acknowledged is there, positions are dense, effects and
// positions agree, and nothing that was settled is handed out again.
//
// It does so twice: with a process that is killed with SIGKILL, whose folder
// another opens, and with a file system in memory that loses what was not
// synced, as a machine that loses its power does.
package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
)

var (
	rounds      = flag.Int("crash.rounds", 50, "how many times to kill a process")
	powerRounds = flag.Int("crash.power", 200, "how many times to lose what is not synced")
)

// The environment of a child process: the folder to work on, and the round.
const (
	folderVariable = "TIDEMARK_CRASH_FOLDER"
	roundVariable  = "TIDEMARK_CRASH_ROUND"
)

// opening is what a child says before anything else.
const opening = "opening"

// memTableBytes is small, so that files are written while the workload runs.
const memTableBytes = 256 << 10

func TestMain(m *testing.M) {
	if folder := os.Getenv(folderVariable); folder != "" {
		err := work(folder)
		fmt.Fprintln(os.Stderr, "the child ended:", err)
		os.Exit(1)
	}
	flag.Parse()
	if testing.Short() {
		*rounds, *powerRounds = *rounds/5, *powerRounds/5
	}
	os.Exit(m.Run())
}

// work is the child process: it works on a folder until it is killed.
func work(folder string) error {
	round, err := strconv.Atoi(os.Getenv(roundVariable))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	lines := json.NewEncoder(os.Stdout) // One write a line, so that none is torn.
	tell := func(o outcome) {
		mu.Lock()
		defer mu.Unlock()
		if err := lines.Encode(o); err != nil {
			panic(err)
		}
	}
	tell(outcome{What: opening})
	e, err := pebble.Open(folder, pebble.Options{MemTableBytes: memTableBytes})
	if err != nil {
		return err
	}
	ctx := context.Background()
	_, db, err := openStore(ctx, e)
	if err != nil {
		return err
	}
	return (&workload{db: db, round: round, tell: tell}).run(ctx)
}

func TestAProcessThatIsKilledTakesBackNothingThatItSaid(t *testing.T) {
	folder := t.TempDir()
	h := newHistory()
	clock := new(movingClock)
	for round := range *rounds {
		// Some are killed while they open the folder.
		lines := max(1, rand.IntN(450)-50)
		h.add(t, runAndKill(t, folder, round, lines))
		e, err := pebble.Open(folder, pebble.Options{MemTableBytes: memTableBytes, Clock: clock.now})
		if err != nil {
			t.Fatal(err)
		}
		s, db, err := openStore(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		check(t, db, h)
		if round == *rounds-1 {
			drain(t, db, h, func() { clock.advance(time.Second) })
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("round %d of %d, killed after %d lines: %s", round, *rounds, lines, h)
		}
	}
	t.Log(h)
}

// runAndKill starts a child and kills it once it has said a number of lines. It
// returns all that it said.
func runAndKill(t *testing.T, folder string, round, lines int) (said []outcome) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), folderVariable+"="+folder, roundVariable+"="+strconv.Itoa(round))
	var complaints bytes.Buffer
	command.Stderr = &complaints
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(output)
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var o outcome
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatalf("the child said %q: %v", line, err)
		}
		said = append(said, o)
		if len(said) == lines {
			if err := command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := command.Wait(); err == nil || len(said) < lines {
		t.Fatalf("the child ended by itself: %v\n%s", err, complaints.Bytes())
	}
	return said
}

// storeLife is how many crashes one store lives through, before a new one is
// made; the last one drains its group.
const storeLife = 20

func TestAMachineThatLosesPowerTakesBackNothingThatItSaid(t *testing.T) {
	var h *history
	var memory *vfs.MemFS
	for round := range *powerRounds {
		if round%storeLife == 0 {
			h, memory = newHistory(), vfs.NewCrashableMem()
		}
		outcomes := 1 + rand.IntN(200)
		crash := vfs.CrashCloneCfg{UnsyncedDataPercent: rand.IntN(101), RNG: rand.New(rand.NewPCG(rand.Uint64(), 0))}
		if rand.IntN(2) == 0 {
			crash = vfs.CrashCloneCfg{} // Nothing that was not synced.
		}
		var said []outcome
		memory, said = runAndLosePower(t, memory, round, outcomes, crash)
		h.add(t, said)

		clock := new(movingClock)
		e, err := pebble.Open("store", pebble.Options{FS: memory, MemTableBytes: memTableBytes, Clock: clock.now})
		if err != nil {
			t.Fatal(err)
		}
		s, db, err := openStore(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		check(t, db, h)
		if round%storeLife == storeLife-1 || round == *powerRounds-1 {
			drain(t, db, h, func() { clock.advance(time.Second) })
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("round %d of %d, power lost after %d outcomes with %d%% of what was not synced: %s",
				round, *powerRounds, outcomes, crash.UnsyncedDataPercent, h)
		}
	}
}

// runAndLosePower works on a file system, and returns what is left of it after
// the power is lost at the moment at which the store has said a number of
// things, and those things.
func runAndLosePower(t *testing.T, memory *vfs.MemFS, round, outcomes int, crash vfs.CrashCloneCfg) (*vfs.MemFS, []outcome) {
	t.Helper()
	e, err := pebble.Open("store", pebble.Options{FS: memory, MemTableBytes: memTableBytes})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s, db, err := openStore(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said []outcome
	var left *vfs.MemFS
	tell := func(o outcome) {
		mu.Lock()
		defer mu.Unlock()
		if left != nil {
			return // Said in a world that is no more.
		}
		said = append(said, o)
		if len(said) == outcomes {
			left = memory.CrashClone(crash)
			stop()
		}
	}
	if err := (&workload{db: db, round: round, tell: tell}).run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return left, said
}
