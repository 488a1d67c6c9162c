package server_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/server"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// meddling is an engine in which something happens once, between the next
// commit and what is looked at after it.
type meddling struct {
	engine.Engine
	happens *atomic.Pointer[func()]
}

func (m meddling) Space(ctx context.Context, id engine.SpaceID) (engine.Space, error) {
	space, err := m.Engine.Space(ctx, id)
	return &meddlingSpace{Space: space, happens: m.happens}, err
}

type meddlingSpace struct {
	engine.Space
	happens   *atomic.Pointer[func()]
	committed atomic.Bool
}

func (m *meddlingSpace) Commit(ctx context.Context, form func(engine.Commit) error) (engine.Sequence, error) {
	sequence, err := m.Space.Commit(ctx, form)
	m.committed.Store(m.happens.Load() != nil)
	return sequence, err
}

func (m *meddlingSpace) Snapshot(ctx context.Context) (engine.Snapshot, error) {
	if m.committed.CompareAndSwap(true, false) {
		if happens := m.happens.Swap(nil); happens != nil {
			(*happens)()
		}
	}
	return m.Space.Snapshot(ctx)
}

// A read that waits with AFTER moves its consumer's place there, once: what
// others of the name read from then on it does not read again.
func TestAReadThatWaitedInVainDoesNotMoveItsPlaceASecondTime(t *testing.T) {
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	happens := new(atomic.Pointer[func()])
	s, err := store.Open(t.Context(), meddling{e, happens}, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := serveStore(t, s, server.Options{})
	n.post("/sql/shop/orders", "CREATE events = 'first'")
	other, err := session.NewIn(t.Context(), s, "shop", "orders", session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var told string
	meddle := func() {
		answers, err := other.Run(t.Context(), "INFO FOR TOPIC events; CREATE events = 'second'; READ FROM events FOR CONSUMER 'c'", nil)
		if err != nil {
			t.Error(err)
			return
		}
		told = answers[2].Value.String()
		if info := answers[0].Value.String(); !strings.Contains(info, "c: { lag: 0, position: 1 }") || !strings.Contains(told, "second") {
			t.Errorf("while it waits the place is in %s, and another of the name reads %s", info, told)
		}
	}
	happens.Store(&meddle)
	_, got, _ := n.post("/sql/shop/orders", "READ FROM events FOR CONSUMER 'c' AFTER 1 WAIT 20ms")
	if told == "" || got != `[{"ok":true,"answer":[]}]` {
		t.Errorf("another of the name read %s, and then who waited read %s", told, got)
	}
}
