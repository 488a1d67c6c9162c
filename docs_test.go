package tidemark_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/fault"
)

// documents are the files whose examples are run.
func documents(t *testing.T) []string {
	t.Helper()
	guides, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(guides, "README.md")
}

// blocks returns the fenced blocks of a language.
func blocks(text, language string) []string {
	var found []string
	for {
		_, after, ok := strings.Cut(text, "\n```"+language+"\n")
		if !ok {
			return found
		}
		block, rest, _ := strings.Cut(after, "\n```")
		found = append(found, block)
		text = rest
	}
}

func TestEveryExampleInTheDocumentsRuns(t *testing.T) {
	for _, name := range documents(t) {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			store, err := tidemark.OpenMemory()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			db, err := store.Database(context.Background(), "documents", "documents")
			if err != nil {
				t.Fatal(err)
			}
			// The blocks of a document are one session's.
			script := strings.Join(blocks(string(text), "tide"), "\n")
			answers, err := db.Exec(context.Background(), script, nil)
			if err != nil {
				t.Fatalf("%v\nin\n%s", err, script)
			}
			if len(answers) == 0 && strings.Contains(string(text), "```tide") {
				t.Fatal("the document has examples, and none ran")
			}
		})
	}
}

func TestTheReferenceListsEveryKindOfError(t *testing.T) {
	text, err := os.ReadFile("docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range fault.Kinds() {
		again := ""
		if kind.Retriable() {
			again = "yes"
		}
		row := fmt.Sprintf("| `%s` | %s | %s |\n", kind, again, kind.Meaning())
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/reference.md lacks %s", row)
		}
	}
}

// The Go code of README.md stands in readme_test.go, or in the example of a
// module, where it compiles and runs.
func TestTheReadmesProgramIsTheOneThatRuns(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var program []byte
	for _, file := range []string{"readme_test.go", "examples/modules/payments/payments.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		program = append(program, source...)
	}
	normal := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, block := range blocks(string(readme), "go") {
		for _, line := range strings.Split(block, "\n") {
			if line = normal(line); line != "" && !strings.Contains(normal(string(program)), line) {
				t.Errorf("README.md says %q, which stands neither in readme_test.go nor in the example module", line)
			}
		}
	}
}
