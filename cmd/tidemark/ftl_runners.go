package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/ftl/extract"
	"github.com/tidemarkdb/tidemark/ftl/generate"
	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// The bounds of the processes of modules.
const (
	// firstRestart and longestRestart bound the pause before a process that died
	// is started again; it doubles while they die at once.
	firstRestart   = 500 * time.Millisecond
	longestRestart = 30 * time.Second
	// lived is how long a process runs whose death is taken for the first.
	lived = time.Minute
	// endingTime is how long processes that are told to end may take: a little
	// longer than they give themselves.
	endingTime = 35 * time.Second
)

// build is a module as it was built.
type build struct {
	module *extract.Module
	// binary is kept for this build alone, and deployment is made of its content:
	// what is built again without a change is the same deployment.
	binary, deployment string
}

func (b build) name() string { return b.module.Schema.Name }

// buildModules builds modules at the same time, and keeps the binaries in a
// folder of the caller's. flags are more flags of go build.
func buildModules(ctx context.Context, modules []*extract.Module, keep string, flags ...string) ([]build, error) {
	builds := make([]build, len(modules))
	building, ctx := errgroup.WithContext(ctx)
	for i, module := range modules {
		building.Go(func() (err error) {
			builds[i], err = buildModule(ctx, module, keep, flags)
			return err
		})
	}
	return builds, building.Wait()
}

func buildModule(ctx context.Context, module *extract.Module, keep string, flags []string) (build, error) {
	binary, err := generate.Build(ctx, module, flags...)
	if err != nil {
		return build{}, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return build{}, err
	}
	sum := sha256.Sum256(content)
	b := build{module: module, deployment: hex.EncodeToString(sum[:6])}
	b.binary = filepath.Join(keep, b.name()+"-"+b.deployment)
	return b, keepBinary(b.binary, content)
}

// keepBinary writes a binary, unless it is there: then it may be running.
func keepBinary(file string, content []byte) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return os.WriteFile(file, content, 0o755)
}

// textOf is the schema of builds, and the ids of their deployments by module.
func textOf(builds []build) (text string, deployments map[string]string) {
	declared, deployments := &schema.Schema{}, map[string]string{}
	for _, b := range builds {
		declared.Modules = append(declared.Modules, b.module.Schema)
		deployments[b.name()] = b.deployment
	}
	return declared.String(), deployments
}

// runners are the processes of modules that a command runs: one a module, and
// for a while the one before it. A process that dies is started again.
type runners struct {
	// nodes and database say where they run, say takes the lines they print.
	nodes, database string
	say             func(module, line string)
	ingress         *router

	processes sync.WaitGroup
	mu        sync.Mutex
	// The following are protected by mu.
	running map[string]*process
	ending  bool
	// superseded says that somebody else's deployment has taken over.
	superseded map[string]bool
}

func newRunners(nodes, database string, ingress *router, say func(module, line string)) *runners {
	return &runners{
		nodes: nodes, database: database, ingress: ingress, say: say,
		running: map[string]*process{}, superseded: map[string]bool{},
	}
}

// process is one build that runs.
type process struct {
	build build
	// socket is where the module serves its verbs: all processes of the module
	// take from it, so that a new one leaves no gap.
	socket *os.File
	// stopped is closed when the process is to end, ended when it has.
	stop, ended chan struct{}
}

// start runs a build in place of the one before, which ends when the new one has
// taken over: the node tells it.
func (r *runners) start(b build) error {
	socket, err := r.ingress.socketOf(b.name())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending {
		return context.Canceled
	}
	p := &process{build: b, socket: socket, stop: make(chan struct{}), ended: make(chan struct{})}
	r.running[b.name()] = p
	delete(r.superseded, b.name())
	r.processes.Go(func() { r.keep(p) })
	return nil
}

// keep runs a process, again where it dies, until it ends in order.
func (r *runners) keep(p *process) {
	defer close(p.ended)
	pause := firstRestart
	for {
		began := time.Now()
		err := r.runOnce(p)
		if !r.current(p) {
			return
		}
		if err == nil {
			r.say(p.build.name(), "has ended: another deployment has taken over")
			r.mu.Lock()
			r.superseded[p.build.name()] = true
			r.mu.Unlock()
			return
		}
		if time.Since(began) > lived {
			pause = firstRestart
		}
		r.say(p.build.name(), fmt.Sprintf("died (%s) and is started again in %s", err, pause))
		select {
		case <-p.stop:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longestRestart)
	}
}

// current reports whether a process is its module's newest, and is not told to
// end.
func (r *runners) current(p *process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ending && r.running[p.build.name()] == p
}

// runOnce runs a process until it ends.
func (r *runners) runOnce(p *process) error {
	command := exec.Command(p.build.binary,
		"-node", r.nodes, "-database", r.database, "-deployment", p.build.deployment, "-ingress", "fd:3")
	command.ExtraFiles = []*os.File{p.socket}
	// An interrupt of the terminal is for this process, which passes it on.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, in := io.Pipe()
	command.Stdout, command.Stderr = in, in
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), listensLine(p.build.name())) {
				r.ingress.serves(p.build.name())
			}
			r.say(p.build.name(), lines.Text())
		}
		_, _ = io.Copy(io.Discard, out) // A line that is too long.
	})
	if err := command.Start(); err != nil {
		_ = in.Close()
		reading.Wait()
		return err
	}
	waited := make(chan struct{})
	go func() {
		select {
		case <-waited:
			return
		case <-p.stop:
		}
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-waited:
		case <-time.After(endingTime):
			_ = command.Process.Kill()
		}
	}()
	err := command.Wait()
	close(waited)
	_ = in.Close()
	reading.Wait()
	return err
}

// listensLine is what the line begins with that a process prints when it takes
// requests (ftl/runner).
func listensLine(module string) string { return "module " + module + " listens on " }

// allSuperseded reports whether no module of this command is called any more.
func (r *runners) allSuperseded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running) > 0 && len(r.superseded) == len(r.running)
}

// end tells every process to finish what it holds, and waits until all have.
func (r *runners) end() {
	r.mu.Lock()
	if !r.ending {
		r.ending = true
		for _, p := range r.running {
			close(p.stop)
		}
	}
	r.mu.Unlock()
	r.processes.Wait()
}

// listenOn opens a listener for a command, whose flag names it where it cannot.
func listenOn(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use; %s takes another address, or port 0 for a free one", address, flag)
	}
	return listener, err
}
