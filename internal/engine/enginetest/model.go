package enginetest

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

var modelTests = []contractTest{
	{name: "random operations answer what a sorted map answers", run: func(s *suite) {
		space := engine.SpaceID(1)
		rapid.Check(s.T, func(t *rapid.T) {
			// A space of its own for every case: ids are not used again.
			opened, err := s.engine.Space(ctx, space)
			space++
			if err != nil {
				t.Fatal(err)
			}
			m := &model{space: opened, latest: state{}}
			defer m.release()
			t.Repeat(map[string]func(*rapid.T){
				"commit":   m.commit,
				"snapshot": m.snapshot,
				"read":     m.read,
				"":         m.check,
			})
		})
	}},
}

// state is what a space holds at one sequence.
type state map[string]row

// rows returns the entries of a range, as a scan shows them.
func (st state) rows(r engine.Range, reverse bool) []row {
	var rows []row
	for _, key := range slices.Sorted(maps.Keys(st)) {
		if inRange(r, key) {
			rows = append(rows, st[key])
		}
	}
	if reverse {
		slices.Reverse(rows)
	}
	return rows
}

func inRange(r engine.Range, key string) bool {
	return key >= string(r.From) && (r.To == nil || key < string(r.To))
}

// model is a space, and beside it what it must hold.
type model struct {
	space    engine.Space
	sequence engine.Sequence
	latest   state
	// shown are snapshots with what each must go on showing.
	shown []shown
}

type shown struct {
	snapshot engine.Snapshot
	sequence engine.Sequence
	state    state
}

// few keys, so that operations meet.
var (
	keys   = rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xff}), 0, 3)
	values = rapid.SliceOfN(rapid.Byte(), 0, 8)
	ranges = rapid.Custom(func(t *rapid.T) engine.Range {
		r := engine.Range{From: keys.Draw(t, "from"), To: keys.Draw(t, "to")}
		if rapid.IntRange(0, 3).Draw(t, "no end") == 0 {
			r.To = nil
		}
		return r
	})
)

func (m *model) commit(t *rapid.T) {
	before := m.latest
	next := maps.Clone(before)
	fails := rapid.IntRange(0, 4).Draw(t, "fails") == 0
	wrote := false
	sequence, err := m.space.Commit(ctx, func(c engine.Commit) error {
		for range rapid.IntRange(0, 6).Draw(t, "operations") {
			switch rapid.SampledFrom([]string{"set", "set", "delete", "delete range", "read"}).Draw(t, "operation") {
			case "set":
				key, value := keys.Draw(t, "key"), values.Draw(t, "value")
				c.Set(key, value)
				next[string(key)] = row{string(key), string(value), m.sequence + 1}
				wrote = true
			case "delete":
				key := keys.Draw(t, "key")
				c.Delete(key)
				delete(next, string(key))
				wrote = true
			case "delete range":
				r := ranges.Draw(t, "range")
				if r.To != nil && string(r.From) >= string(r.To) {
					continue // Nothing to delete; whether that is a write is left open.
				}
				c.DeleteRange(r)
				maps.DeleteFunc(next, func(key string, _ row) bool { return inRange(r, key) })
				wrote = true
			case "read":
				compare(t, c, m.sequence, before)
			}
		}
		if fails {
			return errRefused
		}
		return nil
	})
	switch {
	case fails && err == nil, !fails && err != nil:
		t.Fatalf("the form fails: %v, and Commit answered %v", fails, err)
	case fails:
		return
	}
	if wrote {
		m.sequence++
		m.latest = next
	}
	if sequence != m.sequence {
		t.Fatalf("Commit answered %d, want %d", sequence, m.sequence)
	}
}

func (m *model) snapshot(t *rapid.T) {
	snapshot, err := m.space.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if snapshot.Sequence() != m.sequence {
		t.Fatalf("a snapshot of %d, want %d", snapshot.Sequence(), m.sequence)
	}
	m.shown = append(m.shown, shown{snapshot, m.sequence, m.latest})
	if len(m.shown) > 3 {
		m.shown[0].snapshot.Release()
		m.shown = m.shown[1:]
	}
}

func (m *model) read(t *rapid.T) {
	for _, shown := range m.shown {
		compare(t, shown.snapshot, shown.sequence, shown.state)
	}
}

// check runs after every step.
func (m *model) check(t *rapid.T) {
	snapshot, err := m.space.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Release()
	rows, err := scan(snapshot, engine.Range{}, false)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(rows), fmt.Sprint(m.latest.rows(engine.Range{}, false)); got != want {
		t.Fatalf("the space holds %s, want %s", got, want)
	}
}

func (m *model) release() {
	for _, shown := range m.shown {
		shown.snapshot.Release()
	}
}

// compare reads some of a state in every way there is.
func compare(t *rapid.T, r engine.Reader, sequence engine.Sequence, want state) {
	if r.Sequence() != sequence {
		t.Fatalf("a reader of %d, want %d", r.Sequence(), sequence)
	}
	asked := rapid.SliceOfN(keys, 1, 4).Draw(t, "keys")
	entries, err := r.GetMany(ctx, asked)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range asked {
		entry, err := r.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []engine.Entry{entry, entries[i]} {
			wanted, there := want[string(key)]
			if (got.Value != nil) != there || string(got.Value) != wanted.value || got.Sequence != wanted.sequence {
				t.Fatalf("%q is %q of commit %d, want %v", key, got.Value, got.Sequence, wanted)
			}
		}
	}
	scanned, reverse := ranges.Draw(t, "scan"), rapid.Bool().Draw(t, "reverse")
	rows, err := scan(r, scanned, reverse)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(rows), fmt.Sprint(want.rows(scanned, reverse)); got != want {
		t.Fatalf("scan of %q to %q, reverse %v: got %s, want %s", scanned.From, scanned.To, reverse, got, want)
	}
}
