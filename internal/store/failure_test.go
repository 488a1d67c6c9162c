package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// disk is a file system that fails once it is told to.
type disk struct {
	memory *vfs.MemFS
	fails  func(errorfs.Op) bool
	cause  error
	armed  atomic.Bool
	// left is how many writes it takes after it was armed.
	left atomic.Int64
}

func (d *disk) fs() vfs.FS {
	return errorfs.Wrap(d.memory, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if d.armed.Load() && d.fails(op) && d.left.Add(-1) < 0 {
			return d.cause
		}
		return nil
	}))
}

func isWriteOf(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite
}

func isSyncOf(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
}

func TestADiskThatFailsMakesTheStoreUnavailableAndLosesNothingAcknowledged(t *testing.T) {
	for name, test := range map[string]struct {
		fails  func(errorfs.Op) bool
		cause  error
		writes int64
	}{
		"fsync fails at once":       {isSyncOf, syscall.EIO, 0},
		"fsync fails later":         {isSyncOf, syscall.EIO, 20},
		"the log cannot be written": {func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") && isWriteOf(op) }, syscall.EIO, 5},
		"the disk is full":          {isWriteOf, syscall.ENOSPC, 0},
		"the disk is full soon":     {isWriteOf, syscall.ENOSPC, 3},
		"the disk is full later":    {isWriteOf, syscall.ENOSPC, 200},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disk{memory: vfs.NewCrashableMem(), fails: test.fails, cause: test.cause}
			f := openOn(t, d.fs())
			f.defineTopic(eventsTopic, topic.TopicDefinition{})
			f.defineGroup(eventsTopic, "g", topic.GroupDefinition{AckDeadline: 1, InFlight: 100})
			_, err := f.transact(func(tx *store.Tx) error {
				return tx.DefineTable(f.ctx, store.Table{Name: effectsTable, Kind: store.Collection}, store.Refuse)
			})
			f.must(err)

			told := f.workUntilFailure(d, test.writes)
			f.wantUnavailable(told.failure, test.cause)
			f.wantUnavailable(f.appendOnce(), test.cause)
			_, err = f.db.Read(f.ctx, eventsTopic, store.ReadOptions{Consumer: "g"}, 0)
			f.wantUnavailable(err, test.cause)
			// What was durable is still read, in the store that failed too.
			f.wantAcknowledged(told)
			f.must(f.store.Close())

			d.armed.Store(false)
			for _, memory := range []*vfs.MemFS{d.memory.CrashClone(vfs.CrashCloneCfg{}), d.memory} {
				again := openOn(t, memory)
				again.wantAcknowledged(told)
				again.must(again.appendOnce())
				again.must(again.store.Close())
			}
		})
	}
}

// openOn opens a store on a file system, with a database in it.
func openOn(t *testing.T, fs vfs.FS) *fixture {
	t.Helper()
	f := &fixture{T: t, clock: newClock(), ctx: context.Background()}
	e, err := pebble.Open("store", pebble.Options{FS: fs, Clock: f.clock.Now, MemTableBytes: 256 << 10})
	f.must(err)
	f.store, err = store.Open(f.ctx, e, store.Options{HousekeepingEvery: -1})
	f.must(err)
	f.must(f.store.DefineNamespace(f.ctx, "shop", true))
	f.must(f.store.DefineDatabase(f.ctx, "shop", "orders", true))
	f.db, err = f.store.Database(f.ctx, "shop", "orders")
	f.must(err)
	return f
}

// answers are what clients were told before the disk failed.
type answers struct {
	mu sync.Mutex
	// The following are protected by mu.
	appended map[topic.Position]string
	effects  []int64
	failure  error
}

func (f *fixture) appendOnce() error {
	_, err := f.db.Append(f.ctx, eventsTopic, message("more"))
	return err
}

// workUntilFailure lets several clients append and transact while the disk
// begins to fail, until each has met the failure.
func (f *fixture) workUntilFailure(d *disk, writes int64) *answers {
	told := &answers{appended: map[topic.Position]string{}}
	d.left.Store(writes)
	var clients sync.WaitGroup
	for client := range int64(4) {
		clients.Go(func() {
			for n := int64(0); ; n++ {
				if client == 0 && n == 20 {
					d.armed.Store(true)
				}
				var err error
				if client%2 == 0 {
					err = f.appendAndTell(told, strings.Repeat("m", int(100+n%1000)))
				} else {
					err = f.transactAndTell(told, client<<32|n)
				}
				if err != nil {
					told.mu.Lock()
					told.failure = err
					told.mu.Unlock()
					return
				}
			}
		})
	}
	clients.Wait()
	return told
}

func (f *fixture) appendAndTell(told *answers, text string) error {
	appended, err := f.db.Append(f.ctx, eventsTopic, message(text))
	if err != nil {
		return err
	}
	told.mu.Lock()
	defer told.mu.Unlock()
	told.appended[appended[0].Position] = text
	return nil
}

// transactAndTell appends and writes a record in one transaction.
func (f *fixture) transactAndTell(told *answers, n int64) error {
	tx, err := f.db.Begin(f.ctx)
	if err != nil {
		return err
	}
	defer tx.Cancel()
	events, err := tx.Catalog().TopicTable(eventsTopic)
	if err != nil {
		return err
	}
	effects, err := tx.Catalog().Table(effectsTable)
	if err != nil {
		return err
	}
	if _, _, err := tx.Append(f.ctx, events, value.None(), value.String("of a transaction")); err != nil {
		return err
	}
	if _, err := tx.Create(f.ctx, effects, value.Int(n), value.Fields(nil)); err != nil {
		return err
	}
	positions, err := tx.Commit(f.ctx)
	if err != nil {
		return err
	}
	told.mu.Lock()
	defer told.mu.Unlock()
	told.appended[positions[eventsTopic].First] = "of a transaction"
	told.effects = append(told.effects, n)
	return nil
}

func (f *fixture) wantUnavailable(err, cause error) {
	f.Helper()
	if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "must be reopened") || !strings.Contains(err.Error(), cause.Error()) {
		f.Fatalf("want Unavailable that says the store must be reopened, because of %q; got %v", cause, err)
	}
}

// wantAcknowledged checks that all that clients were told is there, and
// positions are dense.
func (f *fixture) wantAcknowledged(told *answers) {
	f.Helper()
	tx, err := f.db.Begin(f.ctx)
	f.must(err)
	defer tx.Cancel()
	events, err := tx.Catalog().TopicTable(eventsTopic)
	f.must(err)
	found := map[topic.Position]string{}
	rows := tx.Scan(f.ctx, events, store.ScanOptions{})
	for rows.Next() {
		v, err := rows.Row().Value()
		f.must(err)
		found[rows.Row().Position], _ = v.AsString()
	}
	f.must(rows.Close())
	for p := range topic.Position(len(found)) {
		if _, ok := found[p+1]; !ok {
			f.Fatalf("%d positions are held, and %d is not among them", len(found), p+1)
		}
	}
	for p, text := range told.appended {
		if found[p] != text {
			f.Fatalf("message %d was acknowledged and is lost, or is another", p)
		}
	}
	effects, err := tx.Catalog().Table(effectsTable)
	f.must(err)
	for _, n := range told.effects {
		_, kept, err := tx.Get(f.ctx, effects, value.Int(n))
		f.must(err)
		if !kept {
			f.Fatalf("record %d was acknowledged and is lost", n)
		}
	}
}
