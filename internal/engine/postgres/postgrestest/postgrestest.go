// Package postgrestest starts real PostgreSQL clusters for tests: in a
// temporary folder, with fsync on, on a Unix socket and a free port of the
// loopback interface, by an unprivileged user where the tests are root's.
//
// A test binary shares one cluster, and each test takes a schema of its own:
//
//	func TestMain(m *testing.M) { postgrestest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		url, schema := postgrestest.Shared(t).URL(), postgrestest.Schema()
//		…
//	}
package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Cluster is a PostgreSQL server with its data.
type Cluster struct {
	binaries string // the folder of postgres, initdb and the others
	folder   string // holds the data, the socket and the server's log
	port     int

	mu sync.Mutex
	// The following are protected by mu.
	server *exec.Cmd     // nil while stopped
	exited chan struct{} // closed when the server has exited
}

// startTimeout is for a server to start and stop, also after a crash.
const startTimeout = 60 * time.Second

// binariesPattern is where Debian has the programs, by version.
const binariesPattern = "/usr/lib/postgresql/*/bin"

var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Main runs the tests of a binary, removes the shared cluster after them and
// calls what else is to be done then. It is called by TestMain and does not
// return.
func Main(m *testing.M, after ...func()) {
	code := m.Run()
	for _, do := range after {
		do()
	}
	if shared.cluster != nil {
		shared.cluster.remove()
	}
	os.Exit(code)
}

// Shared returns the cluster of the test binary, which it starts when it is
// first asked for. Main must run the tests.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.once.Do(func() { shared.cluster, shared.err = newCluster() })
	if shared.err != nil {
		t.Fatalf("start PostgreSQL for the tests: %v", shared.err)
	}
	return shared.cluster
}

// New starts a cluster for one test.
func New(t testing.TB) *Cluster {
	t.Helper()
	c, err := newCluster()
	if err != nil {
		t.Fatalf("start PostgreSQL for the test: %v", err)
	}
	t.Cleanup(c.remove)
	return c
}

var schemas atomic.Int64

// Open starts a cluster for a program that is no test; remove takes it away.
func Open() (c *Cluster, remove func(), err error) {
	if c, err = newCluster(); err != nil {
		return nil, nil, err
	}
	return c, c.remove, nil
}

// Schema returns the name of a schema that no test of the binary has had.
func Schema() string { return fmt.Sprintf("test_%d", schemas.Add(1)) }

func newCluster() (*Cluster, error) {
	c, err := emptyCluster()
	if err != nil {
		return nil, err
	}
	err = c.run("initdb", "--pgdata", c.data(), "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--no-locale", "--no-sync")
	if err == nil {
		err = c.start()
	}
	if err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

// emptyCluster returns a cluster whose folder is empty.
func emptyCluster() (*Cluster, error) {
	binaries, err := findBinaries()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "tidemark-postgres-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{binaries: binaries, folder: folder}
	if attributes, err := unprivileged(); err != nil {
		return nil, err
	} else if credential := attributes.Credential; credential != nil {
		if err := os.Chown(folder, int(credential.Uid), int(credential.Gid)); err != nil {
			return nil, err
		}
	}
	c.port, err = freePort()
	return c, err
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }() // It has served its purpose.
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// findBinaries returns the newest PostgreSQL's folder. Where there is none and
// the tests run as root, as in CI, it installs Debian's.
func findBinaries() (string, error) {
	if found := installed(); found != "" {
		return found, nil
	}
	const help = "no PostgreSQL in " + binariesPattern + ": install Debian's package postgresql"
	if os.Geteuid() != 0 {
		return "", errors.New(help)
	}
	install := exec.Command("sh", "-c", "apt-get update && apt-get install --yes --no-install-recommends postgresql")
	install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	output, err := install.CombinedOutput()
	if found := installed(); found != "" {
		return found, nil
	}
	if err == nil {
		err = errors.New("apt-get installed nothing")
	}
	return "", fmt.Errorf("%s: %w\n%s", help, err, output)
}

func installed() string {
	found, _ := filepath.Glob(binariesPattern) // The pattern is well formed.
	found = slices.DeleteFunc(found, func(folder string) bool {
		_, err := os.Stat(filepath.Join(folder, "initdb"))
		return err != nil
	})
	version := func(folder string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
		return n
	}
	if len(found) == 0 {
		return ""
	}
	return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
}

// unprivileged makes programs run as the user postgres where the tests run as
// root, which PostgreSQL refuses to.
func unprivileged() (*syscall.SysProcAttr, error) {
	attributes := &syscall.SysProcAttr{}
	if os.Geteuid() != 0 {
		return attributes, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres: %w", err)
	}
	uid, _ := strconv.ParseUint(account.Uid, 10, 32) // A number on every Unix.
	gid, _ := strconv.ParseUint(account.Gid, 10, 32)
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attributes, nil
}

// run runs one of PostgreSQL's programs.
func (c *Cluster) run(program string, arguments ...string) error {
	attributes, err := unprivileged()
	if err != nil {
		return err
	}
	command := exec.Command(filepath.Join(c.binaries, program), arguments...)
	command.SysProcAttr = attributes
	command.Dir = c.folder
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, output)
	}
	return nil
}

func (c *Cluster) data() string { return filepath.Join(c.folder, "data") }

// Port is the server's port on 127.0.0.1.
func (c *Cluster) Port() int { return c.port }

// URL is what connects to the cluster, over its Unix socket.
func (c *Cluster) URL() string {
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d", c.folder, c.port)
}

// TCP is what connects to the cluster over the loopback interface.
func (c *Cluster) TCP() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres", c.port)
}

// start starts the server and waits until it answers.
func (c *Cluster) start() error {
	attributes, err := unprivileged()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(c.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	server := exec.Command(filepath.Join(c.binaries, "postgres"), "-D", c.data(), "-p", strconv.Itoa(c.port),
		"-k", c.folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=on", "-c", "shared_buffers=64MB")
	server.SysProcAttr = attributes
	server.Dir = c.folder
	server.Stdout, server.Stderr = log, log
	// The server ends with the tests, however these end. The kernel sends the
	// signal when the thread ends that started the server, so that one waits.
	attributes.Pdeathsig = syscall.SIGQUIT
	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(exited)
		defer func() { _ = log.Close() }() // The server has its own.
		err := server.Start()
		started <- err
		if err == nil {
			_ = server.Wait() // How it ended is in its log.
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	c.mu.Lock()
	c.server, c.exited = server, exited
	c.mu.Unlock()
	return c.awaitReady(exited)
}

func (c *Cluster) awaitReady(exited <-chan struct{}) error {
	deadline := time.Now().Add(startTimeout)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := pgx.Connect(ctx, c.URL())
		if err == nil {
			_ = conn.Close(ctx) // It was only to see whether it opens.
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("the server exited\n%s", c.log())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer: %w\n%s", err, c.log())
		}
	}
}

// log is the end of the server's log.
func (c *Cluster) log() string {
	content, err := os.ReadFile(filepath.Join(c.folder, "log"))
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-4096):])
}

// signal ends the server by a signal and waits for its end.
func (c *Cluster) signal(s syscall.Signal) {
	c.mu.Lock()
	server, exited := c.server, c.exited
	c.server = nil
	c.mu.Unlock()
	if server == nil {
		return
	}
	_ = server.Process.Signal(s) // It may have exited by itself.
	select {
	case <-exited:
	case <-time.After(startTimeout):
		_ = server.Process.Kill()
		<-exited
	}
}

// Crash ends the server as a crash would: no transaction is finished, no
// buffer written, and the next start recovers from the log.
func (c *Cluster) Crash() { c.signal(syscall.SIGQUIT) }

// Stop ends the server in order; it rolls back what is running.
func (c *Cluster) Stop() { c.signal(syscall.SIGINT) }

// Start starts a server that was stopped or crashed.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	if err := c.start(); err != nil {
		t.Fatalf("start PostgreSQL again: %v", err)
	}
}

func (c *Cluster) remove() {
	c.signal(syscall.SIGQUIT)
	_ = os.RemoveAll(c.folder) // What cannot be removed is in the folder for such things.
}

// Standby starts a standby of the cluster, with streaming replication, and
// makes the cluster wait for it at every commit.
func (c *Cluster) Standby(t testing.TB) *Cluster {
	t.Helper()
	standby, err := emptyCluster()
	if err == nil {
		t.Cleanup(standby.remove)
		err = standby.run("pg_basebackup", "--pgdata", standby.data(), "--dbname",
			c.TCP()+"?application_name=standby", "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	}
	if err == nil {
		err = standby.start()
	}
	if err != nil {
		t.Fatalf("start a standby: %v", err)
	}
	c.SQL(t, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	c.SQL(t, "SELECT pg_reload_conf()")
	deadline := time.Now().Add(startTimeout)
	for !strings.Contains(c.Query(t, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"), "1") {
		if time.Now().After(deadline) {
			t.Fatalf("the standby does not follow\n%s", standby.log())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return standby
}

// Promote makes a standby the primary.
func (c *Cluster) Promote(t testing.TB) {
	t.Helper()
	c.SQL(t, "SELECT pg_promote(true, 60)")
}

// SQL runs a statement.
func (c *Cluster) SQL(t testing.TB, statement string, arguments ...any) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, c.URL())
	if err == nil {
		_, err = conn.Exec(ctx, statement, arguments...)
		_ = conn.Close(ctx) // Everything has been said.
	}
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// Query runs a query in psql and returns what that prints, aligned.
func (c *Cluster) Query(t testing.TB, query string) string {
	t.Helper()
	var failure bytes.Buffer
	command := exec.Command(filepath.Join(c.binaries, "psql"), "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command", query, c.URL())
	command.Stderr = &failure
	output, err := command.Output()
	if err != nil {
		t.Fatalf("psql: %v\n%s\n%s", err, failure.String(), query)
	}
	return string(output)
}
