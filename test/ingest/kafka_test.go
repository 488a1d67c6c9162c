package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemarkdb/tidemark/internal/session"
)

const partitions = 4

func TestTheTableIsTheNewestMessageOfEachIdentityWhereverTheNodeIsKilled(t *testing.T) {
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	dir := t.TempDir()
	observe(t, dir, func(s *session.Session) {
		run(t, s, fmt.Sprintf(`
			DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE main; USE DATABASE main;
			DEFINE TOPIC events; DEFINE TABLE orders (n int);
			DEFINE KAFKA CONSUMER c FROM '%s' TOPIC 'orders' GROUP 'g' FORMAT json INTO orders
				IDENTITY k MAP n AS n ON FAILURE quarantine PARALLELISM 2;`, cluster.ListenAddrs()[0]))
	})
	ctx, stop := context.WithCancel(t.Context())
	newest := map[int64]int64{}
	counts := map[int32]int64{}
	var producing sync.WaitGroup
	producing.Go(func() { produceUntil(ctx, t, cluster, newest, counts) })
	for range rounds {
		// The broker gives a dead member's partitions away after six seconds.
		killAfter(t, dir, 6*time.Second+rand.N(2*time.Second))
	}
	stop()
	producing.Wait()

	node := startNode(t, dir)
	for partition, count := range counts {
		waiting, done := context.WithTimeout(t.Context(), 30*time.Second)
		if _, err := cluster.WaitGroupInfo(waiting, "g", func(g *kfake.GroupInfo) bool {
			return g != nil && g.Commits["orders"][partition].Offset == count
		}); err != nil {
			t.Fatalf("partition %d is not read to its end, %d: %v", partition, count, err)
		}
		done()
	}
	node.Kill()
	observe(t, dir, func(s *session.Session) {
		var rows []struct {
			ID    string `json:"id"`
			Value struct {
				N int64 `json:"n"`
			} `json:"value"`
		}
		scan(t, run(t, s, "USE NAMESPACE shop; USE DATABASE main; SELECT * FROM orders"), &rows)
		if len(rows) != len(newest) {
			t.Fatalf("%d identities were produced, and there are %d records", len(newest), len(rows))
		}
		for _, row := range rows {
			var k int64
			if _, err := fmt.Sscanf(row.ID, "orders:%d", &k); err != nil {
				t.Fatal(err)
			}
			if row.Value.N != newest[k] {
				t.Errorf("identity %d holds %d, and its newest message is %d", k, row.Value.N, newest[k])
			}
		}
	})
	t.Logf("%v messages by partition", counts)
}

// produceUntil produces messages of a few identities, each in a partition of
// its own, and keeps which is the newest of each.
func produceUntil(ctx context.Context, t *testing.T, cluster *kfake.Cluster, newest map[int64]int64, counts map[int32]int64) {
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Error(err)
		return
	}
	defer producer.Close()
	for n := int64(1); ctx.Err() == nil; {
		var records []*kgo.Record
		for range 50 {
			k := rand.Int64N(200)
			partition := int32(k % partitions)
			records = append(records, &kgo.Record{Topic: "orders", Partition: partition, Value: fmt.Appendf(nil, `{"k": %d, "n": %d}`, k, n)})
			newest[k] = n
			counts[partition]++
			n++
		}
		if err := producer.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
			t.Error(err)
			return
		}
		time.Sleep(time.Millisecond) // So that the broker, which is in memory, is not filled.
	}
}
