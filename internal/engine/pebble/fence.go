package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fence is the file system that Pebble works on. It notices the first change
// that fails, and lets none through afterwards: so no later sync succeeds that
// an earlier failed one should have come before, and Pebble's background work
// cannot touch a folder that someone else may have opened meanwhile.
//
// Once the store is open, Pebble is not even told. Where its log cannot be
// written it panics while it has let go of a lock that it believes to hold,
// and unlocking that ends the process, which no recover prevents
// (DB.rotateWAL under DB.commitWrite); and what cannot be flushed it tries
// again at once, for ever. So the goroutine that made the change stops where
// it is, for good, and whoever waits for it is helped by failure.await.
type fence struct {
	vfs.FS
	failure *failure

	// opened is set once Pebble is open. Before, it is told of errors, which it
	// returns from Open.
	opened atomic.Bool
	// closed is set once nothing may change any more.
	closed atomic.Bool
	// changing is held for reading by every change while it is made.
	changing sync.RWMutex
}

func newFence(fs vfs.FS, failure *failure) *fence { return &fence{FS: fs, failure: failure} }

// shut keeps out all further changes and waits for those being made.
func (f *fence) shut() {
	f.closed.Store(true)
	f.changing.Lock()
	defer f.changing.Unlock()
}

// change makes a change, unless one failed before, and notes if it fails.
func (f *fence) change(what, name string, make func() error) error {
	err := f.attempt(make)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !errors.Is(err, errFenced) {
		f.failure.record(fmt.Errorf("%s %s failed: %w", what, name, err))
	}
	if f.opened.Load() {
		select {} // See fence.
	}
	return err
}

func (f *fence) attempt(change func() error) error {
	f.changing.RLock()
	defer f.changing.RUnlock()
	if f.closed.Load() || f.failure.err() != nil {
		return errFenced
	}
	return change()
}

// errFenced is what changes meet after a failure.
var errFenced = errors.New("the store was fenced after a failure")

// file makes a change that opens a file for writing.
func (f *fence) file(what, name string, open func() (vfs.File, error)) (vfs.File, error) {
	var opened vfs.File
	err := f.change(what, name, func() (err error) {
		opened, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: opened, fence: f, name: name}, nil
}

func (f *fence) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("creating", name, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

func (f *fence) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return f.file("opening", name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, options...) })
}

func (f *fence) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("creating", to, func() (vfs.File, error) { return f.FS.ReuseForWrite(from, to, category) })
}

// OpenDir opens a folder, to sync what is in it.
func (f *fence) OpenDir(name string) (vfs.File, error) {
	opened, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: opened, fence: f, name: name}, nil
}

func (f *fence) Link(from, to string) error {
	return f.change("creating", to, func() error { return f.FS.Link(from, to) })
}

func (f *fence) Rename(from, to string) error {
	return f.change("renaming to", to, func() error { return f.FS.Rename(from, to) })
}

func (f *fence) MkdirAll(directory string, mode os.FileMode) error {
	return f.change("creating", directory, func() error { return f.FS.MkdirAll(directory, mode) })
}

// Remove is no change that fails a store: Pebble tries it again later.
func (f *fence) Remove(name string) error {
	return f.attempt(func() error { return f.FS.Remove(name) })
}

func (f *fence) RemoveAll(name string) error {
	return f.attempt(func() error { return f.FS.RemoveAll(name) })
}

// GetDiskUsage hides errors, which Pebble would report as those of a flush.
func (f *fence) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	usage, err := f.FS.GetDiskUsage(path)
	if err != nil {
		return vfs.DiskUsage{}, vfs.ErrUnsupported
	}
	return usage, nil
}

// Lock does nothing: the folder is locked, by openFolder, until after the
// fence is shut.
func (f *fence) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (f *fence) Unwrap() vfs.FS { return f.FS }

// fencedFile is a file that was opened for writing.
type fencedFile struct {
	vfs.File
	fence *fence
	name  string
}

func (f *fencedFile) Write(p []byte) (n int, err error) {
	err = f.fence.change("writing", f.name, func() error {
		n, err = f.File.Write(p)
		return err
	})
	return n, err
}

func (f *fencedFile) WriteAt(p []byte, offset int64) (n int, err error) {
	err = f.fence.change("writing", f.name, func() error {
		n, err = f.File.WriteAt(p, offset)
		return err
	})
	return n, err
}

func (f *fencedFile) Sync() error {
	return f.fence.change("syncing", f.name, f.File.Sync)
}

func (f *fencedFile) SyncData() error {
	return f.fence.change("syncing", f.name, f.File.SyncData)
}

func (f *fencedFile) SyncTo(length int64) (full bool, err error) {
	err = f.fence.change("syncing", f.name, func() error {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}
