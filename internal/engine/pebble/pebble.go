// Package pebble is the engine for one process: a store in a folder of the
// machine's disk, or in memory. It promises what package engine promises, on
// top of github.com/cockroachdb/pebble/v2, and knows nothing of what the keys
// and values mean.
//
// To hold while reading it:
//
//   - All spaces share one Pebble, so that their commits share its syncs. A key
//     begins with its space's id, a value with the sequence that wrote it, and
//     a row a space keeps its newest sequence and its time: see layout.go.
//   - Pebble shows a batch before its log is synced. So a commit has two
//     stages: it is applied, under its space's turn, and commits formed after
//     it read it; and it is durable, some time later and outside the turn, so
//     that several are on their way to the disk at once. Readers are given
//     Pebble snapshots that were taken at a commit and are published once that
//     commit is durable: see space.go.
//   - The first write or sync that fails ends all writing. The folder is fenced,
//     so that nothing of this process changes it again, and every commit that
//     is not durable is refused: see failure.go and fence.go. What was durable
//     can still be read.
//
// What a crash leaves is recovered by Pebble from its write-ahead log, of which
// a record may be torn at the end. Damage is refused, not taken for that: in
// tables by their checksums; in a log where a later block of 32 KiB says that
// it was synced before; and where fewer commits are there than were noted as
// durable when the store was closed, or a minute ago (see folder.go). Only
// damage to the last 32 KiB of the log of a store that crashed within a minute
// of it cannot be told from a torn end; that takes a disk that loses what it
// synced.
package pebble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	crdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Options are the settings of a store. The zero value is right for a node.
type Options struct {
	// Clock is the machine's clock that the store's clock follows. The default
	// is time.Now; tests give one that they move.
	Clock func() time.Time

	// FS is where the folder is. The default is the machine's file system (for
	// OpenMemory: memory); tests give one that fails or forgets.
	FS vfs.FS

	// Logger gets what happens below: compactions and the like at debug level,
	// trouble at warn and error. The default drops all of it.
	Logger *slog.Logger

	// CacheBytes is the size of the cache of uncompressed blocks. The default
	// is 64 MiB: indexes and filters of tens of gigabytes fit, and a node stays
	// well below 512 MiB. Give more where reads go back further than memory.
	CacheBytes int64

	// MemTableBytes is how much is written before it is sorted out of memory
	// into a file. The default is 64 MiB: a file of it holds about 64 of the
	// largest commits, and few files make few merges. Twice as much is in
	// memory while one is being written out; give less on a small machine.
	MemTableBytes int64

	// WrittenBy is what a new folder's FORMAT file says it was made by, for
	// people. The default is "tidemark".
	WrittenBy string
}

// The defaults of Options.
const (
	defaultCacheBytes    = 64 << 20
	defaultMemTableBytes = 64 << 20
	defaultWrittenBy     = "tidemark"
)

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.MemTableBytes <= 0 {
		o.MemTableBytes = defaultMemTableBytes
	}
	if o.WrittenBy == "" {
		o.WrittenBy = defaultWrittenBy
	}
	return o
}

// The names of the engine.
const (
	onDisk   = "pebble"
	inMemory = "memory"
)

// Engine is an open store. It is an engine.Engine.
type Engine struct {
	name    string
	db      *crdb.DB
	folder  *folder
	fence   *fence
	failure *failure
	clock   *engine.Clock
	log     *slog.Logger

	// gate counts the calls that use db, and ends them at Close.
	gate gate
	// iterators counts those that are open.
	iterators gate
	// snapshots counts those that were handed out and not released.
	snapshots atomic.Int64
	// commits counts what was applied since the store was opened; see refresh.
	commits atomic.Uint64
	// durable counts the durable commits of all spaces, ever.
	durable atomic.Uint64
	// noted is what durable was when it was last noted in the folder. It is used
	// by the goroutine that refreshes, and by Close after that.
	noted uint64

	stopRefreshing context.CancelFunc
	refreshing     sync.WaitGroup

	mu sync.Mutex
	// spaces is protected by mu.
	spaces map[engine.SpaceID]*space
}

// Open opens the store in a folder, which it makes if it is not there. It
// fails with fault.Unavailable where the folder is in use (naming by whom), is
// of a newer format, holds something else, or is damaged.
func Open(directory string, options Options) (*Engine, error) {
	options = options.withDefaults()
	if options.FS == vfs.Default {
		// One folder must have one name, as locks are kept by name.
		absolute, err := filepath.Abs(directory)
		if err != nil {
			return nil, fault.New(fault.Unavailable, "the folder %s has no absolute path: %w", directory, err)
		}
		if resolved, err := filepath.EvalSymlinks(absolute); err == nil {
			absolute = resolved
		}
		directory = absolute
	}
	return open(onDisk, directory, options)
}

// OpenMemory opens an empty store in memory, for tests and scripts. Close
// forgets it.
func OpenMemory(options Options) (*Engine, error) {
	if options.FS == nil {
		options.FS = vfs.NewMem()
	}
	return open(inMemory, "memory", options.withDefaults())
}

func open(name, directory string, options Options) (*Engine, error) {
	folder, err := openFolder(options.FS, directory, options.WrittenBy)
	if err != nil {
		return nil, err
	}
	failure := newFailure(directory, options.Logger)
	e := &Engine{
		name:      name,
		folder:    folder,
		failure:   failure,
		fence:     newFence(options.FS, failure),
		log:       options.Logger,
		gate:      newGate(),
		iterators: newGate(),
		spaces:    make(map[engine.SpaceID]*space),
	}
	if err := e.openPebble(directory, options); err != nil {
		e.fence.shut()
		folder.release()
		return nil, err
	}
	newest, commits, err := readTotals(e.db)
	if err != nil {
		err = failure.reading(err)
	} else {
		err = folder.checkDurable(commits)
	}
	if err != nil {
		_ = e.apart(e.db.Close) // The first error is the one to tell.
		e.fence.shut()
		folder.release()
		return nil, err
	}
	e.durable.Store(commits)
	e.noted = commits
	e.clock = engine.NewClock(options.Clock, newest)
	refreshing, stop := context.WithCancel(context.Background())
	e.stopRefreshing = stop
	e.refreshing.Go(func() { e.refresh(refreshing) })
	return e, nil
}

// openPebble opens Pebble.
func (e *Engine) openPebble(directory string, options Options) error {
	err := e.apart(func() (err error) {
		settings := pebbleOptions(options, e.fence, e.failure)
		if e.folder.made && e.name != inMemory {
			// Pebble makes a store in its oldest format and raises that at the end
			// of Open, when it has begun a log without what formatVersion is for:
			// see tuning.go. The log of the next Open has it.
			first, err := crdb.Open(directory, settings)
			if err != nil {
				return err
			}
			if err := first.Close(); err != nil {
				return err
			}
		}
		e.db, err = crdb.Open(directory, settings)
		return err
	})
	if failed := e.failure.err(); failed != nil {
		return failed
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the store in %s cannot be opened: %w", directory, describe(err))
	}
	e.fence.opened.Store(true)
	return nil
}

// apart runs a call into Pebble in a goroutine of its own, because a fatal
// error of Pebble's ends the goroutine that met it: see pebbleLogger.
func (e *Engine) apart(call func() error) error {
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result := errEnded
		defer func() { err = recovered(recover(), result) }()
		result = call()
	}()
	if !e.failure.await(done, grace) {
		return errEnded
	}
	return err
}

// recovered returns what a call into Pebble ended with: what it panicked with,
// or its result.
func recovered(panicked any, result error) error {
	if panicked != nil {
		return fmt.Errorf("a panic: %v", panicked)
	}
	return result
}

// grace is how long something is waited for after a failure. What was done
// just before is about to say so; all else has stopped for good.
const grace = 250 * time.Millisecond

// Name is "pebble", or "memory" for a store that OpenMemory opened.
func (e *Engine) Name() string { return e.name }

// Shared is false: the folder is this process's alone.
func (e *Engine) Shared() bool { return false }

// Now reads the store's clock.
func (e *Engine) Now(context.Context) (time.Time, error) {
	if !e.gate.enter() {
		return time.Time{}, errClosed()
	}
	defer e.gate.leave()
	return e.clock.Now(), nil
}

// Space opens a space.
func (e *Engine) Space(ctx context.Context, id engine.SpaceID) (engine.Space, error) {
	if !e.gate.enter() {
		return nil, errClosed()
	}
	defer e.gate.leave()
	if err := ctx.Err(); err != nil {
		return nil, cancelled(err)
	}
	return e.openSpace(id)
}

func (e *Engine) openSpace(id engine.SpaceID) (*space, error) {
	if id > maxSpaceID {
		return nil, fault.New(fault.InvalidClause, "space %d: the largest id is %d", id, maxSpaceID)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.spaces[id]; ok {
		return s, nil
	}
	row, err := readSpaceRow(e.db, id)
	if err != nil {
		return nil, e.failure.reading(err)
	}
	s := newSpace(e, id, row)
	e.spaces[id] = s
	return s, nil
}

// DropSpace removes all of a space. A row stays for good that says so, which
// is why commits to the space are refused after reopening too; it costs some
// 20 bytes.
func (e *Engine) DropSpace(ctx context.Context, id engine.SpaceID) error {
	if !e.gate.enter() {
		return errClosed()
	}
	defer e.gate.leave()
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	s, err := e.openSpace(id)
	if err != nil {
		return err
	}
	return s.drop(ctx)
}

// Close waits for the calls that are running and closes the store. After a
// failed write, or where iterators stay open for longer than iteratorGrace, it
// leaves Pebble where it is, and its memory with it; the folder is free to be
// opened again all the same.
func (e *Engine) Close() error {
	if !e.gate.close() {
		return errClosed()
	}
	<-e.gate.empty
	e.stopRefreshing()
	iterators := e.awaitIterators()
	var err error
	if e.failure.err() == nil && iterators == 0 {
		err = e.apart(e.closePebble)
	}
	e.fence.shut()
	e.mu.Lock()
	for _, s := range e.spaces {
		s.wake()
	}
	e.mu.Unlock()
	e.folder.release()
	if snapshots := e.snapshots.Load(); snapshots > 0 || iterators > 0 {
		return fault.New(fault.Internal, "the store was closed while %d snapshots were not released and %d iterators not closed",
			snapshots, iterators)
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the store in %s did not close cleanly, but what was acknowledged is durable: %w",
			e.folder.directory, err)
	}
	return nil
}

// iteratorGrace is how long Close waits for iterators. It is bounded, as one
// that was forgotten must not keep a process from ending.
const iteratorGrace = 5 * time.Second

// awaitIterators waits until all iterators are closed, and returns how many
// are not.
func (e *Engine) awaitIterators() int64 {
	e.iterators.close()
	timer := time.NewTimer(iteratorGrace)
	defer timer.Stop()
	select {
	case <-e.iterators.empty:
		return 0
	case <-timer.C:
		return e.iterators.inside()
	}
}

func (e *Engine) closePebble() error {
	e.refreshing.Wait()
	for _, s := range e.spaces {
		s.unpublish()
	}
	return errors.Join(e.noteDurable(), e.db.Close())
}

// noteDurable notes how many commits are durable, if that changed.
func (e *Engine) noteDurable() error {
	durable := e.durable.Load()
	if durable == e.noted {
		return nil
	}
	e.noted = durable
	return e.folder.noteDurable(e.fence, durable)
}

// errEnded stands for an error of Pebble's that ended its goroutine before it
// could be told.
var errEnded = errors.New("a part of the storage engine stopped")

func errClosed() error {
	return fault.New(fault.Unavailable, "the store is closed: %w", engine.ErrClosed)
}

func cancelled(cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "the time for the call has passed: %w", cause)
	}
	return fault.New(fault.Cancelled, "the caller gave up: %w", cause)
}

// refreshInterval bounds how long a space that nobody commits to holds its
// published snapshot.
const refreshInterval = time.Second

// noteInterval is how often an open store notes what is durable. It bounds the
// commits whose loss to a damaged file might go unnoticed after a crash.
const noteInterval = time.Minute

// refresh renews the published snapshots of spaces that nobody commits to.
// Pebble keeps what a snapshot could see, in all spaces: the snapshot of one
// that is idle would keep on disk what retention removes from the others. Now
// and then it notes what is durable.
func (e *Engine) refresh(ctx context.Context) {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for tick := 1; ; tick++ {
		select {
		case <-ctx.Done():
			return
		case <-e.failure.happened:
			return
		case <-ticker.C:
		}
		e.mu.Lock()
		spaces := make([]*space, 0, len(e.spaces))
		for _, s := range e.spaces {
			spaces = append(spaces, s)
		}
		e.mu.Unlock()
		for _, s := range spaces {
			if ctx.Err() != nil {
				return
			}
			s.refresh()
		}
		if tick%int(noteInterval/refreshInterval) == 0 {
			_ = e.noteDurable() // Where it fails the fence has told.
		}
	}
}
