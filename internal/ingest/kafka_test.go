package ingest_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/value"
)

// broker is a Kafka cluster in memory, with a producer.
type broker struct {
	*testing.T
	*kfake.Cluster
	producer *kgo.Client
}

func newBroker(t *testing.T, options ...kfake.Opt) *broker {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, "orders")}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	return &broker{t, cluster, producer}
}

// produce sends payloads to a partition, in order; a nil one is a tombstone.
func (b *broker) produce(topic string, partition int32, payloads ...[]byte) {
	b.Helper()
	var records []*kgo.Record
	for _, payload := range payloads {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: payload})
	}
	if err := b.producer.ProduceSync(b.Context(), records...).FirstErr(); err != nil {
		b.Fatal(err)
	}
}

func (b *broker) produceText(topic string, payloads ...string) {
	b.Helper()
	var list [][]byte
	for _, payload := range payloads {
		list = append(list, []byte(payload))
	}
	b.produce(topic, 0, list...)
}

// declare is a declaration that reads the broker.
func (b *broker) declare(clauses string) string {
	var addresses []string
	for _, address := range b.ListenAddrs() {
		addresses = append(addresses, "'"+address+"'")
	}
	return fmt.Sprintf("DEFINE KAFKA CONSUMER orders_in FROM %s %s", strings.Join(addresses, ", "), clauses)
}

const kafkaOrders = `TOPIC 'orders' GROUP 'shop-orders' FORMAT json INTO orders IDENTITY order_id
	MAP amount AS total, placed.at AS placed_at ON FAILURE `

// offset waits until the group has committed an offset.
func (b *broker) offset(group, topic string, partition int32, want int64) {
	b.Helper()
	ctx, done := context.WithTimeout(b.Context(), promised)
	defer done()
	info, err := b.WaitGroupInfo(ctx, group, func(g *kfake.GroupInfo) bool {
		return g != nil && g.Commits[topic][partition].Offset == want
	})
	if err != nil {
		b.Fatalf("partition %d: offset %d was not committed: %v, %+v", partition, want, err, info)
	}
}

func kafkaNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.run("DEFINE TABLE orders (total int, placed_at datetime | null)")
	return n
}

func TestAKafkaTopicIsReadFromItsOldestMessageIntoATable(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	b.produceText("orders", `{"order_id": 1, "amount": 40, "placed": {"at": "2026-01-31T10:00:00Z"}, "more": [1]}`)
	n.run(b.declare(kafkaOrders + "stop"))
	n.eventually("SELECT * FROM orders", `[{"id":"orders:1","value":{"placed_at":"2026-01-31T10:00:00Z","total":40}}]`)
	b.produceText("orders", `{"order_id": 1, "amount": 41}`, `{"order_id": "x", "placed": {"at": null}}`)
	n.eventually("SELECT * FROM orders ORDER BY id", `[{"id":"orders:1","value":{"total":41}},{"id":"orders:'x'","value":{"placed_at":null}}]`)
	b.offset("shop-orders", "orders", 0, 3)
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"applied":3`, `"positions":{"0":3}`, `"quarantine":[]`)
}

func TestNumbersOfJSONAreExactAndOnlyWholeNumbersAreIdentities(t *testing.T) {
	b, n := newBroker(t), newNode(t)
	n.run("DEFINE TABLE orders (total any)")
	n.run(b.declare("TOPIC 'orders' GROUP 'g' FORMAT json INTO orders IDENTITY id MAP v AS total ON FAILURE quarantine"))
	b.produceText("orders",
		`{"id": 9007199254740993, "v": 9223372036854775807, "ignored": 123456789012345678901234567890, "far": [1e999]}`,
		`{"id": 1.0}`, `{"id": 1.5}`, `{"id": 1e3}`, `{"id": ""}`, `{}`, `7`,
		`{"id": 2, "v": 9223372036854775808}`, `{"id": 92233720368547758070}`, `{"id": 3, "v": {"deep": [-1e400]}}`,
		`{"id": 4, "v": 1.0}`)
	n.eventually("SELECT * FROM orders ORDER BY id",
		`[{"id":"orders:4","value":{"total":1.0}},{"id":"orders:9007199254740993","value":{"total":9223372036854775807}}]`)
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"applied":2`, `"quarantined":9`, "92233720368547758070", "-1e400")
}

func TestWhatIsNoJSONIsParkedWithItsPlaceItsReasonAndItsPayload(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	b.produce("orders", 0,
		[]byte(`{"order_id": 1, "amount": 1}`), nil, []byte(``), []byte("{\"order_id\": \"\xff\"}"), []byte(`{"order_id": 1, "order_id": 2}`),
		[]byte(strings.Repeat("[", 70)), []byte(`{"order_id": 2, "amount": "many"}`), []byte(`{"order_id": 3, "placed": {"at": "2026-01-31T10:00:00"}}`),
		[]byte(`{"order_id": "x`+strings.Repeat("ä", 40_000)+`"}`), []byte(`{"order_id": 9, "amount": 9}`))
	n.run(b.declare(kafkaOrders + "quarantine"))
	b.offset("shop-orders", "orders", 0, 10)
	n.eventually("SELECT * FROM orders", `[{"id":"orders:1","value":{"total":1}},{"id":"orders:9","value":{"total":9}}]`)
	info := n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"quarantined":8`, `"applied":2`,
		`"offset":1,"partition":0,"payload":null,"reason":"TypeMismatch: the message has no value (it is a tombstone)`,
		`"offset":3,"partition":0,"payload":"eyJvcmRlcl9pZCI6ICL/In0="`,
		`"payload":"{\"order_id\": 1, \"order_id\": 2}"`, "there twice",
		`"withheld":false`, "cut to 65535")
	if len(info) > 200_000 {
		t.Errorf("the report has %d bytes", len(info))
	}
	n.run("DROP KAFKA CONSUMER orders_in")
	n.run(b.declare(kafkaOrders + "quarantine"))
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"quarantine":[]`)
}

func TestTheNewestThousandParkedMessagesAreKept(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	var payloads []string
	for i := range 1100 {
		payloads = append(payloads, fmt.Sprintf("bad %d", i))
	}
	b.produceText("orders", payloads...)
	n.run(b.declare(kafkaOrders + "quarantine"))
	b.offset("shop-orders", "orders", 0, 1100)
	info := n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"quarantined":1100`, `"payload":"bad 1099"`, `"payload":"bad 100"`)
	if strings.Contains(info, `"payload":"bad 99"`) || strings.Count(info, `"payload"`) != 1000 {
		t.Errorf("%d messages are kept", strings.Count(info, `"payload"`))
	}
}

func TestAKafkaConsumerHaltsAtTheMessageAndGoesOnWhenItIsResumed(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	b.produceText("orders", `{"order_id": 1, "amount": 1}`, `{"order_id": 2, "amount": "bad"}`, `{"order_id": 3, "amount": 3}`)
	n.run(b.declare(kafkaOrders + "stop"))
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"halted":true`, "offset 1 of partition 0 of Kafka topic orders")
	n.always("SELECT count() FROM orders", `[{"value":{"count":1}}]`)
	b.offset("shop-orders", "orders", 0, 1)
	n.run("DEFINE TABLE OVERWRITE orders (total any, placed_at any); ALTER KAFKA CONSUMER orders_in RESUME")
	n.eventually("SELECT count() FROM orders", `[{"value":{"count":3}}]`)
}

func TestADroppedKafkaConsumerResumesFromTheCommittedOffset(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	n.run(b.declare(kafkaOrders + "stop"))
	b.produceText("orders", `{"order_id": 1, "amount": 1}`)
	b.offset("shop-orders", "orders", 0, 1)
	n.run("DROP KAFKA CONSUMER orders_in; DELETE orders:1")
	b.produceText("orders", `{"order_id": 2, "amount": 2}`)
	n.always("SELECT * FROM orders", "[]")
	n.run(b.declare(kafkaOrders + "stop"))
	n.eventually("SELECT * FROM orders", `[{"id":"orders:2","value":{"total":2}}]`)
}

func TestADuplicateLandsOnTheSameRecordAndNothingIsLostWhenOffsetsCannotBeCommitted(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	refused := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	n.run(b.declare(kafkaOrders + "stop"))
	b.produceText("orders", `{"order_id": 1, "amount": 1}`, `{"order_id": 1, "amount": 2}`)
	n.eventually("SELECT * FROM orders", `[{"id":"orders:1","value":{"total":2}}]`)
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", "committing offsets", "GROUP_AUTHORIZATION_FAILED")
	// The data is written and the offset is not: this is the crash's window.
	n.run("DROP KAFKA CONSUMER orders_in; DELETE orders:1")
	n.run(b.declare(kafkaOrders + "stop"))
	n.eventually("SELECT * FROM orders", `[{"id":"orders:1","value":{"total":2}}]`)
	refused.Remove()
	// What could not be committed is, although nothing more is produced.
	ctx, done := context.WithTimeout(t.Context(), 3*promised)
	defer done()
	if _, err := b.WaitGroupInfo(ctx, "shop-orders", func(g *kfake.GroupInfo) bool {
		return g != nil && g.Commits["orders"][0].Offset == 2
	}); err != nil {
		t.Fatal(err)
	}
}

func TestMembersShareThePartitionsAndEachIsReadOnce(t *testing.T) {
	b, n := newBroker(t, kfake.SeedTopics(6, "wide")), kafkaNode(t)
	for i := range 300 {
		b.produce("wide", int32(i%6), fmt.Appendf(nil, `{"order_id": %d, "amount": %d}`, i, i))
	}
	n.run(b.declare("TOPIC 'wide' GROUP 'w' FORMAT json INTO orders IDENTITY order_id MAP amount AS total ON FAILURE stop PARALLELISM 3"))
	n.eventually("SELECT count() FROM orders", `[{"value":{"count":300}}]`)
	if _, err := b.WaitGroupStable(t.Context(), "w", 3); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		b.produce("wide", int32(i%6), fmt.Appendf(nil, `{"order_id": %d, "amount": %d}`, i, i+1))
	}
	n.eventuallyHas("SELECT sum(total) AS s FROM orders", `"s":45150`)
	for partition := range int32(6) {
		b.offset("w", "wide", partition, 100)
	}
}

// noticedWithin is how long the Kafka client may take to see that what was not
// there is.
const noticedWithin = 20 * time.Second

func TestATopicThatDoesNotExistYetIsReadOnceItDoes(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	n.run(b.declare("TOPIC 'later' GROUP 'g' FORMAT json INTO orders IDENTITY order_id MAP amount AS total ON FAILURE stop"))
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"running":true`)
	time.Sleep(500 * time.Millisecond) // So that it has looked for the topic in vain.
	if err := b.CreateTopic("later", 1, nil); err != nil {
		t.Fatal(err)
	}
	b.produceText("later", `{"order_id": 1, "amount": 1}`)
	nodetest.Eventually(t, noticedWithin, func() bool { return n.run("SELECT * FROM orders") != "[]" }, "the topic is read; log:\n%s", n.log)
}

func TestAnOffsetThatIsGoneIsToldAndCounted(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	n.run(b.declare(kafkaOrders + "stop"))
	b.produceText("orders", `{"order_id": 1, "amount": 1}`)
	b.offset("shop-orders", "orders", 0, 1)
	n.run("DROP KAFKA CONSUMER orders_in")
	if _, err := b.WaitGroupInfo(t.Context(), "shop-orders", func(g *kfake.GroupInfo) bool { return g != nil && len(g.Members) == 0 }); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.produceText("orders", fmt.Sprintf(`{"order_id": %d, "amount": 1}`, i+2))
	}
	if err := b.DeleteRecords("orders", 0, 4); err != nil {
		t.Fatal(err)
	}
	n.run(b.declare(kafkaOrders + "stop"))
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"applied":2`, `"lapsed":{"0":3}`, "offset 1 is out of range")
}

func TestABrokerThatCannotBeReachedIsAnErrorAndNoRefusal(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	n.run("DEFINE KAFKA CONSUMER broken FROM '127.0.0.1:1' " + kafkaOrders + "stop")
	n.run(b.declare(kafkaOrders + "stop"))
	b.produceText("orders", `{"order_id": 1, "amount": 1}`)
	n.eventually("SELECT count() FROM orders", `[{"value":{"count":1}}]`)
	n.eventuallyHas("INFO FOR KAFKA CONSUMER broken", "127.0.0.1:1", "refused", `"halted":false`)
	n.eventually("INFO FOR KAFKA CONSUMERS", `[{"consumer":"broken","running":true},{"consumer":"orders_in","running":true}]`)
}

func TestABrokerThatComesBackIsReadOn(t *testing.T) {
	dir := t.TempDir()
	b := newBroker(t, kfake.DataDir(dir))
	n := kafkaNode(t)
	n.run(b.declare(kafkaOrders + "stop"))
	b.produceText("orders", `{"order_id": 1, "amount": 1}`)
	b.offset("shop-orders", "orders", 0, 1)
	var port int
	if _, err := fmt.Sscanf(b.ListenAddrs()[0], "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	b.Close()
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", "refused")
	again := newBroker(t, kfake.DataDir(dir), kfake.Ports(port))
	again.produceText("orders", `{"order_id": 2, "amount": 2}`)
	nodetest.Eventually(t, noticedWithin, func() bool { return n.run("SELECT * FROM orders:2") != "[]" }, "the broker that came back is read; log:\n%s", n.log)
}

func TestAMemberThatLostItsPartitionWritesNothingOfIt(t *testing.T) {
	b := newBroker(t)
	n := kafkaNode(t)
	n.run(b.declare(kafkaOrders + "stop"))
	b.produceText("orders", `{"order_id": 1, "amount": 1}`)
	b.offset("shop-orders", "orders", 0, 1)
	// Another member's name stands at the partition, as after a rebalance that
	// this one does not know of.
	database, err := n.store.Database(t.Context(), "shop", "main")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := database.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	consumer := tx.Catalog().Consumers("kafka")[0]
	if err := tx.Own(t.Context(), consumer.ID, 0, [16]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.produceText("orders", `{"order_id": 2, "amount": 2}`)
	n.always("SELECT * FROM orders:2", "[]")
	b.offset("shop-orders", "orders", 0, 1)
}

func TestTheSecretsOfAConsumerAreTheNodesAndAreNotShown(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	certificate := server.TLS.Certificates[0]
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	server.Close()
	t.Setenv("TIDEMARK_SECRET_ORDERS", "swordfish")
	t.Setenv("TIDEMARK_SECRET_AUTHORITY", string(authority))

	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "shop", "swordfish"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	b := &broker{T: t, Cluster: cluster}
	n := kafkaNode(t)
	with := "WITH (tls = true, tls.authorities_from = 'AUTHORITY', tls.server = 'example.com', " +
		"sasl.mechanism = 'SCRAM-SHA-256', sasl.user = 'shop', sasl.password_from = 'ORDERS') "
	n.run(b.declare(with + kafkaOrders + "stop"))
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", `"positions":{}`, `"sasl.password_from":"ORDERS"`)
	if _, err := cluster.WaitGroupStable(t.Context(), "shop-orders", 1); err != nil {
		t.Fatal(err)
	}
	info := n.run("INFO FOR KAFKA CONSUMER orders_in")
	if strings.Contains(info, "swordfish") || strings.Contains(n.log.String(), "swordfish") {
		t.Error("the password is shown")
	}
	n.run("DROP KAFKA CONSUMER orders_in")
	t.Setenv("TIDEMARK_SECRET_ORDERS", "wrong")
	n.run(b.declare(with + kafkaOrders + "stop"))
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", "no broker of")
	n.run("DROP KAFKA CONSUMER orders_in")
	n.run(b.declare(strings.Replace(with, "'ORDERS'", "'MISSING'", 1) + kafkaOrders + "stop"))
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", "TIDEMARK_SECRET_MISSING")
}

func TestKafkaDeclarationsAreRefusedWhereTheyAreWritten(t *testing.T) {
	n := kafkaNode(t)
	declare := func(from, with, topic, group, format, into, mapping, rest string) string {
		return fmt.Sprintf("DEFINE KAFKA CONSUMER c FROM %s %s TOPIC '%s' GROUP '%s' FORMAT %s INTO %s IDENTITY order_id MAP %s ON FAILURE %s",
			from, with, topic, group, format, into, mapping, rest)
	}
	for _, test := range []struct {
		statement string
		kind      fault.Kind
		says      string
	}{
		{declare("'b:1'", "", "t", "g", "avro", "orders", "a AS total", "stop"), fault.InvalidClause, "avro"},
		{declare("'b:1'", "", "t", "g", "json", "nothing", "a AS total", "stop"), fault.NotFound, "nothing"},
		{declare("'b:1'", "", "t", "g", "json", "other.orders", "a AS total", "stop"), fault.InvalidClause, "other"},
		{declare("'b:1'", "", "t", "g", "json", "orders", "a AS total, b AS total", "stop"), fault.InvalidClause, "total"},
		{declare("'b:1'", "", "t", "g", "json", "orders", "a AS other", "stop"), fault.UnknownField, "other"},
		{declare("'b:1'", "", "t", "g", "json", "orders", "a AS total", "stop PARALLELISM 0"), fault.InvalidClause, "PARALLELISM"},
		{declare("''", "", "t", "g", "json", "orders", "a AS total", "stop"), fault.InvalidClause, "FROM"},
		{declare("'b:1'", "", "", "g", "json", "orders", "a AS total", "stop"), fault.InvalidClause, "TOPIC"},
		{declare("'b:1'", "", "t", "", "json", "orders", "a AS total", "stop"), fault.InvalidClause, "GROUP"},
		{declare("'b:1'", "WITH (other = 'x')", "t", "g", "json", "orders", "a AS total", "stop"), fault.InvalidClause, "other"},
		{declare("'b:1'", "WITH (tls = 'maybe')", "t", "g", "json", "orders", "a AS total", "stop"), fault.InvalidClause, "maybe"},
		{declare("'b:1'", "WITH (tls = 1)", "t", "g", "json", "orders", "a AS total", "stop"), fault.InvalidClause, "tls"},
		{declare("'b:1'", "WITH (sasl.password = 'x')", "t", "g", "json", "orders", "a AS total", "stop"), fault.InvalidClause, "TIDEMARK_SECRET_"},
		{declare("'b:1'", "WITH (sasl.mechanism = 'PLAIN')", "t", "g", "json", "orders", "a AS total", "stop"), fault.InvalidClause, "sasl.user"},
		{declare("'b:1'", "WITH (sasl.mechanism = 'GSSAPI', sasl.user = 'u', sasl.password_from = 'P')", "t", "g", "json", "orders", "a AS total", "stop"), fault.InvalidClause, "GSSAPI"},
	} {
		if message := n.refused(test.statement, test.kind); !strings.Contains(message, test.says) {
			t.Errorf("%s\n%q does not name %s", test.statement, message, test.says)
		}
	}
	n.runWith("DEFINE KAFKA CONSUMER c FROM 'b:1', $second TOPIC $topic GROUP 'g' FORMAT json INTO main.orders IDENTITY a.b MAP x.y AS total, x.y AS placed_at ON FAILURE quarantine",
		map[string]value.Value{"second": value.String("b:2"), "topic": value.String("t")})
	n.eventuallyHas("INFO FOR KAFKA CONSUMER c", `"declared":{"brokers":["b:1","b:2"],"consumer":"c","format":"json","group":"g","identity":"a.b","into":"orders","map":{"x.y":["total","placed_at"]},"on_failure":"quarantine","parallelism":1,"topic":"t"}`,
		`"guarantees":{"delivery":"at least once, idempotent by identity","exactly_once":false,"schema_inference":false}`)
}

func TestStoppingDoesNotWaitForABrokerThatIsGone(t *testing.T) {
	b, n := newBroker(t), kafkaNode(t)
	n.run(b.declare(kafkaOrders + "stop PARALLELISM 2"))
	b.produceText("orders", `{"order_id": 1, "amount": 1}`)
	b.offset("shop-orders", "orders", 0, 1)
	b.Close()
	n.eventuallyHas("INFO FOR KAFKA CONSUMER orders_in", "refused")
	started := time.Now()
	n.supervisor.Stop()
	if took := time.Since(started); took > 3*time.Second {
		t.Errorf("stopping took %s", took)
	}
}
