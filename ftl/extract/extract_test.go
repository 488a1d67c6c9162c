package extract

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

var update = flag.Bool("update", false, "rewrite what the cases of testdata give")

// The files of a case that hold what it gives.
const (
	wantedSchema = "schema.txt"
	wantedErrors = "errors.txt"
)

// TestSourceGivesItsSchemaOrItsErrors runs the cases of testdata: each is the
// source of some modules and, as its last file, their schema or what is wrong
// with them. A case is the package modules/<its name>/<folder>.
func TestSourceGivesItsSchemaOrItsErrors(t *testing.T) {
	runCases(t, "testdata/*.txtar")
}

func TestAModuleThatCallsCGivesItsSchemaOrItsErrors(t *testing.T) {
	if out, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || strings.TrimSpace(string(out)) != "1" {
		t.Skip("there is no C compiler")
	}
	runCases(t, "testdata/cgo/*.txtar")
}

func runCases(t *testing.T, pattern string) {
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no cases: %v", err)
	}
	root := goModule(t)
	sourcesOf := map[string][]*source{}
	var dirs []string
	for _, path := range paths {
		name := caseName(path)
		unpack(t, path, filepath.Join(root, name))
		found, err := Find(filepath.Join(root, name))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		dirs = append(dirs, found...)
	}
	sources, err := load(t.Context(), dirs)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		relative, _ := filepath.Rel(root, s.dir)
		name, _, _ := strings.Cut(relative, string(filepath.Separator))
		sourcesOf[name] = append(sourcesOf[name], s)
	}
	for _, path := range paths {
		name := caseName(path)
		t.Run(name, func(t *testing.T) {
			file, got := outcome(t, sourcesOf[name], filepath.Join(root, name))
			compare(t, path, file, got)
		})
	}
}

// outcome is what a case gives, and the file that it stands in.
func outcome(t *testing.T, sources []*source, base string) (file, text string) {
	modules, err := extract(sources)
	var wrong Diagnostics
	if errors.As(err, &wrong) {
		return wantedErrors, wrong.Render(base)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := SchemaOf(modules)
	if problems := s.Problems(); problems != nil {
		t.Errorf("the schema has problems that extraction let pass: %v", problems)
	}
	return wantedSchema, s.String()
}

func compare(t *testing.T, path, file, got string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []txtar.File
	wanted := ""
	for _, f := range archive.Files {
		switch f.Name {
		case wantedSchema, wantedErrors:
			wanted += "-- " + f.Name + " --\n" + string(f.Data)
		default:
			kept = append(kept, f)
		}
	}
	if *update {
		kept = append(kept, txtar.File{Name: file, Data: []byte(got)})
		archive.Files = kept
		if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := "-- " + file + " --\n" + got; got != wanted {
		t.Errorf("gives\n%s\nwant\n%s", got, wanted)
	}
}

func caseName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".txtar") }

func unpack(t *testing.T, path, dir string) {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		write(t, filepath.Join(dir, f.Name), string(f.Data))
	}
}

// goModule makes a folder a Go module that can import this one, and what this
// one needs, without a network.
func goModule(t *testing.T) string {
	t.Helper()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	const path = "github.com/tidemarkdb/tidemark"
	goMod := strings.Replace(read(t, filepath.Join(repository, "go.mod")), "module "+path, "module modules", 1) +
		"\nrequire " + path + " v0.0.0\n\nreplace " + path + " => " + repository + "\n"
	write(t, filepath.Join(dir, "go.mod"), goMod)
	write(t, filepath.Join(dir, "go.sum"), read(t, filepath.Join(repository, "go.sum")))
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// seedSchema is the schema that seed 004 draws, which leaves out data types and
// what is published.
const seedSchema = `module payments {
    topic payins PaymentEvent
    subscription paymentProcessing payins

    verb payin(PayinRequest) PayinResponse {
        +ingress http POST /payment
    }

    sink processPayin(PaymentEvent) {
        +subscribe paymentProcessing
    }
}`

func TestTheSourceOfTheSeedGivesTheSchemaOfTheSeed(t *testing.T) {
	root := goModule(t)
	unpack(t, "testdata/seed.txtar", filepath.Join(root, "seed"))
	modules, err := Extract(t.Context(), filepath.Join(root, "seed/payments"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := schema.ParseModule(seedSchema)
	if err != nil {
		t.Fatal(err)
	}
	got := modules[0].Schema
	got.Data = nil
	for _, verb := range got.Verbs {
		verb.Publish = nil
	}
	if got.String() != want.String() {
		t.Errorf("gives\n%s\nwant\n%s", got, want)
	}
}
