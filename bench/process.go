package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The bounds of processes.
const (
	// startTime is how long a process may take to say that it is ready; one that
	// builds a module may take a while.
	startTime = 3 * time.Minute
	// endTime is how long a process that is told to end may take.
	endTime = 40 * time.Second
)

// buildTidemark builds the command into a folder.
func buildTidemark(dir string) (binary string, err error) {
	binary = filepath.Join(dir, "tidemark")
	// From its own module: bench has not what the command is built with.
	build := exec.Command("go", "build", "-o", binary, "./cmd/tidemark")
	build.Dir = ".."
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build tidemark: %w", err)
	}
	return binary, nil
}

// process is one that runs beside the benchmark.
type process struct {
	command *exec.Cmd
	exited  chan struct{}
	// said is what followed the words that the process says when it is ready.
	said string
}

// startProcess starts a binary, and returns when it prints a line that holds
// ready.
func startProcess(binary, ready string, arguments ...string) (*process, error) {
	p := &process{command: exec.Command(binary, arguments...), exited: make(chan struct{})}
	var complaints bytes.Buffer
	p.command.Stderr = &complaints
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	said := make(chan string, 1)
	go func() {
		defer close(p.exited)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, after, ok := strings.Cut(lines.Text(), ready); ok && len(said) == 0 {
				said <- after
			}
		}
		_, _ = io.Copy(io.Discard, out) // A line that is too long.
		_ = p.command.Wait()
	}()
	select {
	case p.said = <-said:
		return p, nil
	case <-p.exited:
		return nil, fmt.Errorf("%s %s has ended: %s", binary, strings.Join(arguments, " "), complaints.Bytes())
	case <-time.After(startTime):
		p.end()
		return nil, fmt.Errorf("%s %s does not become ready within %s: %s", binary, strings.Join(arguments, " "), startTime, complaints.Bytes())
	}
}

// end tells the process to end, and kills it where it does not.
func (p *process) end() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(endTime):
		_ = p.command.Process.Kill()
		<-p.exited
	}
}
