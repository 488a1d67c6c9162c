package shell

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// newShell is a shell on a store in memory, which has run some statements.
func newShell(t *testing.T, statements string) (*Shell, *strings.Builder) {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), e, store.Options{Log: slog.New(slog.DiscardHandler), HousekeepingEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	opened := session.New(st, session.Options{})
	t.Cleanup(func() {
		opened.Close()
		_ = st.Close()
	})
	var out strings.Builder
	s := &Shell{session: opened, names: newNames(), options: Options{
		Out: &out,
		Print: func(a session.Answer) {
			text, _ := a.AppendJSON(nil)
			out.Write(append(text, '\n'))
		},
		Interrupted: func(func()) func() { return func() {} },
	}}
	s.run(t.Context(), "DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE d; USE DATABASE d;"+statements)
	if strings.Contains(out.String(), `"ok":false`) {
		t.Fatal(out.String())
	}
	out.Reset()
	return s, &out
}

func TestTabCompletesWhatMayStandThere(t *testing.T) {
	s, _ := newShell(t, "DEFINE TABLE orders (total int); DEFINE TOPIC events; DEFINE TOPIC `odd name`; DEFINE GROUP 'mailer' ON TOPIC events ACK DEADLINE 30s;")
	for _, c := range []struct {
		line string
		want []string
	}{
		{"", beginnings},
		{"rea", []string{"read"}},
		{"REA", []string{"READ"}},
		{"BEGIN; com", []string{"commit"}},
		{"READ FROM ", []string{"events", "`odd name`", "orders", "total"}},
		{"READ FROM ev", []string{"events"}},
		{"SELECT * FROM o", []string{"`odd name`", "orders", "on", "or", "order", "overwrite"}},
		{"READ FROM events FOR CONSUMER 'm", []string{"mailer'"}},
		{`\d`, []string{`\d`}},
		{`\d or`, []string{"orders"}},
		{`\t`, []string{`\timing`}},
		{"READ FROM nothing_like_it", nil},
	} {
		candidates, from := s.complete(c.line)
		var got []string
		for _, candidate := range candidates {
			got = append(got, candidate.text)
		}
		want := slices.Clone(c.want)
		if c.line == "" {
			for i := range want {
				want[i] = strings.ToUpper(want[i])
			}
		}
		if !slices.Equal(got, want) || from > len(c.line) {
			t.Errorf("%q is completed from %d by %q, want %q", c.line, from, got, c.want)
		}
	}
}

func TestCompletionDisturbsNoTransaction(t *testing.T) {
	s, out := newShell(t, "DEFINE TOPIC events;")
	s.run(t.Context(), "BEGIN; CREATE events = 1;")
	if candidates, _ := s.complete("READ FROM ev"); len(candidates) != 0 {
		t.Errorf("the store was asked within a transaction: %v", candidates)
	}
	s.run(t.Context(), "COMMIT;")
	if !strings.Contains(out.String(), `"appended"`) {
		t.Errorf("the transaction does not commit: %s", out)
	}
}

func TestAColouredLineSaysWhatItSaid(t *testing.T) {
	for _, line := range []string{"", "SELECT 'it''s', 1.5, `q` FROM t -- why\n/* and", "'never closed", "ünïcode ☃ \\", "-- x\n;"} {
		coloured := highlight(line)
		for _, colour := range []string{green, blue, magenta, dim, plain} {
			coloured = strings.ReplaceAll(coloured, colour, "")
		}
		if coloured != line {
			t.Errorf("%q is shown as %q", line, coloured)
		}
	}
}

func TestTheHistoryKeepsInputsAndNoPasswords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "history")
	h := openHistory(file)
	for _, input := range []string{"SELECT 1;", "SELECT 1;", "CREATE t\n= 1;", "define user 'a' on store password 'b';", " "} {
		if _, err := h.Write(input); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"SELECT 1;", "CREATE t\n= 1;"}
	if got := openHistory(file).inputs; !slices.Equal(got, want) {
		t.Errorf("the history keeps %q, want %q", got, want)
	}
	// What is damaged is passed over.
	if err := os.WriteFile(file, []byte("\"a;\"\nnonsense\n\"b;\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := openHistory(file).inputs; !slices.Equal(got, []string{"a;", "b;"}) {
		t.Errorf("a damaged history is read as %q", got)
	}
}

func TestAPipeIsReadStatementByStatement(t *testing.T) {
	p := newPipe(strings.NewReader("A\n';';\n\\d x\nB; C;\nD"))
	for _, want := range []string{"A\n';';\n", "\\d x\n", "B; C;\n", "D"} {
		if got, err := p.read(context.Background()); got != want || err != nil {
			t.Errorf("reads %q %v, want %q", got, err, want)
		}
	}
	if _, err := p.read(context.Background()); !errors.Is(err, io.EOF) {
		t.Errorf("ends with %v", err)
	}
}
