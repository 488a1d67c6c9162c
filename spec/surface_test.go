package spec_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

// surface is where a script runs: each one is a row of surfaces.
type surface struct {
	name string
	// prepare makes a place that is empty.
	prepare func(t *testing.T, clock func() time.Time) place
	// served says that callers reach the store by a node, over a WebSocket.
	served bool
}

// place is where a store is kept while it is closed.
type place struct {
	// open opens the engine, with what earlier ones left.
	open func(t *testing.T) engine.Engine
	// crash makes the place what a crash at this moment leaves. The engine
	// that is open is closed afterwards, and what it does then is lost.
	crash func(t *testing.T)
}

var surfaces = []surface{
	{name: "memory", prepare: prepareMemory},
	{name: "disk", prepare: prepareDisk},
	{name: "postgres", prepare: preparePostgres},
	{name: "websocket", prepare: prepareMemory, served: true},
}

// prepareMemory keeps the store in a file system in memory, which forgets at a
// crash whatever was not synced.
func prepareMemory(_ *testing.T, clock func() time.Time) place {
	files := vfs.NewCrashableMem()
	return place{
		open: func(t *testing.T) engine.Engine {
			e, err := pebble.OpenMemory(pebble.Options{Clock: clock, FS: files})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
		crash: func(*testing.T) { files = files.CrashClone(vfs.CrashCloneCfg{}) },
	}
}

// prepareDisk keeps the store in a folder. A crash leaves what a process that
// is killed leaves: the files as they are at the moment.
func prepareDisk(t *testing.T, clock func() time.Time) place {
	root := t.TempDir()
	lives := 0
	folder := func() string { return filepath.Join(root, strconv.Itoa(lives)) }
	return place{
		open: func(t *testing.T) engine.Engine {
			e, err := pebble.Open(folder(), pebble.Options{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
		crash: func(t *testing.T) {
			left := os.DirFS(folder())
			lives++
			if err := os.CopyFS(folder(), left); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestMain(m *testing.M) { postgrestest.Main(m) }

// preparePostgres keeps the store in a schema of a PostgreSQL that all scripts
// share. A crash is the node's: what it has not committed is gone.
func preparePostgres(t *testing.T, clock func() time.Time) place {
	options := postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: postgrestest.Schema(), Clock: clock}
	return place{
		open: func(t *testing.T) engine.Engine {
			e, err := postgres.Open(context.Background(), options)
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
		crash: func(*testing.T) {},
	}
}
