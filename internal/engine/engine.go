// Package engine is the smallest interface that can carry a database: ordered
// keys and bytes, read at one point of a commit order and changed by one
// commit at a time. It knows nothing of topics, records or text.
//
// Three ideas:
//
//   - A store is a number of spaces, one a database (and space 0 for what is
//     above databases). Each has its own keys and its own commit order, a
//     Sequence that grows by one a commit.
//   - A commit is a function, the form, that an engine runs alone among all
//     commits of its space, on every node, with reads of the latest state. What
//     must be decided at commit (positions, conflicts) is decided there.
//   - Nobody sees what a crash could take back: a snapshot holds durable
//     commits only, and Commit returns when what its form wrote, and what it
//     read, is durable.
//
// Nothing here needs one machine or SQL, so that a distributed key-value store
// with transactions could carry it too. Package enginetest holds the contract
// as a test suite that every engine passes unchanged.
package engine

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Sequence numbers the commits of a space: 1, 2, 3. Sequence 0 is the empty
// space before its first commit, and "was not there" as a version.
type Sequence uint64

// SpaceID names a space for good: an id is never used again after DropSpace.
type SpaceID uint32

// Root is the space of what is above databases.
const Root SpaceID = 0

// ErrNotWriter is in the chain of an error of a commit that was refused
// because this process may not write (a standby, a node whose ownership
// moved). Nothing was committed.
var ErrNotWriter = errors.New("this process may not write")

// ErrClosed is in the chain of every error after Close.
var ErrClosed = errors.New("the engine is closed")

// Engine is an open store. Errors that come from the outside (disk, network)
// are of kind fault.Unavailable. It is safe for concurrent use.
type Engine interface {
	// Name says what carries the store, for people: "memory", "pebble",
	// "postgres".
	Name() string

	// Space opens a space, which is empty when nothing was committed to it.
	// Opening one twice returns the same space.
	Space(ctx context.Context, id SpaceID) (Space, error)

	// DropSpace removes all of a space, for good, and does nothing where it was
	// dropped already. Afterwards commits to the space and new snapshots of it
	// fail with fault.NotFound, also when the store is opened again; snapshots
	// that are open stay readable until released.
	DropSpace(ctx context.Context, id SpaceID) error

	// Cut returns the state of all spaces at one moment: where it has a commit,
	// it has every commit, of whatever space, that was durable before that one
	// was formed. So it is a state the store as a whole was in, which snapshots
	// of each space, taken one after another, are not. The caller must Release
	// it; it holds what a Snapshot holds, for all spaces.
	Cut(ctx context.Context) (Cut, error)

	// Now reads the store's one clock. It never goes back, on any node and
	// over restarts: see Clock.
	Now(ctx context.Context) (time.Time, error)

	// Shared reports whether other processes may commit to the same store.
	Shared() bool

	// Close waits for commits that are running, releases everything and makes
	// every later call fail with ErrClosed. Snapshots must be released first.
	Close() error
}

// Space is one ordered key space and its commit order.
type Space interface {
	// Snapshot returns the state after the newest durable commit. The caller
	// must Release it, soon: it holds resources of the engine.
	Snapshot(ctx context.Context) (Snapshot, error)

	// Commit runs form alone among all commits of the space and makes what it
	// wrote durable, whole or not at all, before it returns.
	//
	// Inside form, the Commit reads the latest state, which may include commits
	// that are not durable yet; it does not read what form itself writes. When
	// form returns an error nothing is written and Commit returns that error.
	// When form writes nothing, no sequence is used, but Commit still returns
	// only when everything form could read is durable, with the sequence of the
	// state that it read. form may run more than once (an engine that lost a
	// connection starts over): what it keeps outside the Commit it must reset at
	// its start.
	//
	// Commits wait for their turn in the order of the calls, and several may
	// be on their way to the disk at once. A context that ends while a commit
	// waits for its turn takes it back, with fault.Cancelled or fault.Timeout;
	// one that ends later does not. A commit whose outcome is unknown is
	// resolved by the engine, not reported. After fault.Unavailable from a
	// failed write or sync, the engine refuses every later commit until it is
	// reopened, and the message says so.
	Commit(ctx context.Context, form func(Commit) error) (Sequence, error)

	// Changed returns a channel that is closed once the space has a durable
	// commit after the given sequence, of this or of another process, or is
	// dropped, or the engine is closed. It costs the commits nothing that grows
	// with the number of those who wait.
	Changed(after Sequence) <-chan struct{}
}

// Entry is a key's value and the commit that wrote it. The zero Entry is that
// of a key which is not there.
type Entry struct {
	Value    []byte
	Sequence Sequence
}

// Roll is what an engine that is Shared is besides: the list of the processes
// that have the store open, as they enter themselves again and again. An entry
// is no part of any space's state. It is written by itself, holds up no commit
// and waits for none, so that a process that is stopped in the middle of one
// does not make the others look dead.
type Roll interface {
	// Enter writes this process's entry anew, with the time on the store's clock
	// as Seen, which it returns.
	Enter(ctx context.Context, p Process) (time.Time, error)

	// Entries returns all entries, by ID, and the time on the store's clock.
	Entries(ctx context.Context) ([]Process, time.Time, error)

	// Strike removes entries; one that is not there is none the less gone.
	Strike(ctx context.Context, ids ...uuid.UUID) error
}

// Process is an entry of the Roll.
type Process struct {
	ID uuid.UUID
	// Name and Address are for people and programs to know it and reach it by.
	Name, Address string
	// Started is when it opened the store, Seen when it was entered last.
	Started, Seen time.Time
}

// Reader reads one state of a space. Keys are compared as bytes.
type Reader interface {
	// Sequence is the commit that the state is of.
	Sequence() Sequence

	// Get returns the entry of a key. The caller owns the value.
	Get(ctx context.Context, key []byte) (Entry, error)

	// GetMany returns the entries of the keys, in their order.
	GetMany(ctx context.Context, keys [][]byte) ([]Entry, error)

	// Scan iterates over the keys of a range, in order, or from the end when
	// reverse is set. limit is a hint of how many will be read, 0 for unknown.
	Scan(ctx context.Context, r Range, reverse bool, limit int) Iterator
}

// Range is the keys from From to before To. A nil To has no end.
type Range struct{ From, To []byte }

// Iterator walks a range. It is used by one goroutine and must be closed.
type Iterator interface {
	// Next moves to the next entry and reports whether there is one.
	Next() bool
	// Key and Value are valid until the next call of Next or Close.
	Key() []byte
	Value() []byte
	Sequence() Sequence
	// Close releases the iterator and returns the first error it met.
	Close() error
}

// Snapshot is a Reader of one durable state. It is safe for concurrent use.
type Snapshot interface {
	Reader
	Release()
}

// Cut is the durable state of all spaces at one moment. It is safe for
// concurrent use.
type Cut interface {
	// Spaces are the spaces that were committed to and not dropped, in the order
	// of their ids.
	Spaces() []SpaceID

	// Space reads one of Spaces, until Release.
	Space(id SpaceID) Reader

	Release()
}

// Commit is a commit being formed: the latest state, and what will change. It
// is valid only inside its form, and used by one goroutine.
type Commit interface {
	Reader

	// Now is the time of this commit on the store's clock, not before that of
	// any earlier commit of the space.
	Now() time.Time

	// Set, Delete and DeleteRange change the space when the form is done, in
	// the order of the calls. They copy what they are given.
	Set(key, value []byte)
	Delete(key []byte)
	DeleteRange(r Range)
}

// PrefixRange is the range of all keys that begin with prefix.
func PrefixRange(prefix []byte) Range {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] != 0xff {
			end[i]++
			return Range{From: prefix, To: end[:i+1]}
		}
	}
	return Range{From: prefix}
}
