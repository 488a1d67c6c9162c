package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runTidemark runs a command line and returns what it printed and its status.
func runTidemark(t *testing.T, stdin string, arguments ...string) (out, errors string, status int) {
	t.Helper()
	var o, e strings.Builder
	status = run(&surroundings{ctx: t.Context(), in: strings.NewReader(stdin), out: &o, errors: &e}, arguments)
	return o.String(), e.String(), status
}

func TestRunExitsWithWhatItsScriptsCameTo(t *testing.T) {
	for _, c := range []struct {
		name, script string
		status       int
		lines        []string
	}{
		{"all ok", "DEFINE NAMESPACE n; USE NAMESPACE n;", 0, []string{`{"ok":true,"answer":null}`, `{"ok":true,"answer":null}`}},
		{
			"goes on after a failure", "USE NAMESPACE nobody; DEFINE NAMESPACE n;", 1,
			[]string{`{"ok":false,"error":{"kind":"NotFound","message":"namespace nobody does not exist"}}`, `{"ok":true,"answer":null}`},
		},
		{
			"nothing of a script that does not parse", "DEFINE NAMESPACE n; NONSENSE;", 2,
			[]string{`{"ok":false,"error":{"kind":"Syntax",`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, _, status := runTidemark(t, c.script, "run", "--json", "-")
			if status != c.status {
				t.Errorf("exits with %d, want %d", status, c.status)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if len(lines) != len(c.lines) {
				t.Fatalf("printed %q, want %q", lines, c.lines)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, c.lines[i]) {
					t.Errorf("printed %s, want %s", line, c.lines[i])
				}
			}
		})
	}
}

func TestRunKeepsWhatItWroteInAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	first := filepath.Join(t.TempDir(), "first.tide")
	script := "DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE d; USE DATABASE d; DEFINE TOPIC t; CREATE t = 'kept';"
	if err := os.WriteFile(first, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errors, status := runTidemark(t, "", "run", "--data", dir, first); status != 0 {
		t.Fatalf("exits with %d: %s%s", status, out, errors)
	}
	out, _, status := runTidemark(t, "USE NAMESPACE n; USE DATABASE d; READ FROM t;", "run", "--data", dir)
	if status != 0 || !strings.Contains(out, "kept") {
		t.Fatalf("exits with %d and printed %s", status, out)
	}
}

func TestTheDemoShowsEveryStatementWithItsAnswer(t *testing.T) {
	out, errors, status := runTidemark(t, "", "demo")
	if status != 0 {
		t.Fatalf("exits with %d: %s", status, errors)
	}
	for _, want := range []string{
		"READ FROM events FOR CONSUMER 'billing' LIMIT 2;",
		"events:'evt-7f3a' │ 3",
		"TopicIsAppendOnly: events is a topic",
		"RecordExists: events:'evt-7f3a' exists already",
		"{ audit: { lag: 2, position: 1 }, billing: { lag: 0, position: 3 } }",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo does not show %q", want)
		}
	}
	if strings.Contains(out, "Internal") {
		t.Error("the demo shows an internal error")
	}
}

func TestTheExampleOfStandardInputRuns(t *testing.T) {
	_, script, found := strings.Cut(runCommand{}.Help(), `echo "`)
	script, _, closed := strings.Cut(script, `" | tidemark run -`)
	if !found || !closed {
		t.Fatal("the help of run has no example of standard input")
	}
	if out, errors, status := runTidemark(t, script, "run", "-"); status != 0 {
		t.Fatalf("%s exits with %d: %s%s", script, status, out, errors)
	}
}

func TestSettingsThatAllowNothingAreRefused(t *testing.T) {
	for _, setting := range []string{"statements=0", "request-bytes=-5", "statement-time=-1s", "answer-rows=-1", "sessions=-1", "token-time=-1h", "shutdown-time=0s"} {
		_, errors, status := runTidemark(t, "", "serve", "--"+setting, "--print-config")
		if name, _, _ := strings.Cut(setting, "="); status == 0 || !strings.Contains(errors, name+" takes more than 0") {
			t.Errorf("--%s exits with %d: %s", setting, status, errors)
		}
	}
}

func TestBackupsOfOneSecondReplaceNone(t *testing.T) {
	store, folder := filepath.Join(t.TempDir(), "store"), t.TempDir()
	if out, errors, status := runTidemark(t, "DEFINE NAMESPACE n;", "run", "--data", store); status != 0 {
		t.Fatalf("exits with %d: %s%s", status, out, errors)
	}
	const several = 5
	for range several {
		if _, errors, status := runTidemark(t, "", "backup", "--quiet", "--data", store, folder); status != 0 {
			t.Fatalf("exits with %d: %s", status, errors)
		}
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != several {
		t.Fatalf("%d backups left %d files, %v", several, len(files), err)
	}
}

func TestAnImportSaysWhatItImported(t *testing.T) {
	script := "DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE d; USE DATABASE d; DEFINE COLLECTION c; CREATE c:1 = { a: 1 };"
	store := filepath.Join(t.TempDir(), "store")
	for _, c := range []struct {
		more []string
		says string
	}{
		{nil, "imported: 6 lines or statements\n"},
		{[]string{"--skip", "6"}, "imported: 0 lines or statements, after 6 that were skipped\n"},
		{[]string{"--overwrite"}, "only JSON is imported with overwrite"},
	} {
		out, errors, _ := runTidemark(t, script, append([]string{"import", "--quiet", "--data", store, "-"}, c.more...)...)
		if !strings.Contains(out+errors, c.says) {
			t.Errorf("%v says %s%s", c.more, out, errors)
		}
	}
}

func TestAWrongCommandLineSaysWhatIsWrong(t *testing.T) {
	_, errors, status := runTidemark(t, "", "run", "--nonsense")
	if status != 2 || !strings.Contains(errors, "--nonsense") {
		t.Fatalf("exits with %d: %s", status, errors)
	}
}
