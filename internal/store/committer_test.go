package store

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/value"
)

// disk is an engine whose commits are on their way for as long as a test wants.
type disk struct {
	engine.Engine

	mu sync.Mutex
	// The following are protected by mu. ready is closed when commits may end, and
	// formed counts those that are on their way or have ended.
	ready  chan struct{}
	formed int
}

// slowDisk is a waitingFixture on a disk.
func slowDisk(t *testing.T) (*Database, *disk) {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{Engine: e, ready: make(chan struct{})}
	d.release()
	db := waitingFixtureOn(t, d)
	t.Cleanup(d.release) // Which is before the store is closed.
	return db, d
}

func (d *disk) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready, d.formed = make(chan struct{}), 0
}

func (d *disk) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.ready:
	default:
		close(d.ready)
	}
}

func (d *disk) commits() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.formed
}

func (d *disk) Space(ctx context.Context, id engine.SpaceID) (engine.Space, error) {
	s, err := d.Engine.Space(ctx, id)
	return slowSpace{s, d}, err
}

type slowSpace struct {
	engine.Space
	disk *disk
}

func (s slowSpace) Commit(ctx context.Context, form func(engine.Commit) error) (engine.Sequence, error) {
	sequence, err := s.Space.Commit(ctx, form)
	s.disk.mu.Lock()
	s.disk.formed++
	ready := s.disk.ready
	s.disk.mu.Unlock()
	<-ready
	return sequence, err
}

// appendAsync appends so many messages, each by itself.
func appendAsync(t *testing.T, db *Database, count int, done *sync.WaitGroup) {
	t.Helper()
	for range count {
		done.Add(1)
		err := db.AppendAsync(t.Context(), "events", func(_ []Message, err error) {
			if err != nil {
				t.Error(err)
			}
			done.Done()
		}, NewMessage{Value: value.Int(1)})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatComesWhileACommitIsOnItsWaySharesTheNext(t *testing.T) {
	db, d := slowDisk(t)
	var done sync.WaitGroup
	d.hold()
	appendAsync(t, db, 1, &done)
	committed := func(n int) func() bool { return func() bool { return d.commits() == n } }
	nodetest.Eventually(t, 10*time.Second, committed(1), "the first commit is on its way")
	for range 5 {
		appendAsync(t, db, 1, &done)
		time.Sleep(time.Millisecond) // In which each could be a commit.
	}
	d.release()
	done.Wait()
	if d.commits() != 2 {
		t.Errorf("six appends, five of them while the first was on its way, take %d commits", d.commits())
	}
}

func TestMuchDoesNotWaitForTheCommitThatIsOnItsWay(t *testing.T) {
	db, d := slowDisk(t)
	var done sync.WaitGroup
	d.hold()
	appendAsync(t, db, 1, &done)
	committed := func(n int) func() bool { return func() bool { return d.commits() == n } }
	nodetest.Eventually(t, 10*time.Second, committed(1), "the first commit is on its way")
	appendAsync(t, db, worthRequests, &done)
	nodetest.Eventually(t, 10*time.Second, committed(2), "what is worth a commit is on its way, too")
	d.release()
	done.Wait()
}
