package client

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A program that speaks to nodes gets a WebSocket library, and nothing of what
// stores.
func TestTheClientBringsFewDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/tidemarkdb/tidemark"
	packages := []string{module + "/client/go", module + "/fault", module + "/value"}
	modules := []string{"github.com/coder/websocket", "github.com/google/uuid", "github.com/x448/float16"}
	for line := range strings.Lines(string(out)) {
		path, of, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains(packages, path) && !slices.Contains(modules, of) {
			t.Errorf("it depends on %s of %s", path, of)
		}
	}
}
