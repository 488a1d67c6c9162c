package shell_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

// terminal is a program in a pseudo terminal.
type terminal struct {
	*testing.T
	command *exec.Cmd
	file    *os.File
	exited  chan error

	mu sync.Mutex
	// The following are protected by mu.
	shown   strings.Builder
	changed chan struct{}
	// seen is how much of what was shown a wait has passed.
	seen int
}

// patience is how long something may take to be shown.
const patience = 20 * time.Second

// start starts the shell in a terminal of its own.
func start(t *testing.T, environment []string, arguments ...string) *terminal {
	t.Helper()
	command := exec.Command(nodetest.Binary(t), append([]string{"shell"}, arguments...)...)
	command.Env = append(os.Environ(), append([]string{"TERM=xterm", "NO_COLOR="}, environment...)...)
	file, err := pty.StartWithSize(command, &pty.Winsize{Rows: 50, Cols: 200})
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{T: t, command: command, file: file, exited: make(chan error, 1), changed: make(chan struct{})}
	go x.read()
	go func() { x.exited <- command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Kill() // It has ended, if the test went well.
		_ = file.Close()
	})
	return x
}

func (x *terminal) read() {
	buffer := make([]byte, 4096)
	for {
		n, err := x.file.Read(buffer)
		x.mu.Lock()
		x.shown.Write(buffer[:n])
		close(x.changed)
		x.changed = make(chan struct{})
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// escapes are what moves the cursor and colours the text.
var escapes = regexp.MustCompile(`\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07]*\x07|[()].|[=>78M])`)

// sees waits until a text is shown, after what the last wait was for.
func (x *terminal) sees(text string) {
	x.Helper()
	deadline := time.After(patience)
	for {
		x.mu.Lock()
		shown, changed := x.shown.String(), x.changed
		x.mu.Unlock()
		plain := escapes.ReplaceAllString(shown, "")
		if at := strings.Index(plain[min(x.seen, len(plain)):], text); at >= 0 {
			x.seen += at + len(text)
			return
		}
		select {
		case <-changed:
		case <-deadline:
			x.Fatalf("the terminal does not show %q after\n%s\nbut\n%q", text, plain[:min(x.seen, len(plain))], plain[min(x.seen, len(plain)):])
		}
	}
}

// types types keys.
func (x *terminal) types(keys string) {
	x.Helper()
	if _, err := x.file.WriteString(keys); err != nil {
		x.Fatal(err)
	}
}

// ends waits until the program has ended, well.
func (x *terminal) ends() {
	x.Helper()
	select {
	case err := <-x.exited:
		if err != nil {
			x.Fatalf("the shell ended with %v", err)
		}
	case <-time.After(patience):
		x.Fatal("the shell does not end")
	}
}

const (
	enter     = "\r"
	tab       = "\t"
	interrupt = "\x03"
	endOfFile = "\x04"
	up        = "\x1b[A"
)
