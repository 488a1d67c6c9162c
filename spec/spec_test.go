package spec_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the answers that were given into the scripts")

// inProcess are the chapters that no caller of a node can speak: who the callers
// are, since they speak as the process that has the store. How one signs in to a
// node is tested in test/node.
var inProcess = map[string]bool{"26-users.script": true, "27-public.script": true}

func TestEveryScriptAnswersAsItIsWrittenOnEverySurface(t *testing.T) {
	paths, err := filepath.Glob("*.script")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(path, ".script"), func(t *testing.T) {
			for _, on := range surfaces {
				if on.served && inProcess[path] {
					continue
				}
				t.Run(on.name, func(t *testing.T) {
					// Read anew, so that after a rewrite the others are held
					// against what the first surface wrote.
					wanted, err := readScript(path)
					if err != nil {
						t.Fatal(err)
					}
					got := runScript(t, wanted, on)
					if *rewrite && on.name == surfaces[0].name {
						if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
							t.Fatal(err)
						}
						return
					}
					for _, difference := range differences(wanted, got) {
						t.Error(difference)
					}
				})
			}
		})
	}
}

// differences tells of every answer that is not the one that is written, with
// its statement.
func differences(wanted, got *script) []string {
	var all []string
	compare := func(line int, statement, wanted, got string) {
		if wanted != got {
			all = append(all, fmt.Sprintf("%s\n%s\nwanted\n%s\ngot\n%s\n", position(line), statement, orNothing(wanted), orNothing(got)))
		}
	}
	for i, step := range wanted.steps {
		switch w := step.(type) {
		case *steering:
			compare(w.line(), w.text, w.answer, got.steps[i].(*steering).answer)
		case *request:
			for j, line := range w.lines {
				compare(w.line(), w.prompt+w.source(), line.answer, got.steps[i].(*request).lines[j].answer)
			}
		}
	}
	return all
}

func position(line int) string { return fmt.Sprintf("line %d:", line) }

func orNothing(answer string) string {
	if answer == "" {
		return "(null, which is not written)"
	}
	return answer
}

func TestAScriptPrintsBackToItself(t *testing.T) {
	paths, err := filepath.Glob("*.script")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parseScript(path, string(content))
		if err != nil {
			t.Fatal(err)
		}
		if parsed.String() != string(content) {
			t.Errorf("%s prints back to\n%s", path, parsed)
		}
	}
}

const header = "DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE d; USE DATABASE d; DEFINE TOPIC t;\n"

func TestAnAnswerThatIsNotTheWrittenOneIsToldWithItsStatement(t *testing.T) {
	for name, c := range map[string]struct{ script, wanted string }{
		"another answer":         {"CREATE t = 5;\n=> [{\"id\":\"t:u'#1'\",\"position\":2,\"value\":5}]\n", `"position":1`},
		"an answer left out":     {"CREATE t = 5;\n", "(null, which is not written)"},
		"an answer to nothing":   {"USE DATABASE d;\n=> null\n", "(null, which is not written)"},
		"another kind of error":  {"READ FROM x;\n=> error NotAGroup: topic x does not exist in this database\n", "error NotFound"},
		"another message":        {"READ FROM x;\n=> error NotFound: no topic x\n", "topic x does not exist"},
		"a lapsed note too many": {"READ FROM t;\n=> [] lapsed 1\n", "=> []"},
		"of another caller":      {"one> READ FROM t;\n=> [5]\n", "one> READ FROM t;"},
		"of a started request":   {"start one> READ FROM t WAIT 1ms;\nfinish one\n=> [5]\n", "finish one"},
	} {
		t.Run(name, func(t *testing.T) {
			written, err := parseScript(name, header+c.script)
			if err != nil {
				t.Fatal(err)
			}
			told := differences(written, runScript(t, written, surfaces[0]))
			if len(told) != 1 || !strings.Contains(told[0], c.wanted) {
				t.Errorf("%q; want one that tells %s", told, c.wanted)
			}
		})
	}
}

func TestAScriptThatCannotBeReadSaysWhere(t *testing.T) {
	_, err := parseScript("some.script", "# prose\n\n=> []\n")
	if err == nil || err.Error() != "some.script:3: an answer to nothing" {
		t.Error(err)
	}
}
