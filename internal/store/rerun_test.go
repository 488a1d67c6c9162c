package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// sharedEngine lets two stores stand for two processes on one engine.
type sharedEngine struct {
	engine.Engine
	// lose is run once in place of the next commit of a database, whose form
	// is then run again, as after a connection that was lost at COMMIT.
	lose func()
}

func (e *sharedEngine) Shared() bool { return true }

func (e *sharedEngine) Space(ctx context.Context, id engine.SpaceID) (engine.Space, error) {
	space, err := e.Engine.Space(ctx, id)
	return &losingSpace{space, e}, err
}

type losingSpace struct {
	engine.Space
	engine *sharedEngine
}

var errLost = errors.New("the connection was lost")

func (s *losingSpace) Commit(ctx context.Context, form func(engine.Commit) error) (engine.Sequence, error) {
	if lose := s.engine.lose; lose != nil {
		s.engine.lose = nil
		_, err := s.Space.Commit(ctx, func(c engine.Commit) error {
			if err := form(c); err != nil {
				return err
			}
			return errLost
		})
		if !errors.Is(err, errLost) {
			return 0, err
		}
		lose()
	}
	return s.Space.Commit(ctx, form)
}

// twoProcesses are two stores on one engine, in one database with a topic.
func twoProcesses(t *testing.T) (here, there *fixture, e *sharedEngine) {
	t.Helper()
	leaveNothingRunning(t)
	memory, err := pebble.OpenMemory(pebble.Options{Clock: newClock().Now})
	if err != nil {
		t.Fatal(err)
	}
	e = &sharedEngine{Engine: memory}
	open := func(e engine.Engine) *fixture {
		f := &fixture{T: t, ctx: t.Context()}
		f.store, err = store.Open(f.ctx, e, store.Options{HousekeepingEvery: -1})
		f.must(err)
		t.Cleanup(func() { _ = f.store.Close() })
		f.must(f.store.DefineNamespace(f.ctx, "shop", true))
		f.must(f.store.DefineDatabase(f.ctx, "shop", "orders", true))
		f.db, err = f.store.Database(f.ctx, "shop", "orders")
		f.must(err)
		return f
	}
	here, there = open(e), open(&sharedEngine{Engine: memory})
	here.defineTopic(eventsTopic, topic.TopicDefinition{})
	return here, there, e
}

func TestAFormThatIsRunAgainSeesWhatAnotherProcessCommittedMeanwhile(t *testing.T) {
	here, there, e := twoProcesses(t)
	here.append(eventsTopic, "a")
	// Two, so that what the lost form counted is not right by chance.
	e.lose = func() { there.append(eventsTopic, "b", "c") }
	here.append(eventsTopic, "ours")
	here.wantMessages(here.read(eventsTopic, store.ReadOptions{}), "1:a 2:b 3:c 4:ours", 0)
}

func TestAnAppendGoesOnWithWhatAnotherProcessMadeOfTheTopic(t *testing.T) {
	here, there, _ := twoProcesses(t)
	here.append(eventsTopic, "a")
	_, err := there.transact(func(tx *store.Tx) error {
		return tx.AlterTopic(there.ctx, eventsTopic, func(definition *topic.TopicDefinition) error {
			definition.MaxBytes = 100
			return nil
		})
	})
	there.must(err)
	ctx, done := context.WithTimeout(here.ctx, 5*time.Second)
	defer done()
	_, err = here.db.Append(ctx, eventsTopic, message("b"))
	here.must(err)
}
