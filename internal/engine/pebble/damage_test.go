package pebble_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
)

// fill makes a store with some commits of 500 bytes and closes it, or copies its folder
// before it is closed, as a crash leaves it.
func fill(t *testing.T, commits int, crash bool) string {
	t.Helper()
	directory := t.TempDir()
	e := open(t, directory, pebble.Options{})
	for range commits {
		if _, err := add(space(t, e), 500); err != nil {
			t.Fatal(err)
		}
	}
	crashed := t.TempDir()
	copyFolder(t, directory, crashed)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if crash {
		return crashed
	}
	return directory
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// newest returns the file of a folder whose name matches, the last by name.
func newest(t *testing.T, directory, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file %s: %v", pattern, err)
	}
	return files[len(files)-1]
}

// flip inverts a byte of a file in a copy of its folder, which it returns.
func flip(t *testing.T, file string, offset int) string {
	t.Helper()
	copied := t.TempDir()
	copyFolder(t, filepath.Dir(file), copied)
	damaged := filepath.Join(copied, filepath.Base(file))
	content, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	content[offset] ^= 0xff
	if err := os.WriteFile(damaged, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

// readAll opens a store and reads all of it. It fails the test where what it
// read is wrong, and returns the error where it was told of damage.
func readAll(t *testing.T, directory string) (engine.Sequence, error) {
	t.Helper()
	e, err := pebble.Open(directory, small)
	if err != nil {
		return 0, err
	}
	defer func() { _ = e.Close() }()
	s, err := e.Space(ctx, 1)
	if err != nil {
		return 0, err
	}
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer snapshot.Release()
	var rows engine.Sequence
	iterator := snapshot.Scan(ctx, engine.Range{}, false, 0)
	for iterator.Next() {
		rows++
		if want := fmt.Sprintf("%06d", rows); string(iterator.Key()) != want || iterator.Sequence() != rows {
			t.Errorf("damage was read as data: entry %d is %q of commit %d", rows, iterator.Key(), iterator.Sequence())
		}
	}
	return rows, iterator.Close()
}

func size(t *testing.T, file string) int {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}

// tables returns a store's table of keys and that of the rows of its spaces,
// after opening it so that its log is written into tables.
func tables(t *testing.T, directory string) (keys, rows string) {
	t.Helper()
	if err := open(t, directory, pebble.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(directory, "*.sst"))
	if err != nil || len(files) != 2 {
		t.Fatalf("the tables are %v, %v", files, err)
	}
	if size(t, files[0]) > size(t, files[1]) {
		return files[0], files[1]
	}
	return files[1], files[0]
}

func TestDamageInATableIsReportedWithTheFileAndNotReadAsData(t *testing.T) {
	const commits, places = 200, 30
	keys, rows := tables(t, fill(t, commits, false))
	for _, table := range []string{keys, rows} {
		reported := 0
		for i := range places {
			offset := i * size(t, table) / places
			read, err := readAll(t, flip(t, table, offset))
			switch {
			case err == nil && read != commits:
				t.Errorf("damage at %d: %d rows, want %d", offset, read, commits)
			case err != nil && !errors.Is(err, fault.Unavailable):
				t.Errorf("damage at %d: %v, want Unavailable", offset, err)
			case err != nil && !strings.Contains(err.Error(), filepath.Base(table)):
				t.Errorf("damage at %d: %v, which does not name %s", offset, err, filepath.Base(table))
			case err != nil:
				reported++
			}
		}
		if reported < places/4 {
			t.Fatalf("%d of %d damages were reported", reported, places)
		}
	}
}

func TestAStoreWithADamagedTableGoesOnWithTheRest(t *testing.T) {
	table, _ := tables(t, fill(t, 200, false))
	e := open(t, flip(t, table, 1000), pebble.Options{})
	s := space(t, e)
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, first := snapshot.Get(ctx, []byte("000001"))
	last, err := snapshot.Get(ctx, []byte("000200"))
	if !errors.Is(first, fault.Unavailable) || err != nil || last.Sequence != 200 {
		t.Fatalf("the damaged part: %v; the other: %v of commit %d", first, err, last.Sequence)
	}
	snapshot.Release()
	if sequence, err := add(s, 10); err != nil || sequence != 201 {
		t.Fatalf("a commit: %d, %v", sequence, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// Pebble would try the compaction again for ever, until commits wait for it.
func TestDamageThatACompactionMeetsRefusesCommitsWithTheFile(t *testing.T) {
	table, _ := tables(t, fill(t, 200, false))
	e := open(t, flip(t, table, 1000), small)
	s := space(t, e)
	for range 2 { // So that there is something to merge the table with.
		if _, err := add(s, 100_000); err != nil {
			t.Fatal(err)
		}
	}
	_, failed := pebble.CompactAndCommit(e, func() (engine.Sequence, error) { return add(s, 10) })
	wantUnwritable(t, e, failed, filepath.Base(table))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// Damage is told from a torn end by a later block, of 32 KiB, that says that
// it was synced before.
func TestDamageInTheMiddleOfTheLogIsRefused(t *testing.T) {
	const commits = 200
	for _, crash := range []bool{false, true} {
		directory := fill(t, commits, crash)
		log := newest(t, directory, "*.log")
		written := commits * 560
		for i := range 20 {
			offset := 8 + i*(written-40_000)/20
			if rows, err := readAll(t, flip(t, log, offset)); !errors.Is(err, fault.Unavailable) {
				t.Errorf("crash %v, damage at %d of %d: %d rows, %v; want Unavailable", crash, offset, written, rows, err)
			}
		}
	}
}

// The last commits before a crash are the one place where damage cannot be
// told from a torn tail. Where the store was closed, it can.
func TestDamageAtTheEndOfTheLogOfAClosedStoreIsRefused(t *testing.T) {
	directory := fill(t, 20, false)
	log := newest(t, directory, "*.log")
	end := lastByte(t, log)
	for back := 100; back < 20*500; back += 700 {
		if rows, err := readAll(t, flip(t, log, end-back)); !errors.Is(err, fault.Unavailable) {
			t.Errorf("damage %d bytes before the end: %d rows, %v; want Unavailable", back, rows, err)
		}
	}
}

// lastByte returns the offset of the last byte of a file that is not zero.
func lastByte(t *testing.T, file string) int {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(content) - 1; i > 0; i-- {
		if content[i] != 0 {
			return i
		}
	}
	return 0
}

func TestATornTailAsACrashLeavesItIsRecoveredFrom(t *testing.T) {
	const commits = 20
	directory := fill(t, commits, true)
	log := newest(t, directory, "*.log")
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	end := lastByte(t, log)
	for torn := 1; torn < 1500; torn += 37 {
		copied := t.TempDir()
		copyFolder(t, directory, copied)
		if err := os.WriteFile(filepath.Join(copied, filepath.Base(log)), content[:end-torn], 0o600); err != nil {
			t.Fatal(err)
		}
		rows, err := readAll(t, copied)
		if err != nil {
			t.Fatalf("without the last %d bytes: %v", torn, err)
		}
		if rows >= commits || rows < commits-4 {
			t.Fatalf("without the last %d bytes: %d rows of %d", torn, rows, commits)
		}
	}
}

func TestADamagedManifestOfAClosedStoreIsRefused(t *testing.T) {
	const commits = 200
	directory := fill(t, commits, false)
	if err := open(t, directory, small).Close(); err != nil {
		t.Fatal(err)
	}
	manifest := newest(t, directory, "MANIFEST-*")
	reported := 0
	for offset := 0; offset < size(t, manifest); offset += 5 {
		rows, err := readAll(t, flip(t, manifest, offset))
		switch {
		case err == nil && rows != commits:
			t.Errorf("damage at %d: %d rows, want %d", offset, rows, commits)
		case err != nil && !errors.Is(err, fault.Unavailable):
			t.Errorf("damage at %d: %v, want Unavailable", offset, err)
		case err != nil:
			reported++
		}
	}
	if reported == 0 {
		t.Fatal("no damage was reported")
	}
}
