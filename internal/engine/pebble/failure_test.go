package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

var ctx = context.Background()

// small makes Pebble flush, rotate its log and compact after few commits.
var small = pebble.Options{MemTableBytes: 256 << 10}

func with(options pebble.Options, fs vfs.FS) pebble.Options {
	options.FS = fs
	return options
}

func space(t *testing.T, e engine.Engine) engine.Space {
	t.Helper()
	opened, err := e.Space(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// add commits one more key, with a value of some bytes that do not compress.
func add(space engine.Space, bytes int) (engine.Sequence, error) {
	return space.Commit(ctx, func(c engine.Commit) error {
		random := rand.New(rand.NewPCG(uint64(c.Sequence()), 1))
		value := make([]byte, bytes)
		for i := range value {
			value[i] = byte(random.Uint32())
		}
		c.Set(fmt.Appendf(nil, "%06d", c.Sequence()+1), value)
		return nil
	})
}

// count returns how many keys a snapshot has, and checks that they are those of
// the commits 1 to its sequence.
func count(t *testing.T, space engine.Space) engine.Sequence {
	t.Helper()
	snapshot, err := space.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Release()
	var keys engine.Sequence
	iterator := snapshot.Scan(ctx, engine.Range{}, false, 0)
	for iterator.Next() {
		keys++
		if want := fmt.Sprintf("%06d", keys); string(iterator.Key()) != want || iterator.Sequence() != keys {
			t.Fatalf("entry %d is %s of commit %d", keys, iterator.Key(), iterator.Sequence())
		}
	}
	if err := iterator.Close(); err != nil {
		t.Fatal(err)
	}
	if keys != snapshot.Sequence() {
		t.Fatalf("a snapshot of commit %d has %d keys", snapshot.Sequence(), keys)
	}
	return keys
}

// wantUnwritable checks what a store answers after a failure: no commit, an
// explanation, and reads of what was durable.
func wantUnwritable(t *testing.T, e engine.Engine, err error, cause string) {
	t.Helper()
	for range 3 {
		if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "must be reopened") || !strings.Contains(err.Error(), cause) {
			t.Fatalf("got %v, want Unavailable that says to reopen, because of %q", err, cause)
		}
		begun := time.Now()
		_, err = add(space(t, e), 10)
		if took := time.Since(begun); took > 5*time.Second {
			t.Fatalf("a commit after the failure took %v to be refused", took)
		}
	}
	dropErr := e.DropSpace(ctx, 2)
	if !errors.Is(dropErr, fault.Unavailable) {
		t.Fatalf("DropSpace after the failure: %v", dropErr)
	}
}

// injected fails the operations that its condition picks.
func injected(fs vfs.FS, armed *atomic.Bool, pick func(errorfs.Op) bool, err error) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && pick(op) {
			return err
		}
		return nil
	}))
}

func isLog(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") }

func isSync(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
}

func isWrite(op errorfs.Op) bool { return op.Kind == errorfs.OpFileWrite }

func TestAfterAFailedWriteNothingIsAcknowledgedAndWhatWasIsKept(t *testing.T) {
	for name, pick := range map[string]func(errorfs.Op) bool{
		"sync of the log":  func(op errorfs.Op) bool { return isLog(op) && isSync(op) },
		"write of the log": func(op errorfs.Op) bool { return isLog(op) && isWrite(op) },
		"creation of a log": func(op errorfs.Op) bool {
			return isLog(op) && (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite)
		},
		"creation of a table":   func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpCreate },
		"write of a table":      func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") && isWrite(op) },
		"sync of a table":       func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") && isSync(op) },
		"write of the manifest": func(op errorfs.Op) bool { return strings.Contains(op.Path, "MANIFEST") && isWrite(op) },
		"sync of the manifest":  func(op errorfs.Op) bool { return strings.Contains(op.Path, "MANIFEST") && isSync(op) },
		"sync of the folder":    func(op errorfs.Op) bool { return filepath.Base(op.Path) == "store" && isSync(op) },
	} {
		t.Run(name, func(t *testing.T) {
			memory := vfs.NewCrashableMem()
			var armed atomic.Bool
			e := open(t, "store", with(small, injected(memory, &armed, pick, syscall.EIO)))
			s := space(t, e)
			for range 5 {
				if _, err := add(s, 100); err != nil {
					t.Fatal(err)
				}
			}
			armed.Store(true)
			acknowledged, failed := commitUntilFailure(t, s)
			wantUnwritable(t, e, failed, "input/output error")
			if shown := count(t, s); shown < acknowledged {
				t.Fatalf("after the failure a snapshot is of %d; %d was acknowledged", shown, acknowledged)
			}
			shown := count(t, s)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			armed.Store(false)
			for name, fs := range map[string]vfs.FS{"as it is": memory, "without what is not synced": memory.CrashClone(vfs.CrashCloneCfg{})} {
				again := open(t, "store", with(small, fs))
				if kept := count(t, space(t, again)); kept < shown {
					t.Fatalf("reopened %s the space is at %d; %d was shown before", name, kept, shown)
				}
				if _, err := add(space(t, again), 10); err != nil {
					t.Fatal(err)
				}
				if err := again.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// commitUntilFailure commits from several goroutines until each has failed. It
// returns the newest commit that was acknowledged, and one of the errors.
func commitUntilFailure(t *testing.T, s engine.Space) (engine.Sequence, error) {
	t.Helper()
	var mu sync.Mutex
	var newest engine.Sequence
	var failed error
	var committers sync.WaitGroup
	for range 4 {
		committers.Go(func() {
			for range 5000 {
				sequence, err := add(s, 2000)
				mu.Lock()
				if err != nil {
					failed = err
					mu.Unlock()
					return
				}
				newest = max(newest, sequence)
				mu.Unlock()
			}
		})
	}
	committers.Wait()
	if failed == nil {
		t.Fatal("no commit failed")
	}
	return newest, failed
}

// A disk that takes a number of bytes more, and is full then.
type fullDisk struct {
	vfs.FS
	left *atomic.Int64
}

func (d fullDisk) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return fullFile{file, d.left}, nil
}

func (d fullDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.FS.Create(name, category))
}

func (d fullDisk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.FS.ReuseForWrite(from, to, category))
}

func (d fullDisk) Unwrap() vfs.FS { return d.FS }

type fullFile struct {
	vfs.File
	left *atomic.Int64
}

func (f fullFile) Write(p []byte) (int, error) {
	left := f.left.Add(-int64(len(p)))
	if left >= 0 {
		return f.File.Write(p)
	}
	written, err := f.File.Write(p[:max(0, left+int64(len(p)))])
	return written, errors.Join(err, syscall.ENOSPC)
}

func TestAFullDiskRefusesCommitsAndLosesNothingThatWasAcknowledged(t *testing.T) {
	for _, room := range []int64{0, 10, 3_000, 100_000, 300_000, 777_777, 1_000_000, 1_500_000, 2_345_678, 4_000_000} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			memory := vfs.NewCrashableMem()
			left := new(atomic.Int64)
			left.Store(1 << 40)
			e := open(t, "store", with(small, fullDisk{memory, left}))
			s := space(t, e)
			if _, err := add(s, 100); err != nil {
				t.Fatal(err)
			}
			left.Store(room)
			acknowledged, failed := commitUntilFailure(t, s)
			wantUnwritable(t, e, failed, "no space left on device")
			if shown := count(t, s); shown < acknowledged {
				t.Fatalf("a snapshot is of %d; %d was acknowledged", shown, acknowledged)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			full, err := pebble.Open("store", with(small, fullDisk{memory, left}))
			if err == nil {
				t.Fatal("opened on a full disk")
			}
			if !errors.Is(err, fault.Unavailable) || full != nil {
				t.Fatalf("opening on a full disk: %v", err)
			}
			again := open(t, "store", with(small, memory.CrashClone(vfs.CrashCloneCfg{})))
			if kept := count(t, space(t, again)); kept < acknowledged {
				t.Fatalf("reopened the space is at %d; %d was acknowledged", kept, acknowledged)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// After Close nothing of a store that failed may change the folder, which may
// be another process's by then.
func TestAStoreThatFailedLeavesTheFolderAloneAfterClose(t *testing.T) {
	memory := vfs.NewMem()
	var armed, closed atomic.Bool
	var late atomic.Int32
	watched := errorfs.Wrap(memory, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if closed.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
			late.Add(1)
		}
		if armed.Load() && strings.HasSuffix(op.Path, ".sst") && isWrite(op) {
			return syscall.EIO
		}
		return nil
	}))
	e := open(t, "store", with(small, watched))
	armed.Store(true)
	if _, err := commitUntilFailure(t, space(t, e)); err == nil {
		t.Fatal("no failure")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	closed.Store(true)
	armed.Store(false)
	time.Sleep(100 * time.Millisecond) // For what might still be running.
	if changes := late.Load(); changes > 0 {
		t.Fatalf("%d changes of the folder after Close", changes)
	}
}

// heldSync is a file system whose logs are not synced while it is held.
type heldSync struct {
	vfs.FS
	held *sync.RWMutex
}

func (h heldSync) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := h.FS.Create(name, category)
	return heldFile{file, h.held}, err
}

func (h heldSync) Unwrap() vfs.FS { return h.FS }

type heldFile struct {
	vfs.File
	held *sync.RWMutex
}

func (f heldFile) SyncData() error {
	f.held.RLock()
	defer f.held.RUnlock()
	return f.File.SyncData()
}

func TestCommitsAreFormedWhileOthersAreSyncedAndShownOnlyOnceTheyAre(t *testing.T) {
	held := new(sync.RWMutex)
	e := open(t, "store", pebble.Options{FS: heldSync{vfs.NewMem(), held}})
	s := space(t, e)
	if _, err := add(s, 10); err != nil {
		t.Fatal(err)
	}
	held.Lock()
	const many = 5
	answered := make(chan engine.Sequence, many+1)
	formed := make(chan engine.Sequence, many)
	for range many {
		go func() {
			sequence, err := s.Commit(ctx, func(c engine.Commit) error {
				c.Set(fmt.Appendf(nil, "%06d", c.Sequence()+1), nil)
				formed <- c.Sequence()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			answered <- sequence
		}()
	}
	for want := range engine.Sequence(many) {
		select {
		case read := <-formed:
			if read != want+1 {
				t.Fatalf("a form read commit %d, want the undurable %d", read, want+1)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a form waits for the sync of the commit before it")
		}
	}
	changed := s.Changed(1)
	go func() {
		sequence, err := s.Commit(ctx, func(c engine.Commit) error {
			entry, err := c.Get(ctx, []byte("000006"))
			if err == nil && entry.Sequence != 6 {
				err = fmt.Errorf("a form read %v of an undurable commit", entry)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		answered <- sequence
	}()
	select {
	case <-changed:
		t.Fatal("Changed told of a commit that is not durable")
	case sequence := <-answered:
		t.Fatalf("commit %d was answered before it was durable", sequence)
	case <-time.After(50 * time.Millisecond):
	}
	if shown := count(t, s); shown != 1 {
		t.Fatalf("a snapshot shows commit %d, which is not durable", shown)
	}
	held.Unlock()
	for range many + 1 {
		<-answered
	}
	<-changed
	if shown := count(t, s); shown != many+1 {
		t.Fatalf("a snapshot shows commit %d, want %d", shown, many+1)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// The published snapshot of an idle space would keep Pebble from giving back
// what was removed from others.
func TestAnIdleSpaceDoesNotHoldBackTheOthersSpace(t *testing.T) {
	e, err := pebble.OpenMemory(small)
	if err != nil {
		t.Fatal(err)
	}
	idle, err := e.Space(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := add(idle, 10); err != nil {
		t.Fatal(err)
	}
	before := pebble.OldestSnapshot(e)
	for range 3 {
		if _, err := add(space(t, e), 10); err != nil {
			t.Fatal(err)
		}
	}
	nodetest.Eventually(t, 10*time.Second, func() bool { return pebble.OldestSnapshot(e) != before }, "the idle space's snapshot is renewed")
	if shown := count(t, idle); shown != 1 {
		t.Fatalf("the idle space is at %d", shown)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestACommitOverTheLimitIsRefusedAndTheNextIsNot(t *testing.T) {
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := space(t, e)
	value := make([]byte, 16<<20)
	_, err = s.Commit(ctx, func(c engine.Commit) error {
		for i := range 12 {
			c.Set([]byte{byte(i)}, value)
		}
		return nil
	})
	if !errors.Is(err, fault.TooLarge) {
		t.Fatalf("a commit of 192 MiB: %v", err)
	}
	if sequence, err := add(s, 10); err != nil || sequence != 1 {
		t.Fatalf("the next: %d, %v", sequence, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestASnapshotThatIsNotReleasedIsToldByClose(t *testing.T) {
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := space(t, e).Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); !errors.Is(err, fault.Internal) || !strings.Contains(err.Error(), "1 snapshots") {
		t.Fatalf("Close: %v", err)
	}
	if _, err := snapshot.Get(ctx, []byte("a")); !errors.Is(err, engine.ErrClosed) {
		t.Fatalf("a read after Close: %v", err)
	}
	snapshot.Release()
	if _, err := snapshot.Get(ctx, []byte("a")); err == nil {
		t.Fatal("a read after the release")
	}
}

func TestAnIteratorThatIsNotClosedIsToldByCloseAndStaysReadable(t *testing.T) {
	directory := t.TempDir()
	e := open(t, directory, small)
	s := space(t, e)
	for range 3 {
		if _, err := add(s, 10); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	iterator := snapshot.Scan(ctx, engine.Range{}, false, 0)
	if !iterator.Next() {
		t.Fatal("nothing to scan")
	}
	if err := e.Close(); !errors.Is(err, fault.Internal) || !strings.Contains(err.Error(), "1 snapshots were not released and 1 iterators") {
		t.Fatalf("Close: %v", err)
	}
	if !iterator.Next() || string(iterator.Key()) != "000002" {
		t.Fatal("the iterator ended")
	}
	if err := iterator.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, directory, small)
	if kept := count(t, space(t, again)); kept != 3 {
		t.Fatalf("the space is at %d", kept)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
