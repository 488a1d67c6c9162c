package ingest

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// node is a store in this process, which runs its declared consumers.
type node struct {
	*testing.T
	store      *store.Store
	supervisor *ingest.Supervisor
	session    *session.Session
}

func newNode(t *testing.T) *node {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, store: s, supervisor: startSupervisor(s)}
	n.session = session.New(s, session.Options{Running: n.supervisor})
	t.Cleanup(func() {
		n.session.Close()
		n.supervisor.Stop()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	run(t, n.session, "DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE main; USE DATABASE main; DEFINE TABLE orders (n int)")
	return n
}

func startSupervisor(s *store.Store) *ingest.Supervisor {
	return ingest.Start(s, ingest.Options{Log: slog.New(slog.DiscardHandler)})
}

// declare declares a consumer of a topic of the broker.
func (n *node) declare(b *broker, name, topic, rest string) {
	n.Helper()
	run(n.T, n.session, fmt.Sprintf("DEFINE KAFKA CONSUMER %s FROM '%s' TOPIC '%s' GROUP '%s' FORMAT json INTO orders IDENTITY k MAP n AS n ON FAILURE quarantine %s",
		name, b.Address(), topic, name, rest))
}

// eventually waits until a statement's answer holds each of the texts. A
// broker's group takes some seconds to notice who came and went.
func (n *node) eventually(statement string, wanted ...string) {
	n.Helper()
	var state struct{ got, missing string }
	nodetest.Eventually(n, time.Minute, func() bool {
		state.got, state.missing = text(n.T, run(n.T, n.session, statement)), ""
		for _, want := range wanted {
			if !strings.Contains(state.got, want) {
				state.missing = want
			}
		}
		return state.missing == ""
	}, "%s answers as wanted: %+v", statement, &state)
}

func text(t *testing.T, v value.Value) string {
	t.Helper()
	json, err := v.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(json)
}

func TestARealKafkaBrokerIsReadIntoATable(t *testing.T) {
	if testing.Short() {
		t.Skip("a real broker takes its time")
	}
	b := startBroker(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Address()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	create := func(t *testing.T, topic string, partitions int32) {
		t.Helper()
		if _, err := admin.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	// send sends messages of the identities 0 to 49, numbered on from a number,
	// to the partition of each.
	send := func(t *testing.T, topic string, partitions, from, to int) {
		t.Helper()
		var records []*kgo.Record
		for i := from; i < to; i++ {
			k := i % 50
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(k % partitions), Value: fmt.Appendf(nil, `{"k": %d, "n": %d}`, k, i)})
		}
		if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// newest is the sum over the newest message of each identity.
	newest := func(to int) string {
		sum := 0
		for i := to - 50; i < to; i++ {
			sum += i
		}
		return fmt.Sprintf(`"s":%d}`, sum)
	}

	t.Run("what the console producer writes lands, and what is no JSON is parked", func(t *testing.T) {
		n := newNode(t)
		create(t, "console", 1)
		b.produce("console", `{"k": 1, "n": 9007199254740993}`, `no JSON`, `{"k": "x"}`)
		n.declare(b, "console", "console", "")
		n.eventually("SELECT * FROM orders ORDER BY id", `[{"id":"orders:1","value":{"n":9007199254740993}},{"id":"orders:'x'","value":{}}]`)
		n.eventually("INFO FOR KAFKA CONSUMER console", `"quarantined":1`, `"offset":1`, `"payload":"no JSON"`, `"positions":{"0":3}`)
	})

	t.Run("a topic that is created and a partition that is added later are read", func(t *testing.T) {
		n := newNode(t)
		n.declare(b, "later", "later", "PARALLELISM 2")
		time.Sleep(time.Second) // So that it has looked for the topic in vain.
		create(t, "later", 1)
		send(t, "later", 1, 0, 100)
		n.eventually("SELECT sum(n) AS s FROM orders", newest(100))
		if _, err := admin.UpdatePartitions(t.Context(), 3, "later"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // So that the producer has heard of the partitions, which it asks for each second.
		send(t, "later", 3, 100, 200)
		n.eventually("SELECT sum(n) AS s FROM orders", newest(200))
	})

	t.Run("an offset that is gone is told and counted", func(t *testing.T) {
		n := newNode(t)
		create(t, "short", 1)
		send(t, "short", 1, 0, 10)
		n.declare(b, "short", "short", "")
		n.eventually("INFO FOR KAFKA CONSUMER short", `"positions":{"0":10}`)
		run(t, n.session, "DROP KAFKA CONSUMER short")
		send(t, "short", 1, 10, 30)
		offsets := kadm.Offsets{}
		offsets.AddOffset("short", 0, 25, -1)
		if _, err := admin.DeleteRecords(t.Context(), offsets); err != nil {
			t.Fatal(err)
		}
		n.declare(b, "short", "short", "")
		n.eventually("INFO FOR KAFKA CONSUMER short", `"applied":5`, `"lapsed":{"0":15}`, "offset 10 is out of range")
	})

	t.Run("nodes that come and go mid-batch leave the newest message of each identity", func(t *testing.T) {
		n := newNode(t)
		create(t, "shared", 6)
		n.declare(b, "shared", "shared", "PARALLELISM 2")
		at := 0
		for range 3 {
			second := startSupervisor(n.store)
			for range 20 {
				send(t, "shared", 6, at, at+1000)
				at += 1000
			}
			second.Stop()
		}
		n.eventually("SELECT sum(n) AS s FROM orders", newest(at))
		n.eventually("INFO FOR KAFKA CONSUMER shared", `"quarantined":0`)
	})

	t.Run("a broker that is killed and comes back loses nothing", func(t *testing.T) {
		n := newNode(t)
		create(t, "killed", 2)
		n.declare(b, "killed", "killed", "PARALLELISM 2")
		send(t, "killed", 2, 0, 1000)
		n.eventually("SELECT sum(n) AS s FROM orders", newest(1000))
		send(t, "killed", 2, 1000, 20_000)
		b.Kill()
		n.eventually("INFO FOR KAFKA CONSUMER killed", "refused")
		b.start()
		send(t, "killed", 2, 20_000, 30_000)
		n.eventually("SELECT sum(n) AS s FROM orders", newest(30_000))
	})
}
