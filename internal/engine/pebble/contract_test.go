package pebble_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/enginetest"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
)

func TestContractOnDisk(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Place {
		directory := t.TempDir()
		return enginetest.Place{Open: func(t *testing.T) engine.Engine {
			return open(t, directory, pebble.Options{})
		}}
	})
}

func TestContractInMemory(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Place {
		return enginetest.Place{
			Forgets: true,
			Open: func(t *testing.T) engine.Engine {
				e, err := pebble.OpenMemory(pebble.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return e
			},
		}
	})
}

// A file system that loses at a crash whatever was not synced, and takes some
// time to sync, so that commits are on their way when it crashes.
func TestContractWhereACrashLosesWhatIsNotSynced(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Place {
		memory := vfs.NewCrashableMem()
		return enginetest.Place{
			Open: func(t *testing.T) engine.Engine {
				return open(t, "store", pebble.Options{FS: slowSync{memory, time.Millisecond}, MemTableBytes: 256 << 10})
			},
			Crash: func(*testing.T) { memory = memory.CrashClone(vfs.CrashCloneCfg{}) },
		}
	})
}

func open(t *testing.T, directory string, options pebble.Options) *pebble.Engine {
	t.Helper()
	e, err := pebble.Open(directory, options)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// slowSync is a file system whose files take a while to sync.
type slowSync struct {
	vfs.FS
	delay time.Duration
}

func (s slowSync) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := s.FS.Create(name, category)
	return slowFile{file, s.delay}, err
}

func (s slowSync) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := s.FS.ReuseForWrite(from, to, category)
	return slowFile{file, s.delay}, err
}

func (s slowSync) Unwrap() vfs.FS { return s.FS }

// slowFile takes its time on purpose, as a disk does.
type slowFile struct {
	vfs.File
	delay time.Duration
}

func (f slowFile) Sync() error {
	time.Sleep(f.delay)
	return f.File.Sync()
}

func (f slowFile) SyncData() error {
	time.Sleep(f.delay)
	return f.File.SyncData()
}
