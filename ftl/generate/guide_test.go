package generate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/ftl/extract"
	"github.com/tidemarkdb/tidemark/ftl/generate"
)

// block is the n-th fenced block of a language.
func block(t *testing.T, text, language string, n int) string {
	t.Helper()
	parts := strings.Split(text, "\n```"+language+"\n")
	if len(parts) <= n {
		t.Fatalf("the guide has %d blocks of %s", len(parts)-1, language)
	}
	found, _, _ := strings.Cut(parts[n], "\n```")
	return found + "\n"
}

func TestTheModuleOfTheGuideBuildsAndItsTestPasses(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a binary and a test")
	}
	guide, err := os.ReadFile("../../docs/modules.md")
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("testdata", "guide")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	for name, content := range map[string]string{
		"ftl.toml":          block(t, string(guide), "toml", 1),
		"greetings.go":      block(t, string(guide), "go", 1),
		"greetings_test.go": block(t, string(guide), "go", 2),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	modules, err := extract.Extract(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := generate.Build(t.Context(), modules[0]); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "./"+folder).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
