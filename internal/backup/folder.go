package backup

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
)

// folder is a folder that a store of package pebble is restored to.
type folder struct {
	directory string
	log       *slog.Logger
	// beside is the folder that the store is restored in: in the same parent, so
	// that it is renamed and not copied.
	beside string
}

// Folder is a folder that is empty or not there. The store is restored in a
// folder beside it, whose name says so, and renamed last.
func Folder(directory string, log *slog.Logger) Place {
	return &folder{directory: filepath.Clean(directory), log: log}
}

func (f *folder) Open(_ context.Context, clock func() time.Time) (engine.Engine, error) {
	if err := f.checkEmpty(); err != nil {
		return nil, err
	}
	parent := filepath.Dir(f.directory)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fault.New(fault.Unavailable, "the folder %s cannot be made: %w", parent, err)
	}
	beside, err := os.MkdirTemp(parent, filepath.Base(f.directory)+".restoring-*")
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the store cannot be restored beside %s: %w", f.directory, err)
	}
	f.beside = beside
	return pebble.Open(beside, pebble.Options{Clock: clock, Logger: f.log})
}

// checkEmpty refuses a folder that holds something, or that nothing can be
// renamed to.
func (f *folder) checkEmpty() error {
	held, err := os.ReadDir(f.directory)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fault.New(fault.Unavailable, "the folder %s cannot be read: %w", f.directory, err)
	case len(held) > 0:
		return fault.New(fault.AlreadyExists, "the folder %s holds %s; a store is restored into an empty folder, or one that is not there", f.directory, held[0].Name())
	}
	// Now rather than when everything is restored: a mount cannot be replaced.
	if err := os.Remove(f.directory); err != nil {
		return fault.New(fault.Unavailable, "the folder %s cannot be replaced by the restored store; name one inside it: %w", f.directory, err)
	}
	return os.Mkdir(f.directory, 0o755)
}

func (f *folder) Keep(context.Context) error {
	if err := os.Chmod(f.beside, 0o755); err != nil {
		return fault.New(fault.Unavailable, "the restored store cannot be opened to its users: %w", err)
	}
	// Without the empty folder, which os.Rename would not replace.
	if err := os.Remove(f.directory); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fault.New(fault.Unavailable, "the restored store cannot be put in its place: %w", err)
	}
	if err := os.Rename(f.beside, f.directory); err != nil {
		return fault.New(fault.Unavailable, "the restored store cannot be put in its place: %w", err)
	}
	f.beside = ""
	return syncFolder(filepath.Dir(f.directory))
}

func (f *folder) Discard(context.Context) error {
	if f.beside == "" {
		return nil
	}
	if err := os.RemoveAll(f.beside); err != nil {
		return fault.New(fault.Unavailable, "%s, which is not a whole store, cannot be removed: %w", f.beside, err)
	}
	f.beside = ""
	return nil
}

// syncFolder makes a renaming in a folder durable.
func syncFolder(directory string) error {
	opened, err := os.Open(directory)
	if err != nil {
		return fault.New(fault.Unavailable, "the folder %s cannot be synced: %w", directory, err)
	}
	if err := errors.Join(opened.Sync(), opened.Close()); err != nil {
		return fault.New(fault.Unavailable, "the folder %s cannot be synced: %w", directory, err)
	}
	return nil
}
