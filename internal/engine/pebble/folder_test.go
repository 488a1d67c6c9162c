package pebble_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
)

// wantRefused fails unless opening the folder is refused with all of the words.
func wantRefused(t *testing.T, directory string, words ...string) {
	t.Helper()
	e, err := pebble.Open(directory, small)
	if err == nil {
		_ = e.Close()
		t.Fatalf("opened; want a refusal with %q", words)
	}
	if !errors.Is(err, fault.Unavailable) {
		t.Fatalf("got %v, want Unavailable", err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("got %v, which does not say %q", err, word)
		}
	}
}

func TestASecondOpenNamesTheProcessThatHasTheFolder(t *testing.T) {
	directory := t.TempDir()
	e := open(t, directory, small)
	wantRefused(t, directory, directory, fmt.Sprintf("in use by process %d since 20", os.Getpid()))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(directory, link); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, link, "in use by process")
	if _, err := add(space(t, e), 10); err != nil {
		t.Fatalf("after the refusal: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, directory, small).Close(); err != nil {
		t.Fatal(err)
	}
}

const holdVariable = "TIDEMARK_TEST_HOLD"

// TestHold is not a test: it holds a folder for the test below, as a process of
// its own, until it is killed.
func TestHold(t *testing.T) {
	directory := os.Getenv(holdVariable)
	if directory == "" {
		return
	}
	e := open(t, directory, small)
	if _, err := add(space(t, e), 10); err != nil {
		t.Fatal(err)
	}
	fmt.Println("holding")
	select {}
}

func TestAnotherProcessIsNamedWhileItLivesAndNoObstacleWhenItIsKilled(t *testing.T) {
	directory := t.TempDir()
	holder := exec.Command(os.Args[0], "-test.run=^TestHold$", "-test.v")
	holder.Env = append(os.Environ(), holdVariable+"="+directory)
	output, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() && lines.Text() != "holding" {
	}
	wantRefused(t, directory, fmt.Sprintf("in use by process %d since 20", holder.Process.Pid))
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // It was killed.
	e := open(t, directory, small)
	if kept := count(t, space(t, e)); kept != 1 {
		t.Fatalf("the space is at %d, want 1", kept)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderThatIsNotAStoreIsRefusedAndLeftAlone(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "thesis.tex"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, directory, directory, "thesis.tex", "not a Tidemark store")
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the folder holds %v, %v", entries, err)
	}
	file := filepath.Join(directory, "thesis.tex")
	wantRefused(t, file, file)
}

func TestAFolderThatIsEmptyButForTheTracesOfAnInterruptedStartIsTaken(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "a", "b")
	if err := os.MkdirAll(filepath.Join(directory, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LOCK", "OWNER", "OWNER.new", "FORMAT.new"} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("process 1 since then"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t, directory, small).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTheFormatIsWrittenAndANewerOneIsRefused(t *testing.T) {
	directory := t.TempDir()
	options := small
	options.WrittenBy = "tidemark 9.9"
	if err := open(t, directory, options).Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(directory, "FORMAT")
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "tidemark-pebble 1\nwritten by tidemark 9.9\n" {
		t.Fatalf("FORMAT is %q, %v", text, err)
	}
	if err := os.WriteFile(file, []byte("tidemark-pebble 2\nwritten by tidemark 12\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, directory, "format 2", "tidemark 12", "up to format 1")
	for _, damaged := range []string{"", "tidemark-pebble", "tidemark-pebble x\n", "tidemark-pebble 0\n", "\x00\x00"} {
		if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, directory, file)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, directory, small).Close(); err != nil {
		t.Fatal(err)
	}
}
