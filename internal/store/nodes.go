package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// What one process does for all of a store, it does as the node that the others
// take to be alive. On an engine that is shared every node enters itself in the
// engine's roll about once a second, and looks who else did. All times are of
// the store's one clock, so no two machines' clocks are compared. The roll is
// outside all spaces: a heartbeat wakes nobody who waits for a commit, and a
// node that is stopped while it holds up commits does not make others look dead.
//
// Being alive is a hint and not a lock. A node that is paused is taken for dead
// while it believes it is not, so two may do the same for a moment; what they
// commit is decided by the commit, as ever.
const (
	// heartbeat is the time between two entries of a node.
	heartbeat = time.Second

	// deadAfter is how old a node's newest entry is when the others take it for
	// dead. It leaves room for two that come late. With the heartbeat in which
	// others notice, a node's work moves within four seconds of its death.
	deadAfter = 3 * time.Second

	// forgetAfter is how old the entry of a dead node is when it is removed.
	forgetAfter = time.Minute

	// greeting is how long opening a store waits to be seen by the others, and
	// closing it to be forgotten. Neither is needed: the next heartbeat makes up
	// for the one, and the entry's age for the other.
	greeting = 2 * time.Second
)

// Node is one process that has the store open.
type Node struct {
	// ID is a UUIDv7: the lowest is of the node that was started first.
	ID uuid.UUID
	// Name says for people which process it is: its host and process id, unless
	// Options name it.
	Name string
	// Address is where the node's server is reached, as a client would dial it;
	// "" where it serves nobody.
	Address string
	// Started is when the node opened the store, and Seen when it last said that
	// it was there, on the store's clock.
	Started, Seen time.Time
}

// nodes is what a store knows of the processes that have it open.
type nodes struct {
	engine engine.Engine
	log    *slog.Logger
	// roll is nil where this process alone has the store.
	roll engine.Roll
	// beatNow holds a token when the entry is to be written without delay.
	beatNow chan struct{}

	mu sync.Mutex
	// The following are protected by mu.
	self Node
	// live are the nodes as they were looked at last, by ID, this one among them,
	// and lookedAt is when that was.
	live     []Node
	lookedAt time.Time
	// changed is closed when live changes.
	changed chan struct{}
}

func openNodes(ctx context.Context, s *Store, name string) (*nodes, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make the node's id: %w", err)
	}
	if name == "" {
		name = processName()
	}
	n := &nodes{engine: s.engine, log: s.log, beatNow: make(chan struct{}, 1), changed: make(chan struct{})}
	n.self = Node{ID: id, Name: name}
	if n.self.Started, err = s.engine.Now(ctx); err != nil {
		return nil, err
	}
	n.live = []Node{n.self}
	roll, shared := s.engine.(engine.Roll)
	if !shared || !s.engine.Shared() {
		return n, nil
	}
	n.roll = roll
	if err := n.beatWithin(ctx, greeting); err != nil {
		s.log.Debug("the other nodes do not know of this one yet", slog.Any("error", err))
	}
	return n, nil
}

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// Node is this process.
func (s *Store) Node() Node { return s.nodes.node() }

func (n *nodes) node() Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.self
}

// Nodes returns the processes that have the store open, by ID, this one among
// them; every node gives the same answer. A node that died is among them for
// three seconds. Of an engine that is not shared, this process is the only one.
func (s *Store) Nodes(ctx context.Context) ([]Node, error) {
	n := s.nodes
	if n.roll == nil {
		self := n.node()
		var err error
		self.Seen, err = s.engine.Now(ctx)
		return []Node{self}, err
	}
	return n.look(ctx)
}

// NodesChanged returns a channel that is closed when the set of live nodes, or
// the address of one, is no longer what Nodes answered last or this process has
// seen since: within four seconds of a node's death, and one of its coming.
func (s *Store) NodesChanged() <-chan struct{} {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	return s.nodes.changed
}

// SetAddress says where this process's server is reached, which the other nodes
// learn within a second.
func (s *Store) SetAddress(address string) {
	n := s.nodes
	n.mu.Lock()
	n.self.Address = address
	n.noteLocked(withNode(slices.Clone(n.live), n.self))
	n.mu.Unlock()
	select {
	case n.beatNow <- struct{}{}:
	default:
	}
}

// keeps reports whether what runs by time in a space is this node's to do. Of
// the live nodes each space picks one by rendezvous hashing, so that they share
// the work, and the death of one moves its spaces only.
func (n *nodes) keeps(id engine.SpaceID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	var best [sha256.Size]byte
	var keeper uuid.UUID
	for _, node := range n.live {
		score := sha256.Sum256(binary.BigEndian.AppendUint32(node.ID[:], uint32(id)))
		if bytes.Compare(score[:], best[:]) > 0 {
			best, keeper = score, node.ID
		}
	}
	return keeper == n.self.ID
}

// run enters this node again and again until ctx ends.
func (n *nodes) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-n.beatNow:
		}
		err := n.beatWithin(ctx, deadAfter)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			n.log.Warn("the other nodes cannot be told that this one is alive; it goes on trying", slog.Any("error", err))
		}
		failing = err != nil
	}
}

func (n *nodes) beatWithin(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return n.beat(ctx)
}

// beat enters this node in the roll, and looks who else is in it.
func (n *nodes) beat(ctx context.Context) error {
	self := n.node()
	seen, err := n.roll.Enter(ctx, engine.Process(self))
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.self.Seen = seen
	n.mu.Unlock()
	_, err = n.look(ctx)
	return err
}

// look reads the roll, and returns who is alive.
func (n *nodes) look(ctx context.Context) ([]Node, error) {
	entries, now, err := n.roll.Entries(ctx)
	if err != nil {
		return nil, err
	}
	var live []Node
	var forgotten []uuid.UUID
	for _, entry := range entries {
		switch age := now.Sub(entry.Seen); {
		case age > forgetAfter:
			forgotten = append(forgotten, entry.ID)
		case age <= deadAfter:
			live = append(live, Node(entry))
		}
	}
	if len(forgotten) > 0 {
		if err := n.roll.Strike(ctx, forgotten...); err != nil {
			return nil, err
		}
	}
	return n.observe(live, now), nil
}

// leave takes this node off the roll, so that the others need not wait to see
// that it is gone.
func (n *nodes) leave() {
	if n.roll == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), greeting)
	defer cancel()
	if err := n.roll.Strike(ctx, n.self.ID); err != nil {
		n.log.Debug("the other nodes will see later that this one is gone", slog.Any("error", err))
	}
}

// observe takes note of who was alive at a time, unless it was looked later
// than that, and returns who is.
func (n *nodes) observe(live []Node, at time.Time) []Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !at.Before(n.lookedAt) {
		n.lookedAt = at
		n.noteLocked(withNode(live, n.self))
	}
	return slices.Clone(n.live)
}

// noteLocked is called with mu held.
func (n *nodes) noteLocked(live []Node) {
	same := slices.EqualFunc(n.live, live, func(a, b Node) bool { return a.ID == b.ID && a.Address == b.Address })
	n.live = live
	if !same {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// withNode is nodes, by ID, with one that replaces what there is of it.
func withNode(nodes []Node, node Node) []Node {
	i, found := slices.BinarySearchFunc(nodes, node.ID, func(n Node, id uuid.UUID) int { return bytes.Compare(n.ID[:], id[:]) })
	if found {
		nodes[i] = node
		return nodes
	}
	return slices.Insert(nodes, i, node)
}
