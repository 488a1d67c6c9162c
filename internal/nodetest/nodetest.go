// Package nodetest is for tests that run nodes as their users do: the real
// binary, built once for a test binary, as processes that are interrupted and
// killed; a network in between that loses what it is told to; and a wait, with
// a bound, for what others bring about.
//
// Whatever a test starts ends with the test, and a test that fails shows what
// its processes logged. A test binary that uses the node's binary removes it:
//
//	func TestMain(m *testing.M) { nodetest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		n := nodetest.Serve(t, "--data", t.TempDir())
//		…
//		n.Kill()
//		n.Again()
//	}
package nodetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// binary is the node's binary, once it was asked for.
var binary struct {
	once   sync.Once
	folder string
	err    error
}

// Main runs the tests of a binary and exits as they do.
func Main(m *testing.M) {
	status := m.Run()
	Remove()
	os.Exit(status)
}

// Remove removes the binary. It is for a TestMain that is not Main.
func Remove() {
	if binary.folder != "" {
		_ = os.RemoveAll(binary.folder) // What stays is in the folder for such things.
	}
}

// Binary is the path of tidemark, which is built when it is first asked for.
func Binary(t testing.TB) string {
	t.Helper()
	binary.once.Do(func() { binary.err = build() })
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return filepath.Join(binary.folder, "tidemark")
}

func build() (err error) {
	if binary.folder, err = os.MkdirTemp("", "tidemark-binary-"); err != nil {
		return err
	}
	command := exec.Command("go", "build", "-o", binary.folder, "github.com/tidemarkdb/tidemark/cmd/tidemark")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("the binary does not build: %w\n%s", err, out)
	}
	return nil
}

// Run runs tidemark to its end, with input on its standard input, and returns
// what it prints and its status.
func Run(t testing.TB, input string, arguments ...string) (out, errors string, status int) {
	t.Helper()
	command := exec.Command(Binary(t), arguments...)
	command.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), command.ProcessState.ExitCode()
}

// MustRun is Run of what must succeed; it returns what is printed.
func MustRun(t testing.TB, input string, arguments ...string) string {
	t.Helper()
	out, errors, status := Run(t, input, arguments...)
	if status != 0 {
		t.Fatalf("tidemark %s exits with %d\n%s%s", strings.Join(arguments, " "), status, out, errors)
	}
	return out
}

// lookEvery is how often Eventually looks.
const lookEvery = 5 * time.Millisecond

// Eventually waits until something holds that others bring about, at most for
// as long as within. What did not come about is told as Printf would, with the
// arguments as they are at the end, where they are pointers.
func Eventually(t testing.TB, within time.Duration, holds func() bool, what string, arguments ...any) {
	t.Helper()
	for deadline := time.Now().Add(within); !holds(); time.Sleep(lookEvery) {
		if time.Now().After(deadline) {
			t.Fatalf("within %s it did not come about that %s", within, fmt.Sprintf(what, arguments...))
		}
	}
}
