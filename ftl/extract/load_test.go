package extract

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
)

// TestWhatTheGoCommandCannotLoadSaysWhatTheGoCommandSays is about go.mod files
// for which the go command lists nothing.
func TestWhatTheGoCommandCannotLoadSaysWhatTheGoCommandSays(t *testing.T) {
	root := goModule(t)
	t.Setenv("GOFLAGS", "")
	unpack(t, "testdata/seed.txtar", filepath.Join(root, "seed"))
	tidy := read(t, filepath.Join(root, "go.mod"))
	for _, c := range []struct{ what, goMod, want string }{
		{"a go.mod before go mod tidy", strings.Replace(tidy, "\ngo 1.26", "\ngo 1.20", 1), "go mod tidy"},
		{"a go.mod that does not parse", tidy + "\nnonsense\n", "unknown directive: nonsense"},
	} {
		write(t, filepath.Join(root, "go.mod"), c.goMod)
		_, err := Extract(t.Context(), filepath.Join(root, "seed/payments"))
		if !errors.Is(err, fault.InvalidClause) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s gives %v, want %q", c.what, err, c.want)
		}
	}
}

func TestAnImportThatGoModLacksSaysToTidy(t *testing.T) {
	root := goModule(t)
	t.Setenv("GOFLAGS", "")
	unpack(t, "testdata/seed.txtar", filepath.Join(root, "seed"))
	dir := filepath.Join(root, "seed/payments")
	tidy := read(t, filepath.Join(root, "go.mod"))
	for what, file := range map[string]struct{ name, text, want string }{
		"a go.mod without the requirement": {"go.mod", "module modules\n\ngo 1.26\n", "payments.go:7:2: no required module provides package github.com/tidemarkdb/tidemark/ftl; run go mod tidy"},
		"no go.sum":                        {"go.sum", "", "run go mod tidy"},
	} {
		write(t, filepath.Join(root, "go.mod"), tidy)
		write(t, filepath.Join(root, file.name), file.text)
		_, err := Extract(t.Context(), dir)
		var wrong Diagnostics
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), file.want) || strings.Contains(err.Error(), "go get") {
			t.Errorf("%s gives %v, want %q", what, err, file.want)
		}
	}
}

func TestFilesThatAreLeftOutAreNamed(t *testing.T) {
	t.Setenv("CGO_ENABLED", "0")
	for what, text := range map[string]string{
		"another system": "//go:build !" + runtime.GOOS + "\n\npackage m\n",
		"C":              "package m\n\nimport \"C\"\n",
	} {
		root := goModule(t)
		write(t, filepath.Join(root, "m/ftl.toml"), `module = "m"`)
		write(t, filepath.Join(root, "m/m.go"), text)
		const want = "holds no Go files of its own for this system: m.go is left out by its build constraints, or imports C where there is no C compiler"
		if _, err := Extract(t.Context(), filepath.Join(root, "m")); !errors.Is(err, fault.NotFound) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("a file for %s gives %v, want %s", what, err, want)
		}
	}
}
