package tidemark_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers are the packages that each package may import, of this module. What
// is not listed may import nothing of it but value and fault.
var layers = map[string][]string{
	".":                         {"client/go", "internal/engine", "internal/engine/pebble", "internal/engine/postgres", "internal/ingest", "internal/session", "internal/store", "internal/topic"},
	"cmd/tidemark":              {".", "internal/backup", "internal/collection", "internal/engine", "internal/engine/pebble", "internal/engine/postgres", "internal/export", "internal/ingest", "internal/lang", "internal/remote", "internal/server", "internal/session", "internal/shell", "internal/store", "client/go", "ftl/extract", "ftl/generate", "ftl/schema", "internal/deploy", "internal/ftlwire"},
	"examples/modules/payments": {"ftl"},
	"examples/modules/receipts": {"examples/modules/payments", "ftl"},
	"ftl":                       {"client/go", "ftl/internal/call", "ftl/internal/event"},
	"ftl/extract":               {"ftl/schema"},
	"ftl/generate":              {"ftl/extract"},
	"ftl/internal/call":         {"client/go", "ftl/schema"},
	"ftl/runner":                {"client/go", "ftl", "ftl/internal/call", "ftl/internal/event", "ftl/schema", "internal/collection", "internal/ftlwire", "internal/workers"},
	"internal/backup":           {"internal/engine", "internal/engine/pebble", "internal/engine/postgres"},
	"internal/deploy":           {"ftl/schema", "internal/deploy/policy", "internal/ftlwire", "internal/session", "internal/store", "internal/topic", "internal/workers"},
	"internal/deploy/policy":    {"ftl/schema"},
	"internal/engine/pebble":    {"internal/engine"},
	"internal/engine/postgres":  {"internal/engine"},
	"internal/export":           {"internal/lang", "internal/store"},
	"internal/ingest":           {"internal/lang", "internal/session", "internal/store", "internal/topic"},
	"internal/remote":           {"client/go", "internal/lang", "internal/session"},
	"internal/server":           {"internal/backup", "internal/export", "internal/lang", "internal/session", "internal/signin", "internal/store"},
	"internal/session":          {"internal/lang", "internal/signin", "internal/store", "internal/topic"},
	"internal/shell":            {"internal/lang", "internal/session"},
	"internal/store":            {"internal/engine", "internal/topic"},
}

const module = "github.com/tidemarkdb/tidemark"

func TestPackagesImportOnlyWhatIsBelowThem(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Fields(line)
		importer := relative(fields[0])
		if strings.HasSuffix(importer, "test") || strings.HasPrefix(importer, "test/") || importer == "spec" {
			continue // Helpers of tests may look anywhere.
		}
		for _, imported := range fields[1:] {
			if !strings.HasPrefix(imported, module) {
				continue
			}
			imported = relative(imported)
			if imported != "value" && imported != "fault" && !slices.Contains(layers[importer], imported) {
				t.Errorf("%s imports %s, which is not below it", importer, imported)
			}
		}
	}
}

func relative(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}
