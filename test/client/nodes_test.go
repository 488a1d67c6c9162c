package client

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

func TestNodesThatAreKilled(t *testing.T) {
	nodetest.Binary(t)
	postgrestest.Shared(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())

	t.Run("one node that comes back", func(t *testing.T) {
		n := nodetest.Serve(t, "--data", t.TempDir())
		l := startLoad(t, "ws://"+n.Address)
		for range 3 {
			l.awaitMore()
			n.Kill()
			n.Again()
		}
		l.awaitMore()
		l.stopAndCheck()
	})
	t.Run("three nodes on one PostgreSQL", func(t *testing.T) {
		var nodes []*nodetest.Node
		var addresses []string
		for range 3 {
			n := nodetest.Serve(t, "--postgres", postgrestest.Shared(t).URL())
			nodes, addresses = append(nodes, n), append(addresses, n.Address)
		}
		l := startLoad(t, "ws://"+strings.Join(addresses, ","))
		nodes[0].Kill()
		l.awaitMore()
		nodes[1].Kill()
		l.awaitMore()
		nodes[0].Again()
		nodes[2].Kill()
		l.awaitMore()
		l.stopAndCheck()
	})
}

// patience is how long those that read or append may take to go on.
const patience = 30 * time.Second

// load is a program that appends, consumes, works and follows at once.
type load struct {
	*testing.T
	db       *tidemark.Database
	progress atomic.Int64
	ending   context.Context
	end      context.CancelFunc
	parts    sync.WaitGroup

	// named and unnamed append until the end.
	named, unnamed appender

	// stop ends those that read, which go on until they have seen everything.
	reading  context.Context
	stop     context.CancelFunc
	readers  sync.WaitGroup
	followed []uint64
	worked   sync.Map // how often each position was worked on
}

func startLoad(t *testing.T, url string) *load {
	store := connect(t, url)
	db, err := store.Database(t.Context(), "load", "load")
	check(t, err)
	_, err = db.Exec(t.Context(), "DEFINE TOPIC events; DEFINE TOPIC copies; DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 1s IN FLIGHT 50", nil)
	check(t, err)
	l := &load{T: t, db: db}
	l.ending, l.end = context.WithCancel(t.Context())
	l.reading, l.stop = context.WithCancel(t.Context())
	t.Cleanup(l.end)
	t.Cleanup(l.stop)
	l.parts.Go(func() { l.append(&l.named, "named", tidemark.WithKey) })
	l.parts.Go(func() {
		l.append(&l.unnamed, "unnamed", func(any) tidemark.AppendOption { return tidemark.WithKey(nil) })
	})
	l.readers.Go(l.copy)
	l.readers.Go(l.work)
	l.readers.Go(l.follow)
	l.awaitMore()
	return l
}

// appender appends numbered messages, many at once, and keeps what it was told.
type appender struct {
	mu sync.Mutex
	// positions are those of the numbers that were acknowledged; unknown are the
	// numbers whose outcome is. Both are protected by mu.
	positions map[int]uint64
	unknown   map[int]bool
	sent      int
}

type event struct {
	Who string `json:"who"`
	N   int    `json:"n"`
}

func (l *load) append(a *appender, who string, key func(any) tidemark.AppendOption) {
	a.positions, a.unknown = map[int]uint64{}, map[int]bool{}
	const outstanding = 200
	slots := make(chan struct{}, outstanding)
	for l.ending.Err() == nil {
		slots <- struct{}{}
		n := a.sent
		err := l.db.Topic("events").AppendAsync(l.Context(), event{who, n}, func(m tidemark.Message, _ bool, err error) {
			a.mu.Lock()
			if err == nil {
				a.positions[n] = m.Position()
				l.progress.Add(1)
			} else if a.unknown[n] = true; !strings.Contains(err.Error(), "outcome is unknown") {
				l.Errorf("%s append %d: %v", who, n, err)
			}
			a.mu.Unlock()
			<-slots
		}, key(fmt.Sprint(who, n)))
		check(l.T, err)
		a.sent++
	}
	for range outstanding {
		slots <- struct{}{}
	}
}

// copy consumes: the copy of each event and the position commit together.
func (l *load) copy() {
	err := l.db.Topic("events").Consume(l.reading, "copier", func(ctx context.Context, tx *tidemark.Tx, messages []tidemark.Message) error {
		for _, m := range messages {
			if err := tx.Append(ctx, "copies", m.Position()); err != nil {
				return err
			}
		}
		return nil
	}, tidemark.ConsumeOptions{Batch: 500})
	if err != nil {
		l.Errorf("the consumer ended: %v", err)
	}
}

func (l *load) work() {
	err := l.db.Topic("events").Group("g").Work(l.reading, func(_ context.Context, m tidemark.Message) error {
		l.worked.Store(m.Position(), true)
		return nil
	}, tidemark.WorkOptions{})
	if err != nil {
		l.Errorf("the worker ended: %v", err)
	}
}

func (l *load) follow() {
	for page, err := range l.db.Topic("events").Follow(l.reading, tidemark.FollowOptions{}) {
		if err != nil {
			l.Errorf("the follower ended: %v", err)
			return
		}
		for _, m := range page.Messages {
			l.followed = append(l.followed, m.Position())
		}
	}
}

// awaitMore waits until more was acknowledged than now is.
func (l *load) awaitMore() {
	l.Helper()
	const more = 500
	before := l.progress.Load()
	nodetest.Eventually(l, patience, func() bool { return l.progress.Load() >= before+more },
		"%d appends more than %d are acknowledged", more, before)
}

// stopAndCheck ends the load and compares what the store holds with what everyone
// was told.
func (l *load) stopAndCheck() {
	l.Helper()
	l.end()
	l.parts.Wait()
	events := read[event](l, "events")
	l.awaitReaders(len(events))
	l.stop()
	l.readers.Wait()

	next := map[string]int{}
	seen := map[event]uint64{}
	for i, e := range events {
		if seen[e] != 0 {
			l.Fatalf("%v is at %d and at %d", e, seen[e], i+1)
		}
		seen[e] = uint64(i + 1)
		if e.N < next[e.Who] {
			l.Fatalf("%v is at %d, behind %d", e, i+1, next[e.Who])
		}
		next[e.Who] = e.N
	}
	for who, a := range map[string]*appender{"named": &l.named, "unnamed": &l.unnamed} {
		l.Logf("%s: %d sent, %d acknowledged, %d unknown", who, a.sent, len(a.positions), len(a.unknown))
		if len(a.positions)+len(a.unknown) != a.sent {
			l.Fatalf("%s: %d sent, %d told of", who, a.sent, len(a.positions)+len(a.unknown))
		}
		for n, position := range a.positions {
			if seen[event{who, n}] != position {
				l.Fatalf("%s %d was acknowledged at %d and is at %d", who, n, position, seen[event{who, n}])
			}
		}
	}
	if len(l.named.unknown) > 0 {
		l.Errorf("%d appends that name their identity have an unknown outcome", len(l.named.unknown))
	}

	copies := read[uint64](l, "copies")
	for name, positions := range map[string][]uint64{"copied": copies, "followed": l.followed} {
		if len(positions) != len(events) {
			l.Fatalf("%s %d of %d events", name, len(positions), len(events))
		}
		for i, position := range positions {
			if position != uint64(i+1) {
				l.Fatalf("%s position %d after %d others", name, position, i)
			}
		}
	}
	for i := range events {
		if _, ok := l.worked.Load(uint64(i + 1)); !ok {
			l.Fatalf("message %d was not worked on", i+1)
		}
	}
}

// read are all messages of a topic.
func read[T any](l *load, topic string) []T {
	l.Helper()
	var all []T
	for {
		page, err := l.db.Topic(topic).Read(l.Context(), tidemark.ReadOptions{After: uint64(len(all)), Limit: 5000})
		check(l.T, err)
		if len(page.Messages) == 0 {
			return all
		}
		for _, m := range page.Messages {
			var v T
			check(l.T, m.Scan(&v))
			all = append(all, v)
		}
	}
}

// awaitReaders waits until the readers have seen all events.
func (l *load) awaitReaders(count int) {
	l.Helper()
	var info struct {
		Readers map[string]struct {
			Position int `json:"position"`
		} `json:"readers"`
		Groups map[string]struct {
			Committed int `json:"committed"`
		} `json:"groups"`
	}
	nodetest.Eventually(l, patience, func() bool {
		rows, err := l.db.Query(l.Context(), "INFO FOR TOPIC events", nil)
		check(l.T, err)
		check(l.T, rows.Scan(&info))
		return info.Readers["copier"].Position == count && info.Groups["g"].Committed == count
	}, "all have read the %d events: %+v", count, &info)
}

func TestAStoreWithoutANodeSaysWhatItTried(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	_, err := tidemark.Connect(t.Context(), "ws://user:secret@127.0.0.1:1,127.0.0.1:2",
		tidemark.WithPatience(100*time.Millisecond), tidemark.WithLog(slog.New(slog.DiscardHandler)))
	want(t, err, fault.Unavailable)
	for _, part := range []string{"ws://127.0.0.1:1, for", "ws://127.0.0.1:2, for", "connection refused", "which is the patience", "nothing of the request ran"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%q shows the password", err)
	}
	for _, url := range []string{"", "orders", "mysql://host", "ws://a b", "ws://", "ws://127.0.0.1:1,mysql://x"} {
		if _, err := tidemark.Connect(t.Context(), url, tidemark.WithPatience(time.Millisecond)); err == nil {
			t.Errorf("%q connects", url)
		}
	}
}
