package lang

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// chapters are the files whose productions grammar.txt holds, in its order.
var chapters = []struct{ file, title string }{
	{"statement.go", "Scripts"},
	{"parser.go", "Names, values and what stands before a name"},
	{"record.go", "Records and messages"},
	{"select.go", "SELECT"},
	{"transaction.go", "Transactions, SLEEP"},
	{"define.go", "Definitions, USE, DROP, INFO"},
	{"topic.go", "Topics"},
	{"read.go", "Reading topics, settling messages"},
	{"group.go", "Groups"},
	{"consumer.go", "Consumers that the nodes run"},
	{"user.go", "Users and grants"},
	{"expression.go", "Expressions"},
	{"operand.go", "Operands"},
	{"literal.go", "Literals in quotes"},
	{"lexer.go", "Numbers"},
}

// grammar.txt is the productions over the parser's methods, in one place; the
// prose before its first chapter is written by hand.
func TestGrammarIsThatOfTheMethods(t *testing.T) {
	content, err := os.ReadFile("grammar.txt")
	if err != nil {
		t.Fatal(err)
	}
	prose, _, _ := strings.Cut(string(content), "# ")
	want := prose
	held := map[string]bool{}
	for _, chapter := range chapters {
		held[chapter.file] = true
		want += "# " + chapter.title + "\n\n" + productions(t, chapter.file) + "\n"
	}
	want = strings.TrimSuffix(want, "\n")
	if *rewrite {
		if err := os.WriteFile("grammar.txt", []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if string(content) != want {
		t.Error("grammar.txt is not what the methods say; run the tests with -rewrite")
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !held[file] && !strings.HasSuffix(file, "_test.go") && file != "lang.go" && productions(t, file) != "" {
			t.Errorf("%s has productions and is in no chapter", file)
		}
	}
}

// productions are the indented lines of a file's comments that are not code.
func productions(t *testing.T, file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for line := range strings.Lines(string(content)) {
		if production, ok := strings.CutPrefix(line, "//\t"); ok {
			lines.WriteString(production)
		}
	}
	return lines.String()
}
