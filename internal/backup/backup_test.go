package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/backup"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// carrier is where a store is kept: how it is opened, and restored to.
type carrier struct {
	name  string
	open  func() (engine.Engine, error)
	place backup.Place
}

func folderCarrier(t *testing.T, clock func() time.Time) carrier {
	directory := filepath.Join(t.TempDir(), "store")
	return carrier{
		name:  "pebble",
		open:  func() (engine.Engine, error) { return pebble.Open(directory, pebble.Options{Clock: clock}) },
		place: backup.Folder(directory, quiet),
	}
}

func schemaCarrier(t *testing.T, clock func() time.Time) carrier {
	options := postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: postgrestest.Schema(), Clock: clock}
	return carrier{
		name:  "postgres",
		open:  func() (engine.Engine, error) { return postgres.Open(t.Context(), options) },
		place: backup.Schema(options),
	}
}

// openStore opens the store that a carrier keeps.
func (c carrier) openStore(t *testing.T) *store.Store {
	t.Helper()
	e, err := c.open()
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{Log: quiet, HousekeepingEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // Most tests have closed it.
	return s
}

// run runs statements and returns their answers as JSON, a line each.
func run(t *testing.T, s *store.Store, statements string) string {
	t.Helper()
	caller := session.New(s, session.Options{})
	defer caller.Close()
	answers, err := caller.Run(t.Context(), statements, nil)
	if err != nil {
		t.Fatal(err)
	}
	var lines []byte
	for _, answer := range answers {
		if lines, err = answer.AppendJSON(lines); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, '\n')
	}
	return string(lines)
}

const use = "USE NAMESPACE n; USE DATABASE d; "

// furnish makes a store with something of every kind.
func furnish(t *testing.T, s *store.Store) {
	t.Helper()
	out := run(t, s, `DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE gone; DROP DATABASE gone;
		DEFINE DATABASE other; USE DATABASE other; DEFINE COLLECTION c; CREATE c:1 = { a: 1 };
		DEFINE DATABASE d; USE DATABASE d;
		DEFINE TABLE orders (total int REQUIRED); CREATE orders:1 = { total: 5 }; CREATE orders:'x' = { total: 6 };
		DEFINE SPACE newest; UPSERT newest:'k' = [1, 2];
		DEFINE TOPIC events RETAIN BYTES 100 DEDUPLICATE 1h ON key;
		CREATE events = { key: 'a', v: 1 }; CREATE events = { key: 'b', v: 2 }; CREATE events:'named' = { key: 'c', v: 3 };
		CREATE events = { key: 'd', v: 4, long: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' };
		DEFINE TOPIC dead; DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s DELIVERIES 3 IN FLIGHT 2 DEAD LETTER TO dead;
		READ FROM events FOR CONSUMER 'g' LIMIT 2; READ FROM events FOR CONSUMER 'billing' LIMIT 1;
		BEGIN; CREATE events = { key: 'e', v: 5 }; COMMIT;`)
	if strings.Contains(out, `"ok":false`) {
		t.Fatal(out)
	}
}

// picture is what a caller can see of the store.
const picture = use + `INFO FOR STORE; INFO FOR DATABASE; INFO FOR TOPIC events; INFO FOR TABLE orders; READ FROM events; SELECT * FROM events;
	SELECT * FROM orders; SELECT * FROM newest; USE DATABASE other; SELECT * FROM c;`

// carry takes a backup of one store and restores it into another.
func carry(t *testing.T, from *store.Store, to backup.Place) []byte {
	t.Helper()
	var stream bytes.Buffer
	if err := backup.Write(t.Context(), from.Engine(), &stream, nil); err != nil {
		t.Fatal(err)
	}
	taken := bytes.Clone(stream.Bytes())
	if _, _, err := backup.Restore(t.Context(), &stream, to, nil); err != nil {
		t.Fatal(err)
	}
	return taken
}

// clock is a machine's clock that the test sets.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

func TestAStoreIsRestoredAsItWasOnEveryEngine(t *testing.T) {
	machine := &clock{time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)}
	folder := func(t *testing.T) carrier { return folderCarrier(t, machine.read) }
	schema := func(t *testing.T) carrier { return schemaCarrier(t, machine.read) }
	for _, c := range []struct {
		name     string
		from, to func(*testing.T) carrier
	}{
		{"pebble to pebble", folder, folder},
		{"pebble to postgres", folder, schema},
		{"postgres to pebble", schema, folder},
		{"postgres to postgres", schema, schema},
	} {
		t.Run(c.name, func(t *testing.T) {
			original := c.from(t).openStore(t)
			furnish(t, original)
			to := c.to(t)
			carry(t, original, to.place)
			restored := to.openStore(t)
			want := strings.Replace(run(t, original, picture), `"engine":"`+original.Engine().Name(), `"engine":"`+to.name, 1)
			if got := run(t, restored, picture); withoutNodes(got) != withoutNodes(want) {
				t.Errorf("the restored store shows\n%s\nand the original\n%s", got, want)
			}
			// Deliveries, deadlines, deduplication and places go on: the same
			// statements have the same answers.
			statements := use + `CREATE events = { key: 'a', v: 1 }; CREATE events:'named' = { key: 'f', v: 3 };
				READ FROM events FOR CONSUMER 'g'; ACK events FOR CONSUMER 'g' AT 4 DELIVERY 1;
				READ FROM events FOR CONSUMER 'g'; READ FROM events FOR CONSUMER 'billing'; INFO FOR TOPIC events;`
			if got, want := run(t, restored, statements), run(t, original, statements); got != want {
				t.Errorf("the restored store answers\n%s\nand the original\n%s", got, want)
			}
			// What is new takes no id that was given.
			if out := run(t, restored, `USE NAMESPACE n; DEFINE DATABASE new; USE DATABASE new; DEFINE TOPIC t; INFO FOR DATABASE;`); strings.Contains(out, `"ok":false`) {
				t.Error(out)
			}
		})
	}
}

// withoutNodes is a picture without the processes that have the store open.
func withoutNodes(picture string) string {
	lines := strings.Split(picture, "\n")
	before, _, _ := strings.Cut(lines[2], `"nodes"`)
	lines[2] = before
	return strings.Join(lines, "\n")
}

func TestTheClockOfARestoredStoreDoesNotGoBack(t *testing.T) {
	machine := &clock{time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)}
	behind := &clock{machine.now.Add(-time.Hour)}
	for _, to := range []carrier{folderCarrier(t, behind.read), schemaCarrier(t, behind.read)} {
		original := folderCarrier(t, machine.read).openStore(t)
		furnish(t, original)
		carry(t, original, to.place)
		now, err := to.openStore(t).Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if now.Before(machine.now) {
			t.Errorf("%s: restored at %s, the clock is at %s", to.name, machine.now, now)
		}
	}
}

func TestABackupThatIsNotAsItWasWrittenIsRefused(t *testing.T) {
	original := folderCarrier(t, nil).openStore(t)
	furnish(t, original)
	for range 50 {
		run(t, original, use+"CREATE dead = 'something that takes some room in the backup, so that there is much to damage';")
	}
	taken := carry(t, original, folderCarrier(t, nil).place)
	random := rand.New(rand.NewPCG(1, 2))
	damages := map[string][]byte{"empty": nil, "doubled": append(bytes.Clone(taken), taken...), "followed": append(bytes.Clone(taken), 0)}
	for range 40 {
		end := random.IntN(len(taken))
		damages["cut off at "+strconv.Itoa(end)] = taken[:end]
		flipped := bytes.Clone(taken)
		bit := random.IntN(8 * len(taken))
		flipped[bit/8] ^= 1 << (bit % 8)
		damages["with bit "+strconv.Itoa(bit)+" changed"] = flipped
		without := random.IntN(len(taken) - 1)
		damages["without byte "+strconv.Itoa(without)] = append(bytes.Clone(taken[:without]), taken[without+1:]...)
	}
	// Of what a digest does not cover, the beginning and the end, every byte.
	for at := range taken {
		if at < 80 || at >= len(taken)-80 {
			flipped := bytes.Clone(taken)
			flipped[at] ^= 4
			damages["with byte "+strconv.Itoa(at)+" changed"] = flipped
		}
	}
	for name, damaged := range damages {
		if _, _, err := backup.Check(bytes.NewReader(damaged)); err == nil {
			t.Errorf("a backup %s is taken for whole", name)
		}
	}
	for _, name := range []string{"empty", "doubled", "followed"} {
		parent := t.TempDir()
		_, _, err := backup.Restore(t.Context(), bytes.NewReader(damages[name]), backup.Folder(filepath.Join(parent, "store"), quiet), nil)
		if !errors.Is(err, fault.Unavailable) {
			t.Errorf("a backup that is %s is refused with %v", name, err)
		}
		if left, _ := os.ReadDir(parent); len(left) > 0 {
			t.Errorf("a backup that is %s left %s", name, left[0].Name())
		}
	}
	cluster := postgrestest.Shared(t)
	before := cluster.Query(t, `SELECT nspname FROM pg_namespace ORDER BY 1`)
	_, _, err := backup.Restore(t.Context(), bytes.NewReader(taken[:len(taken)-1]), schemaCarrier(t, nil).place, nil)
	if !errors.Is(err, fault.Unavailable) {
		t.Errorf("a backup that is cut off is refused with %v", err)
	}
	if after := cluster.Query(t, `SELECT nspname FROM pg_namespace ORDER BY 1`); after != before {
		t.Errorf("a restore that failed left the schemas\n%s", after)
	}
}

func TestOnlyAnEmptyPlaceIsRestoredTo(t *testing.T) {
	original := folderCarrier(t, nil).openStore(t)
	furnish(t, original)
	for _, to := range []carrier{folderCarrier(t, nil), schemaCarrier(t, nil)} {
		taken := carry(t, original, to.place)
		for range 2 {
			_, _, err := backup.Restore(t.Context(), bytes.NewReader(taken), to.place, nil)
			if !errors.Is(err, fault.AlreadyExists) {
				t.Errorf("%s: a store is restored over another: %v", to.name, err)
			}
		}
		if out := run(t, to.openStore(t), picture); strings.Contains(out, `"ok":false`) {
			t.Errorf("%s: the store that was there is not as it was: %s", to.name, out)
		}
	}
}

func TestAnEmptyFolderIsRestoredTo(t *testing.T) {
	original := folderCarrier(t, nil).openStore(t)
	furnish(t, original)
	carry(t, original, backup.Folder(t.TempDir(), quiet))
}

func TestARestoreThatIsGivenUpLeavesNothing(t *testing.T) {
	original := folderCarrier(t, nil).openStore(t)
	furnish(t, original)
	var taken bytes.Buffer
	if err := backup.Write(t.Context(), original.Engine(), &taken, nil); err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	ctx, giveUp := context.WithCancel(t.Context())
	_, _, err := backup.Restore(ctx, &taken, backup.Folder(filepath.Join(parent, "store"), quiet), func(backup.Header, backup.Progress) { giveUp() })
	if !errors.Is(err, fault.Cancelled) {
		t.Errorf("got %v, want Cancelled", err)
	}
	if left, _ := os.ReadDir(parent); len(left) > 0 {
		t.Errorf("%s is left", left[0].Name())
	}
}

func TestAnEmptyStoreIsNotBackedUp(t *testing.T) {
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if err := backup.Write(t.Context(), e, io.Discard, nil); !errors.Is(err, fault.NotFound) {
		t.Errorf("got %v, want NotFound", err)
	}
}

func FuzzReader(f *testing.F) {
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for id := range engine.SpaceID(2) {
		space, err := e.Space(f.Context(), id)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := space.Commit(f.Context(), func(c engine.Commit) error {
			c.Set([]byte("key"), []byte("value"))
			c.Set(nil, nil)
			return nil
		}); err != nil {
			f.Fatal(err)
		}
	}
	var taken bytes.Buffer
	if err := backup.Write(f.Context(), e, &taken, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(taken.Bytes())
	f.Add([]byte("tidemark-backup 1\nH\x00\x00\x00\x0c"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r, err := backup.NewReader(bytes.NewReader(stream))
		if err != nil {
			return
		}
		rows := uint64(0)
		for r.Next() {
			rows += uint64(len(r.Rows()))
		}
		if r.Err() == nil && rows != r.Progress().Rows {
			t.Errorf("%d rows were read of %d", rows, r.Progress().Rows)
		}
	})
}
