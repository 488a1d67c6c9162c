package pebble

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"

	crdb "github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/fault"
)

// failure is the first thing that went wrong with writing, if anything did.
// From then on nothing is written: what the disk did with the data that it
// failed to take is not known (a sync that is tried again may succeed without
// having written), so the log must be read again from the disk, by reopening.
//
// It is told by four parties, whichever is first:
//
//   - the fence, of a write, sync or rename that the file system refused;
//   - a commit, whose batch Pebble did not take (DB.ApplyNoSyncWait) or did not
//     sync (Batch.SyncWait);
//   - Pebble's logger, of what Pebble calls fatal: a commit or a change of its
//     manifest that failed, a broken invariant;
//   - Pebble's event listener, of a flush or compaction that failed, which is
//     left where it met damage in a file that it was to rewrite.
//
// A read that meets damage fails alone: the rest of the store goes on.
type failure struct {
	directory string
	log       *slog.Logger

	once     sync.Once
	happened chan struct{}
	// cause is written before happened is closed, and read after.
	cause error
}

func newFailure(directory string, log *slog.Logger) *failure {
	return &failure{directory: directory, log: log, happened: make(chan struct{})}
}

// record notes what went wrong, unless something did before.
func (f *failure) record(cause error) {
	f.once.Do(func() {
		f.log.Error("the store stops writing", slog.String("folder", f.directory), slog.Any("cause", cause))
		f.cause = fault.New(fault.Unavailable, "the store in %s can no longer be written and must be reopened: %w",
			f.directory, describe(cause))
		close(f.happened)
	})
}

// err returns what every commit is answered after a failure, nil before one.
func (f *failure) err() error {
	select {
	case <-f.happened:
		return f.cause
	default:
		return nil
	}
}

// await waits until done is closed and reports true, or until a failure has
// happened and done was not closed within the grace either.
func (f *failure) await(done <-chan struct{}, grace time.Duration) bool {
	select {
	case <-done:
		return true
	case <-f.happened:
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// reading returns the answer to a read that failed.
func (f *failure) reading(err error) error {
	return fault.New(fault.Unavailable, "the store in %s cannot be read: %w", f.directory, describe(err))
}

// describe adds to damage which file it is in, which Pebble's text does not
// say, and what can be done.
func describe(err error) error {
	if !crdb.IsCorruptionError(err) {
		return err
	}
	return damage{err}
}

// damage is an error of Pebble's that says that a file is not as it was written.
type damage struct{ cause error }

func (d damage) Error() string {
	file := "a file of the store"
	if info := crdb.ExtractDataCorruptionInfo(d.cause); info != nil {
		file = "the file " + info.Path
	}
	what, _, _ := strings.Cut(d.cause.Error(), "\n") // What follows is of no use to people.
	return file + " is damaged, restore the folder from a copy: " + what
}

func (d damage) Unwrap() error { return d.cause }

// pebbleLogger is Pebble's logger. Fatalf must not return, and must not end
// the process, which may have other stores and clients to answer: it records
// the failure and ends the goroutine that met it. Its deferred calls run, so
// Pebble's locks are let go; what the goroutine was doing stays undone, and
// whoever waits for it is helped by await. Pebble calls it on goroutines of
// its own, and on those in which this package opens, applies and closes.
type pebbleLogger struct{ failure *failure }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.failure.log.Debug(fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.failure.log.Warn(fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.failure.record(fmt.Errorf(format, args...))
	runtime.Goexit()
}

// listener returns the handlers of Pebble's events.
func (f *failure) listener() *crdb.EventListener {
	return &crdb.EventListener{
		// Pebble tries a failed flush or compaction again at once, for ever, and
		// in the end commits wait for it: they would hang instead of failing. So
		// the first one is a failure, and its goroutine ends, which keeps Pebble
		// from starting the next. (The fence hides errors of GetDiskUsage, the
		// only harmless ones that come here.)
		BackgroundError: func(err error) {
			f.record(fmt.Errorf("a file could not be rewritten: %w", err))
			runtime.Goexit()
		},
		DataCorruption: func(info crdb.DataCorruptionInfo) {
			f.log.Error("a file of the store is damaged", slog.String("file", info.Path), slog.Any("cause", info.Details))
		},
		DiskSlow: func(info crdb.DiskSlowInfo) {
			f.log.Warn("the disk is slow", slog.String("operation", info.String()))
		},
		WriteStallBegin: func(info crdb.WriteStallBeginInfo) {
			f.log.Warn("commits wait for the disk", slog.String("reason", info.Reason))
		},
		WriteStallEnd: func() { f.log.Info("commits go on") },
	}
}
