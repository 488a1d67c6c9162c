// Package shell_test uses the shell as people do: in a pseudo terminal, and by a
// pipe.
package shell_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

func TestMain(m *testing.M) { nodetest.Main(m) }

func TestTheShellAtATerminal(t *testing.T) {
	state := t.TempDir()
	data := filepath.Join(t.TempDir(), "store")
	environment := []string{"XDG_STATE_HOME=" + state}
	x := start(t, environment, "--data", data)
	x.sees(`\help shows what else there is`)
	x.sees("tidemark> ")
	x.types("DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE orders; USE DATABASE orders;" + enter)
	x.sees("shop/orders> ")
	x.types("DEFINE TOPIC deliveries;" + enter)
	x.sees("ok")

	// A statement ends with its semicolon, not with its line.
	x.types("CREATE deliveries" + enter)
	x.types("= { parcel: 'first' };" + enter)
	x.sees("│ first")

	// Keywords and names are completed.
	x.types("REA" + tab)
	x.sees("READ")
	x.types(" FROM deliv" + tab)
	x.sees("deliveries")
	x.types(";" + enter)
	x.sees("│ first")

	// Ctrl-C gives up the line, and the statement that runs.
	x.types("this is nothing")
	x.sees("this is nothing")
	x.types(interrupt)
	x.sees("\n")
	x.sees("shop/orders> ")
	x.types("INFO FOR TOPIC deliveries; SLEEP 1m;" + enter)
	x.sees("retain_bytes") // The answer of the first: the second runs.
	x.types(interrupt)
	x.sees("cancelled")
	x.sees("shop/orders> ")

	// An error shows where it is, and the shell goes on.
	x.types("SELECT FROM;" + enter)
	x.sees("Syntax")
	x.types("BEGIN;" + enter)
	x.sees("shop/orders*> ")
	x.types("CANCEL;" + enter)
	x.sees("shop/orders> ")
	x.types(`\timing` + enter)
	x.sees("timing is on")
	x.types(`\nonsense` + enter)
	x.sees("there is no command")
	x.types(`\d deliveries` + enter)
	x.sees("max_bytes")
	x.types("DEFINE USER 'someone' ON DATABASE PASSWORD 'hush';" + enter)
	x.sees("ok\r\n")
	x.sees("shop/orders> ")
	x.types(endOfFile)
	x.ends()

	kept, err := os.ReadFile(filepath.Join(state, "tidemark", "history"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"DEFINE TOPIC deliveries;"`, `"CREATE deliveries\n= { parcel: 'first' };"`} {
		if !strings.Contains(string(kept), want) {
			t.Errorf("the history does not hold %s:\n%s", want, kept)
		}
	}
	if strings.Contains(string(kept), "hush") {
		t.Errorf("the history holds a password:\n%s", kept)
	}
	if info, err := os.Stat(filepath.Join(state, "tidemark", "history")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the history is not the user's alone: %v %v", info.Mode(), err)
	}

	// The next shell has what was typed in this one.
	x = start(t, environment, "--data", data)
	x.sees("tidemark> ")
	x.types(up)
	x.sees(`\d deliveries`)
	x.types(interrupt)
	x.sees("\n")
	x.sees("tidemark> ")
	x.types(`\q` + enter)
	x.ends()
}

func TestTheShellByAPipe(t *testing.T) {
	for _, c := range []struct {
		name, input string
		want        []string
		status      int
	}{
		{"answers and no prompt", "DEFINE NAMESPACE n;\n\\json\nUSE NAMESPACE\n n;", []string{"ok", `{"ok":true,"answer":null}`}, 0},
		{"a failure", "USE NAMESPACE none; DEFINE NAMESPACE n;", []string{"NotFound", "ok"}, 1},
		{"what does not parse", "NONSENSE;\nDEFINE NAMESPACE n;", []string{"Syntax", "ok"}, 1},
		{"the end in the middle", "DEFINE NAMESPACE", []string{"Syntax"}, 1},
		{"leaving", "\\q\nUSE NAMESPACE none;", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, _, status := nodetest.Run(t, c.input, "shell")
			if status != c.status {
				t.Errorf("exits with %d, want %d", status, c.status)
			}
			rest := out
			for _, want := range c.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Errorf("does not print %q in its place:\n%s", want, out)
				}
				rest = after
			}
			if strings.Contains(out, "> ") {
				t.Errorf("prints a prompt:\n%s", out)
			}
		})
	}
}

func TestASessionThatIsLostIsOpenedAgain(t *testing.T) {
	node := nodetest.Serve(t, "--data", filepath.Join(t.TempDir(), "store"))
	x := start(t, []string{"XDG_STATE_HOME=" + t.TempDir()}, "--url", node.URL)
	x.types("DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE d; USE DATABASE d; DEFINE TOPIC t; BEGIN; CREATE t = 1;" + enter)
	x.sees("n/d*> ")
	node.Kill()
	x.types("READ FROM t;" + enter)
	x.sees("was lost; the transaction that was open is rolled back")
	x.sees("n/d> ")
	node.Again()
	x.types("CREATE t = 'after';" + enter)
	x.sees("a new session")
	x.sees("│ 1        │ after")
	x.sees("n/d> ")
	x.types(`\q` + enter)
	x.ends()
}
