package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// knownBy is what each of some nodes knows when it knows all of them.
func knownBy(ids []uuid.UUID) []*nodes {
	var live []Node
	for _, id := range ids {
		live = withNode(live, Node{ID: id})
	}
	known := make([]*nodes, len(ids))
	for i, id := range ids {
		known[i] = &nodes{self: Node{ID: id}, live: slices.Clone(live), changed: make(chan struct{})}
	}
	return known
}

func TestEverySpaceIsKeptByOneNodeAndMovesOnlyWhenThatDies(t *testing.T) {
	const count, spaces = 3, 300
	ids := make([]uuid.UUID, count)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	keeperOf := func(ids []uuid.UUID) map[engine.SpaceID]uuid.UUID {
		keepers := map[engine.SpaceID]uuid.UUID{}
		for _, n := range knownBy(ids) {
			for id := range engine.SpaceID(spaces) {
				if !n.keeps(id) {
					continue
				}
				if other, kept := keepers[id]; kept {
					t.Fatalf("space %d is kept by %s and %s", id, other, n.self.ID)
				}
				keepers[id] = n.self.ID
			}
		}
		return keepers
	}
	before, after := keeperOf(ids), keeperOf(ids[1:])
	if len(before) != spaces || len(after) != spaces {
		t.Fatalf("%d and %d of %d spaces are kept", len(before), len(after), spaces)
	}
	share := map[uuid.UUID]int{}
	for id, keeper := range before {
		share[keeper]++
		if keeper != ids[0] && after[id] != keeper {
			t.Errorf("space %d moved, though its keeper lives", id)
		}
	}
	for id, n := range share {
		if n < spaces/count/2 {
			t.Errorf("node %s keeps %d of %d spaces", id, n, spaces)
		}
	}
}

func TestNodesChangedIsClosedByAnotherSetAndByNoOlderLook(t *testing.T) {
	ids := []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())}
	n := knownBy(ids)[0]
	look := func(second int64, live ...Node) (changed bool) {
		before := n.changed
		n.observe(live, time.Unix(second, 0))
		return isClosed(before)
	}
	both := func() []Node { return []Node{{ID: ids[0]}, {ID: ids[1]}} }
	for i, step := range []struct {
		second int64
		live   []Node
		want   bool
	}{
		{2, both(), false},
		{3, both()[:1], true},
		{2, both(), false},    // An older look.
		{3, both()[1:], true}, // This node counts itself, whatever the roll says.
		{4, []Node{{ID: ids[0]}, {ID: ids[1], Address: "db-2:7420"}}, true},
		{5, []Node{{ID: ids[1], Address: "db-2:7420"}}, false},
	} {
		if got := look(step.second, step.live...); got != step.want {
			t.Errorf("step %d: changed is %v, want %v", i, got, step.want)
		}
	}
	if len(n.live) != 2 || n.live[0].ID != ids[0] {
		t.Errorf("the node knows of %v", n.live)
	}
}
