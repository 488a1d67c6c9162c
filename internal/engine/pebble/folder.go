package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/fault"
)

// The files in a store's folder beside those of Pebble.
const (
	// lockName is Pebble's own name for its lock, so that Pebble's tools
	// respect ours. The operating system lets go of it when a process dies.
	lockName = "LOCK"

	// ownerName says who holds the lock, for people; it decides nothing.
	ownerName = "OWNER"

	// formatName says what layout the folder has and what made it. Its first
	// line is formatHead and the version.
	formatName = "FORMAT"
	formatHead = "tidemark-pebble "

	// durableName says how many commits were durable at some time, so that it is
	// noticed where a damaged log or manifest lost its end: Pebble takes damage
	// there for what a crash leaves. It is written when a store is closed, and
	// every noteInterval while it is open.
	durableName = "DURABLE"
	durableHead = "commits "

	// formatNewest is the version of our layout that this code writes and the
	// newest that it reads.
	formatNewest = 1
)

// folder is a store's folder that this process owns.
type folder struct {
	fs        vfs.FS
	directory string
	lock      io.Closer
	// made says that the folder was made a store just now.
	made bool
}

// openFolder makes, locks and checks a folder.
func openFolder(fs vfs.FS, directory, writtenBy string) (*folder, error) {
	f := &folder{fs: fs, directory: directory}
	if err := fs.MkdirAll(directory, 0o755); err != nil {
		return nil, fault.New(fault.Unavailable, "the folder %s cannot be made: %w", directory, err)
	}
	// Before the lock, so that nothing is written into a folder of others.
	if _, err := f.format(); err != nil {
		return nil, err
	}
	lock, err := fs.Lock(f.path(lockName))
	if err != nil {
		return nil, f.inUse(err)
	}
	f.lock = lock
	if err := f.take(writtenBy); err != nil {
		f.release()
		return nil, err
	}
	return f, nil
}

func (f *folder) path(name string) string { return f.fs.PathJoin(f.directory, name) }

// take notes who owns the folder, and makes it ours if it is empty.
func (f *folder) take(writtenBy string) error {
	owner := fmt.Sprintf("process %d since %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	if err := f.write(f.fs, ownerName, owner); err != nil {
		return fault.New(fault.Unavailable, "the folder %s cannot be written: %w", f.directory, err)
	}
	version, err := f.format()
	if err != nil || version > 0 {
		return err
	}
	format := fmt.Sprintf("%s%d\nwritten by %s\n", formatHead, formatNewest, writtenBy)
	if err := f.write(f.fs, formatName, format); err != nil {
		return fault.New(fault.Unavailable, "the folder %s cannot be written: %w", f.directory, err)
	}
	f.made = true
	return nil
}

// format returns the version of the folder's layout, 0 for an empty folder, or
// why the folder is not taken.
func (f *folder) format() (int, error) {
	text, err := f.read(formatName)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0, f.checkEmpty()
	case err != nil:
		return 0, fault.New(fault.Unavailable, "the file %s cannot be read: %w", f.path(formatName), err)
	}
	head, rest, _ := strings.Cut(text, "\n")
	number, ours := strings.CutPrefix(head, formatHead)
	version, err := strconv.Atoi(number)
	if !ours || err != nil || version < 1 {
		return 0, fault.New(fault.Unavailable, "the file %s is damaged, or not of a Tidemark store; nothing was changed", f.path(formatName))
	}
	if version > formatNewest {
		return 0, fault.New(fault.Unavailable,
			"the store in %s has format %d (%s), and this program reads up to format %d; use a newer program",
			f.directory, version, strings.TrimSpace(rest), formatNewest)
	}
	return version, nil
}

// checkEmpty refuses a folder without a FORMAT that holds what is not ours. A
// store whose making was interrupted has a lock at most, and the root of a new
// file system has its lost+found.
func (f *folder) checkEmpty() error {
	names, err := f.fs.List(f.directory)
	if err != nil {
		return fault.New(fault.Unavailable, "the folder %s cannot be read: %w", f.directory, err)
	}
	for _, name := range names {
		switch name {
		case lockName, ownerName, temporary(ownerName), temporary(formatName), "lost+found":
		default:
			return fault.New(fault.Unavailable,
				"the folder %s holds %s but no %s, so it is not a Tidemark store; name an empty folder", f.directory, name, formatName)
		}
	}
	return nil
}

// inUse explains that the lock is held.
func (f *folder) inUse(cause error) error {
	owner, err := f.read(ownerName)
	owner = strings.TrimSpace(owner)
	if err != nil || owner == "" {
		owner = "a process that it does not name"
	}
	return fault.New(fault.Unavailable, "the store in %s is in use by %s: %w", f.directory, owner, cause)
}

// release gives the folder up.
func (f *folder) release() {
	_ = f.fs.Remove(f.path(ownerName)) // It only informs.
	_ = f.lock.Close()                 // The process holds it no longer than it lives anyway.
}

func (f *folder) read(name string) (string, error) {
	file, err := f.fs.Open(f.path(name))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(file)
	return string(text), errors.Join(err, file.Close())
}

func temporary(name string) string { return name + ".new" }

// write makes a file, whole or not at all. fs is f.fs, or the fence before it
// while Pebble is open.
func (f *folder) write(fs vfs.FS, name, text string) error {
	file, err := fs.Create(f.path(temporary(name)), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write([]byte(text))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := fs.Rename(f.path(temporary(name)), f.path(name)); err != nil {
		return err
	}
	directory, err := fs.OpenDir(f.directory)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// noteDurable notes how many commits are durable.
func (f *folder) noteDurable(fs vfs.FS, commits uint64) error {
	return f.write(fs, durableName, fmt.Sprintf("%s%d\n", durableHead, commits))
}

// checkDurable fails where fewer commits are there than once were durable.
func (f *folder) checkDurable(commits uint64) error {
	text, err := f.read(durableName)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the file %s cannot be read: %w", f.path(durableName), err)
	}
	number, ours := strings.CutPrefix(strings.TrimSpace(text), durableHead)
	noted, err := strconv.ParseUint(number, 10, 64)
	if !ours || err != nil {
		return fault.New(fault.Unavailable, "the file %s is damaged; if the store is whole otherwise, remove it", f.path(durableName))
	}
	if commits < noted {
		return fault.New(fault.Unavailable,
			"the store in %s had %d commits that were durable and has %d: its log or its manifest is damaged, restore the folder from a copy "+
				"(to go on without the missing commits, remove %s)", f.directory, noted, commits, f.path(durableName))
	}
	return nil
}
