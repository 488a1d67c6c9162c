package generate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/extract"
	"github.com/tidemarkdb/tidemark/ftl/generate"
	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/deploy"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/store"
)

var rewrite = flag.Bool("rewrite", false, "write what is generated over the golden files")

func parse(t *testing.T, text string) *schema.Module {
	t.Helper()
	s, err := schema.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s.Modules[0]
}

func TestTheMainHandsEveryFunctionToTheRunnerByItsShape(t *testing.T) {
	m := &extract.Module{
		Schema: parse(t, `module shop {
			topic orders Order
			topic copies Order
			subscription handling orders
			subscription copying orders
			data Order { id String }
			verb buy(Order) Order { +ingress http POST /orders }
			verb note(Order)
			verb list() [Order]
			verb sweep()
			sink handle(Order) { +subscribe handling }
			mapper copy(Order) Order { +map copying copies }
		}`),
		ImportPath: "example.com/a/shop-2", Package: "shop",
		Functions: map[string]string{"buy": "Buy", "note": "Note", "list": "List", "sweep": "Sweep", "handle": "Handle", "copy": "Copy"},
	}
	got, err := generate.Main(m)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/main.golden"
	if *rewrite {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("generated\n%s\nwant\n%s", got, want)
	}
}

// example is a module of the examples, to be built in a folder of the test's.
func example(t *testing.T, name string) *extract.Module {
	t.Helper()
	modules, err := extract.Extract(t.Context(), filepath.Join("..", "..", "examples", "modules", name))
	if err != nil {
		t.Fatal(err)
	}
	// Inside the Go module, whose packages the main imports.
	folder, err := os.MkdirTemp("testdata", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if modules[0].Dir, err = filepath.Abs(folder); err != nil {
		t.Fatal(err)
	}
	return modules[0]
}

func TestGeneratingAgainTouchesNothing(t *testing.T) {
	m := example(t, "payments")
	if err := generate.Write(m); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(m.Dir, generate.Folder, "main.go")
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(file, long, long); err != nil {
		t.Fatal(err)
	}
	if err := generate.Write(m); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || !info.ModTime().Equal(long) {
		t.Errorf("the main was written again: %v, %v", info.ModTime(), err)
	}
	if ignored, err := os.ReadFile(filepath.Join(m.Dir, generate.Folder, ".gitignore")); err != nil || string(ignored) != "*\n" {
		t.Errorf("git ignores %q, %v", ignored, err)
	}
}

func TestWhatTheCompilerFindsIsInTheError(t *testing.T) {
	m := example(t, "receipts")
	m.Functions["showReceipt"] = "ShowNothing"
	if _, err := generate.Build(t.Context(), m); !errors.Is(err, fault.InvalidClause) || !strings.Contains(err.Error(), "ShowNothing") {
		t.Errorf("built with %v", err)
	}
}

// node is a store in memory that is served and dispatches.
func node(t *testing.T) (url string, host *deploy.Host) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	engine, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), engine, store.Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	served, err := server.New(server.Options{Store: s, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	host = deploy.Start(deploy.Options{Store: s, Log: quiet})
	mux := http.NewServeMux()
	mux.Handle("/", served.Handler())
	mux.Handle(ftlwire.Path, host.Handler())
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		host.Stop(ctx)
		_ = served.Shutdown(ctx)
		web.Close()
		_ = s.Close()
	})
	return "ws" + strings.TrimPrefix(web.URL, "http"), host
}

// start runs a module's binary and returns where it serves its verbs.
func start(t *testing.T, url string, m *extract.Module) (process *exec.Cmd, ingress string) {
	t.Helper()
	binary, err := generate.Build(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	process = exec.Command(binary, "-node", url, "-deployment", "d1", "-ingress", "127.0.0.1:0")
	process.Stderr = t.Output()
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the module ended: %v", err)
	}
	return process, line[strings.LastIndex(line, " ")+1 : len(line)-1]
}

// ask sends a request and returns its status and body.
func ask(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}

func TestTheExamplesBinariesRunAndEndInOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds two binaries")
	}
	url, host := node(t)
	modules := []*extract.Module{example(t, "payments"), example(t, "receipts")}
	deployments := map[string]string{"payments": "d1", "receipts": "d1"}
	if _, err := host.Provision(t.Context(), ftlwire.DefaultDatabase, deployments, extract.SchemaOf(modules).String()); err != nil {
		t.Fatal(err)
	}
	process, payments := start(t, url, modules[0])
	_, receipts := start(t, url, modules[1])
	status, answer := ask(t, http.MethodPost, payments+"/payment", `{"customer":"","amount":4005}`)
	if status != http.StatusBadRequest || !strings.Contains(answer, `"field":"customer"`) {
		t.Errorf("a payment of nobody is answered %d %s", status, answer)
	}
	status, answer = ask(t, http.MethodPost, payments+"/payment", `{"customer":"ada","amount":4005}`)
	var accepted struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &accepted); err != nil || status != http.StatusOK {
		t.Fatalf("answered %d %s", status, answer)
	}
	want := `{"customer":"ada","payment":"` + accepted.ID + `","text":"Received of ada: 40.05"}`
	nodetest.Eventually(t, 20*time.Second, func() bool {
		status, answer = ask(t, http.MethodGet, receipts+"/receipt/"+accepted.ID, "")
		return status == http.StatusOK
	}, "the payment has its receipt")
	if answer != want {
		t.Errorf("the receipt is %d %s, want %s", status, answer, want)
	}
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("the module ended with %v", err)
	}
}
