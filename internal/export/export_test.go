package export_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/export"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// target is a store that an import goes to.
type target struct {
	*testing.T
	store  *store.Store
	caller *session.Session
}

func newTarget(t *testing.T) *target {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{Log: slog.New(slog.DiscardHandler), HousekeepingEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	x := &target{T: t, store: s, caller: session.New(s, session.Options{})}
	t.Cleanup(func() {
		x.caller.Close()
		_ = s.Close()
	})
	return x
}

// run is an export.Run.
func (x *target) run(ctx context.Context, statements string, params map[string]value.Value) (last value.Value, err error) {
	answers, err := x.caller.Run(ctx, statements, params)
	if err != nil {
		return value.None(), err
	}
	for _, answer := range answers {
		if answer.Err != nil {
			return value.None(), answer.Err
		}
		last = answer.Value
	}
	return last, nil
}

func (x *target) must(statements string) value.Value {
	x.Helper()
	v, err := x.run(x.Context(), statements, nil)
	if err != nil {
		x.Fatalf("%s: %v", statements, err)
	}
	return v
}

func (x *target) export(format export.Format) string {
	x.Helper()
	var out bytes.Buffer
	if err := export.Write(x.Context(), x.store, "shop", "orders", format, &out); err != nil {
		x.Fatal(err)
	}
	return out.String()
}

const prepare = "DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE orders; USE DATABASE orders; "

const furniture = `
	DEFINE COLLECTION notes; DEFINE TABLE orders (total int REQUIRED, at datetime, key uuid | null, raw bytes, wait duration, of record, rate float DEFAULT 1.5, tag string ASSERT len(tag) < 9);
	DEFINE SPACE newest;
	DEFINE TOPIC dead; DEFINE TOPIC events RETAIN 7d RETAIN BYTES 100000 MAX BYTES 1000 DEDUPLICATE 5m ON key;
	DEFINE TOPIC door MAX BYTES 100 PUBLIC RATE 60 PER 1m;
	DEFINE GROUP 'it''s' ON TOPIC events ACK DEADLINE 30s DELIVERIES 3 IN FLIGHT 7 BACKOFF 1s, 2m DEAD LETTER TO dead;
	DEFINE GROUP 'keyed' ON TOPIC events ACK DEADLINE 1m KEYED BY a.b; ALTER GROUP 'keyed' ON TOPIC events PAUSE;
	DEFINE TABLE landed (total int);
	DEFINE TOPIC CONSUMER land FROM events GROUP 'it''s' INTO landed IDENTITY key MAP n AS total ON FAILURE quarantine PARALLELISM 3;
	DEFINE KAFKA CONSUMER far FROM 'a:9092', 'b:9092' TOPIC 't' GROUP 'g' FORMAT json INTO landed IDENTITY id MAP a.b AS total ON FAILURE stop;
	CREATE orders:1 = { total: 5, at: d'2026-01-31T10:00:00.123Z', key: u'018f0000-0000-7000-8000-000000000001', raw: b'cafe', wait: 1h30m, of: notes:'x', rate: 2.0 };
	CREATE orders:'two' = { total: -6, key: null, tag: 'it''s;' };
	CREATE orders:u'018f0000-0000-7000-8000-000000000002' = { total: 9007199254740993 };
	CREATE notes:1 = { text: 'a\n"b"', nested: { list: [1, 2.5, null, true] } };
	CREATE newest:'list' = [1, 'two']; CREATE newest:'text' = 'three'; CREATE newest:4 = { id: 4 };
	CREATE events = { key: 'a', n: 1 }; CREATE events:'named' = { key: 'b', n: 2 }; CREATE dead = 'plain'; CREATE dead = { id: 7 };
	BEGIN; CREATE events = { key: 'c', n: 3 }; COMMIT;`

// what a reader sees of it, but for what an import gives anew.
var generated = regexp.MustCompile(`"id":"(events|dead|door):u'[^"]*"`)

func (x *target) picture() string {
	x.Helper()
	var out []byte
	for _, statement := range []string{
		"INFO FOR DATABASE", "SELECT * FROM orders", "SELECT * FROM notes", "SELECT * FROM newest", "READ FROM events", "READ FROM dead",
		"INFO FOR TOPIC events", "INFO FOR TOPIC door", "INFO FOR TABLE orders", "INFO FOR TOPIC CONSUMER land", "INFO FOR KAFKA CONSUMER far",
	} {
		var err error
		if out, err = x.must(statement + ";").AppendJSON(append(out, '\n')); err != nil {
			x.Fatal(err)
		}
	}
	return strings.ReplaceAll(generated.ReplaceAllString(string(out), `"id":""`), "\n", "\n\n")
}

func TestAnExportIsImportedAsItWas(t *testing.T) {
	source := newTarget(t)
	source.must(prepare + strings.ReplaceAll(furniture, "''", `\'`))
	want := source.picture()
	for _, format := range []export.Format{export.Statements, export.JSON} {
		t.Run(string(format), func(t *testing.T) {
			exported := source.export(format)
			into := newTarget(t)
			if format == export.JSON {
				into.must(prepare)
			}
			if _, err := export.Read(t.Context(), strings.NewReader(exported), into.run, export.ReadOptions{}); err != nil {
				t.Fatalf("%v\n%s", err, exported)
			}
			// The group has read nothing where it was imported.
			if got := into.picture(); withoutOldest(got) != withoutOldest(want) {
				t.Errorf("imported is\n%s\nand exported was\n%s\nby\n%s", got, want, exported)
			}
			// As statements, identities that were generated in a transaction stand
			// where there were none.
			if again := into.export(format); format == export.JSON && withoutTimes(again) != withoutTimes(exported) {
				t.Errorf("what was imported is exported as\n%s\nand was\n%s", again, exported)
			}
		})
	}
}

var oldest = regexp.MustCompile(`"oldest":"[^"]*"`)

func withoutOldest(picture string) string { return oldest.ReplaceAllString(picture, "") }

var times = regexp.MustCompile(`"appended":"[^"]*"|"generated":true,|` + generated.String())

func withoutTimes(exported string) string { return times.ReplaceAllString(exported, "") }

func TestAnImportStopsAtWhatIsRefusedAndGoesOn(t *testing.T) {
	var lines, statements strings.Builder
	lines.WriteString("{\"define\":\"DEFINE TABLE IF NOT EXISTS orders (total int);\"}\n\n")
	statements.WriteString(prepare + "DEFINE TABLE orders (total int);\n")
	for i := range 1200 {
		total := fmt.Sprint(i)
		if i == 700 {
			total = `"many"`
		}
		fmt.Fprintf(&lines, "{\"table\":\"orders\",\"id\":\"orders:%d\",\"value\":{\"total\":%s}}\n", i, total)
		fmt.Fprintf(&statements, "CREATE orders:%d = { total: %s };\n", i, total)
	}
	for _, c := range []struct {
		name, text string
		done       int
	}{{"JSON", lines.String(), 2 + 700}, {"statements", statements.String(), 5 + 700}} {
		t.Run(c.name, func(t *testing.T) {
			x := newTarget(t)
			if c.name == "JSON" {
				x.must(prepare)
			}
			done, err := export.Read(t.Context(), strings.NewReader(c.text), x.run, export.ReadOptions{})
			var stopped *export.Stopped
			if !errors.As(err, &stopped) || !errors.Is(err, fault.TypeMismatch) || done != c.done || stopped.Done != c.done {
				t.Fatalf("stopped after %d with %v, want after %d", done, err, c.done)
			}
			if got := x.must("SELECT count() AS n FROM orders;").String(); !strings.Contains(got, "n: 700") {
				t.Errorf("the store has %s, want the 700 before", got)
			}
			mended := strings.Replace(c.text, `"many"`, "700", 1)
			if _, err := export.Read(t.Context(), strings.NewReader(mended), x.run, export.ReadOptions{Skip: done}); err != nil {
				t.Fatal(err)
			}
			if got := x.must("SELECT count() AS n FROM orders;").String(); !strings.Contains(got, "n: 1200") {
				t.Errorf("the store has %s, want all 1200", got)
			}
		})
	}
}

func TestRecordsThatAreThereAreReplacedOnlyWhenThatIsAsked(t *testing.T) {
	x := newTarget(t)
	x.must(prepare + "DEFINE COLLECTION notes; CREATE notes:1 = { a: 1 };")
	line := `{"table":"notes","id":"notes:1","value":{"a":2}}`
	if _, err := export.Read(t.Context(), strings.NewReader(line), x.run, export.ReadOptions{}); !errors.Is(err, fault.RecordExists) {
		t.Errorf("got %v, want RecordExists", err)
	}
	if _, err := export.Read(t.Context(), strings.NewReader(line), x.run, export.ReadOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	if got := x.must("SELECT * FROM notes:1;").String(); !strings.Contains(got, "a: 2") {
		t.Errorf("the record is %s", got)
	}
}

func TestWhatIsNoExportIsRefusedWithItsLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{\"table\":\"notes\",\"id\":\"other:1\",\"value\":{}}", "line 1"},
		{"{\"define\":\"DEFINE SPACE s;\"}\n{", "line 2"},
		{"{}", "line 1"},
		{"DEFINE SPACE s; BEGIN; CREATE s:1 = 1;", "statement 2"},
		{"DEFINE SPACE s; NONSENSE", "statement 2"},
	} {
		x := newTarget(t)
		x.must(prepare + "DEFINE COLLECTION notes;")
		_, err := export.Read(t.Context(), strings.NewReader(c.text), x.run, export.ReadOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want it to name %s", c.text, err, c.want)
		}
	}
}

func TestAScriptGoesIntoTheDatabaseThatWasAskedFor(t *testing.T) {
	x := newTarget(t)
	x.must(prepare)
	script := "DEFINE NAMESPACE IF NOT EXISTS other; USE NAMESPACE other;\nDEFINE DATABASE IF NOT EXISTS elsewhere; USE DATABASE elsewhere;\nDEFINE COLLECTION notes;\nCREATE notes:1 = { a: 1 };\n"
	if _, err := export.Read(t.Context(), strings.NewReader(script), x.run, export.ReadOptions{Into: true}); err != nil {
		t.Fatal(err)
	}
	if got := x.must("SELECT * FROM notes:1;").String(); !strings.Contains(got, "a: 1") {
		t.Errorf("the database in use has %s", got)
	}
	if got := x.must("INFO FOR STORE;").String(); strings.Contains(got, "other") {
		t.Errorf("another namespace was made: %s", got)
	}
}
