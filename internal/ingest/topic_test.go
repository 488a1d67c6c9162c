package ingest_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// orders are a topic, its dead letters, a table and a group between them.
const orders = `
	DEFINE TOPIC order_events; DEFINE TOPIC order_events_dead; DEFINE TABLE order_rows (total int);
	DEFINE GROUP 'into-rows' ON TOPIC order_events ACK DEADLINE 30s IN FLIGHT 64 DELIVERIES 3 DEAD LETTER TO order_events_dead`

const ordersConsumer = ` events_in FROM order_events GROUP 'into-rows' INTO order_rows
	IDENTITY order_id MAP amount AS total ON FAILURE `

func ordersNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.run(orders)
	return n
}

func TestAMessageBecomesARecordWithoutAnybodyReadingTheTopic(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine PARALLELISM 2")
	n.run("CREATE order_events:'o-1001' = { order_id: 1001, amount: 40 }")
	n.eventually("SELECT * FROM order_rows", `[{"id":"order_rows:1001","value":{"total":40}}]`)
}

func TestAnAppendIsAppliedWithinMilliseconds(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop")
	n.run("CREATE order_events = { order_id: 0, amount: 0 }")
	n.eventuallyHas("SELECT * FROM order_rows", "order_rows:0")
	fastest := time.Hour
	for i := range 20 {
		n.run(fmt.Sprintf("CREATE order_events = { order_id: %d, amount: 1 }", i+1))
		appended := time.Now()
		for n.run(fmt.Sprintf("SELECT * FROM order_rows:%d", i+1)) == "[]" {
			if time.Since(appended) > promised {
				t.Fatal("the message was not applied")
			}
		}
		fastest = min(fastest, time.Since(appended))
	}
	if fastest > 100*time.Millisecond {
		t.Errorf("the fastest of 20 messages took %s to be applied: somebody polls", fastest)
	}
}

func TestTheBacklogIsTakenFirstInOrder(t *testing.T) {
	n := ordersNode(t)
	for i := range 300 {
		n.run(fmt.Sprintf("CREATE order_events = { order_id: %d, amount: %d }", i%7, i))
	}
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":300`)
	for key := range 7 {
		last := 299 - (299-key)%7
		n.eventuallyHas(fmt.Sprintf("SELECT * FROM order_rows:%d", key), fmt.Sprintf(`{"total":%d}`, last))
	}
}

func TestOneMessageInFlightStillMakesLargeBatches(t *testing.T) {
	n := newNode(t)
	n.run("DEFINE TOPIC events; DEFINE TABLE rows (v int); DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s IN FLIGHT 1")
	var rows []string
	for i := range 2000 {
		rows = append(rows, fmt.Sprintf("{ k: %d, v: %d }", i%10, i))
	}
	n.run("INSERT INTO events [" + strings.Join(rows, ",") + "]")
	n.run("DEFINE TOPIC CONSUMER c FROM events GROUP 'g' INTO rows IDENTITY k MAP v AS v ON FAILURE stop")
	n.eventuallyHas("INFO FOR TOPIC events", `"committed":2000`, `"in_flight":0`)
	n.eventually("SELECT max(v) AS m, min(v) AS l FROM rows", `[{"value":{"l":1990,"m":1999}}]`)
}

func TestTheLaterMessageOfOneIdentityWins(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop PARALLELISM 4")
	n.run("INSERT INTO order_events [{ order_id: 1, amount: 1 }, { order_id: 1, amount: 2 }, { order_id: 1, amount: 3 }]")
	n.eventually("SELECT * FROM order_rows", `[{"id":"order_rows:1","value":{"total":3}}]`)
}

func TestMovingTheGroupBackReplaysIntoTheSameRecords(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop")
	n.run("INSERT INTO order_events [{ order_id: 1, amount: 1 }, { order_id: 2, amount: 2 }, { order_id: 1, amount: 3 }]")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":3`)
	n.run("DELETE order_rows:2")
	n.run("ALTER GROUP 'into-rows' ON TOPIC order_events START AT 0")
	n.eventually("SELECT * FROM order_rows ORDER BY id",
		`[{"id":"order_rows:1","value":{"total":3}},{"id":"order_rows:2","value":{"total":2}}]`)
}

func TestAFieldNobodyNamedDoesNotLandAndAnAbsentOneStaysAbsent(t *testing.T) {
	n := newNode(t)
	n.run("DEFINE TOPIC events; DEFINE TABLE rows (a int, b int | null, c any, d int DEFAULT 7); DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s IN FLIGHT 8")
	n.run("DEFINE TOPIC CONSUMER c FROM events GROUP 'g' INTO rows IDENTITY at.key MAP at.a AS a, b AS b, `dotted.key` AS c, at.a.deeper AS d ON FAILURE stop")
	n.run("INSERT INTO events [{ at: { key: 'x', a: 1, more: 2 }, b: null, `dotted.key`: [1], other: 9 }, { at: { key: 'y' }, dotted: { key: 3 } }]")
	n.eventually("SELECT * FROM rows ORDER BY id",
		`[{"id":"rows:'x'","value":{"a":1,"b":null,"c":[1],"d":7}},{"id":"rows:'y'","value":{"d":7}}]`)
}

func TestStringsBecomeOnlyWhatJSONCannotWrite(t *testing.T) {
	n := newNode(t)
	n.run("DEFINE TOPIC events; DEFINE TOPIC dead; DEFINE TABLE rows (at datetime, u uuid, b bytes, i int, d duration); " +
		"DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s IN FLIGHT 8 DELIVERIES 1 DEAD LETTER TO dead")
	n.run("DEFINE TOPIC CONSUMER c FROM events GROUP 'g' INTO rows IDENTITY k MAP at AS at, u AS u, b AS b, i AS i, d AS d ON FAILURE quarantine")
	n.run(`INSERT INTO events [
		{ k: 1, at: '2026-01-31T11:00:00+01:00', u: '0192f0c1-0000-7000-8000-000000000001', b: 'AQI=' },
		{ k: 2, at: '2026-01-31T10:00:00' }, { k: 3, u: '{0192f0c1-0000-7000-8000-000000000001}' }, { k: 4, b: 'AQI' },
		{ k: 5, i: '1' }, { k: 6, d: '1s' }, { k: 7, at: 1769853600 }, { k: 8, i: 1.0 }]`)
	n.eventually("SELECT * FROM rows", `[{"id":"rows:1","value":{"at":"2026-01-31T10:00:00Z","b":"AQI=","u":"0192f0c1-0000-7000-8000-000000000001"}}]`)
	n.eventuallyHas("SELECT value.k AS k FROM dead", `{"k":2}`, `{"k":3}`, `{"k":4}`, `{"k":5}`, `{"k":6}`, `{"k":7}`, `{"k":8}`)
}

func TestWhatIsNoIdentityIsRefused(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine")
	n.run("INSERT INTO order_events [{ amount: 3 }, { order_id: 1.5 }, { order_id: 1.0 }, { order_id: '' }, { order_id: null }, { order_id: [1] }]")
	n.run("CREATE order_events = 'no object'")
	n.run("CREATE order_events = { order_id: 'x', amount: 1 }")
	n.eventually("SELECT count() FROM order_events_dead", `[{"value":{"count":7}}]`)
	n.eventually("SELECT * FROM order_rows", `[{"id":"order_rows:'x'","value":{"total":1}}]`)
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"applied":1`, `"quarantined":7`, `"halted":false`)
}

func TestStopHaltsAtTheMessageAndLeavesItUnread(t *testing.T) {
	n := ordersNode(t)
	n.run("INSERT INTO order_events [{ order_id: 1, amount: 1 }, { order_id: 2, amount: 2 }, { order_id: 3, amount: 'bad' }, { order_id: 4, amount: 4 }]")
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop PARALLELISM 3")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"halted":true`, `"running":false`, "message 3 of topic order_events", "TypeMismatch")
	want := `[{"value":{"count":2}}]`
	n.always("SELECT count() FROM order_rows", want)
	n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":2`, `"position":2`, `"in_flight":0`, `"redelivered":0`, `"running":false`)

	// The table takes it now, and the consumer is resumed.
	n.run("DEFINE TABLE OVERWRITE order_rows (total any); ALTER TOPIC CONSUMER events_in RESUME")
	n.eventually("SELECT count() FROM order_rows", `[{"value":{"count":4}}]`)
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"halted":false`, `"running":true`, `"applied":4`, "TypeMismatch")
}

func TestAStoppedConsumerGoesOnWhenItIsDeclaredAgain(t *testing.T) {
	n := ordersNode(t)
	n.run("CREATE order_events = { order_id: 1, amount: 'bad' }")
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"halted":true`)
	n.refused("DEFINE TOPIC CONSUMER"+ordersConsumer+"stop", fault.AlreadyExists)
	n.run("DEFINE TABLE OVERWRITE order_rows (total any)")
	n.run("DEFINE TOPIC CONSUMER OVERWRITE" + ordersConsumer + "stop")
	n.eventually("SELECT * FROM order_rows", `[{"id":"order_rows:1","value":{"total":"bad"}}]`)
}

func TestQuarantineDeadLettersPastDeliveriesWhileGoodMessagesFlow(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine")
	n.run("INSERT INTO order_events [{ order_id: 1, amount: 1 }, { order_id: 2, amount: 'many' }, { order_id: 3, amount: 3 }]")
	n.eventuallyHas("SELECT value, deliveries, topic, position AS p FROM order_events_dead",
		`{"deliveries":3,"p":2,"topic":"order_events","value":{"amount":"many","order_id":2}}`)
	n.eventually("SELECT count() FROM order_rows", `[{"value":{"count":2}}]`)
	n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":3`, `"lag":0`, `"dead_lettered":1`, `"redelivered":2`)
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"quarantined":1`, `"applied":2`, `"lag":0`)
}

func TestBackoffIsWaitedOutAndTheMessageThenGivenUp(t *testing.T) {
	n := ordersNode(t)
	n.run("ALTER GROUP 'into-rows' ON TOPIC order_events BACKOFF 100ms, 200ms, 300ms")
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine")
	started := time.Now()
	n.run("CREATE order_events = { order_id: 2, amount: 'many' }")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"dead_lettered":1`)
	if took := time.Since(started); took < 600*time.Millisecond || took > 3*time.Second {
		t.Errorf("the message was given up after %s, and BACKOFF adds up to 600ms", took)
	}
}

func TestARetriedMessageDoesNotReplaceWhatALaterOneWrote(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE GROUP 'slow' ON TOPIC order_events ACK DEADLINE 30s IN FLIGHT 64 DELIVERIES 50 DEAD LETTER TO order_events_dead BACKOFF 50ms")
	n.run("DEFINE TOPIC CONSUMER c FROM order_events GROUP 'slow' INTO order_rows IDENTITY order_id MAP amount AS total ON FAILURE quarantine")
	n.run("INSERT INTO order_events [{ order_id: 1, amount: 'old' }, { order_id: 2, amount: 'old' }, { order_id: 3, amount: 3 }]")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"in_flight":2`)
	n.run("CREATE order_events = { order_id: 1, amount: 100 }")
	n.eventually("SELECT * FROM order_rows:1", `[{"id":"order_rows:1","value":{"total":100}}]`)
	n.run("DEFINE TABLE OVERWRITE order_rows (total any)")
	n.eventually("SELECT * FROM order_rows:2", `[{"id":"order_rows:2","value":{"total":"old"}}]`)
	n.eventuallyHas("INFO FOR TOPIC order_events", `"in_flight":0`, `"committed":4`)
	n.eventually("SELECT * FROM order_rows:1", `[{"id":"order_rows:1","value":{"total":100}}]`)
}

func TestAMessageThatWasRefusedDoesNotHoldBackAnEarlierOne(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TABLE small_rows (total int ASSERT total < 10); " +
		"DEFINE GROUP 'slow' ON TOPIC order_events ACK DEADLINE 30s IN FLIGHT 64 DELIVERIES 50 DEAD LETTER TO order_events_dead BACKOFF 50ms")
	n.run("DEFINE TOPIC CONSUMER c FROM order_events GROUP 'slow' INTO small_rows IDENTITY order_id MAP amount AS total ON FAILURE quarantine")
	n.run("INSERT INTO order_events [{ order_id: 1, amount: 50 }, { order_id: 1, amount: 500 }]")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"in_flight":2`)
	n.run("DEFINE TABLE OVERWRITE small_rows (total int ASSERT total < 100)")
	n.eventually("SELECT * FROM small_rows", `[{"id":"small_rows:1","value":{"total":50}}]`)
}

func TestAnAssertionThatRefusesIsNamed(t *testing.T) {
	n := newNode(t)
	n.run("DEFINE TOPIC events; DEFINE TABLE rows (v int ASSERT v > 0); DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s")
	n.run("DEFINE TOPIC CONSUMER c FROM events GROUP 'g' INTO rows IDENTITY k MAP v AS v ON FAILURE stop")
	n.run("CREATE events = { k: 1, v: -1 }")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER c", `"halted":true`, "AssertionFailed")
}

func TestDroppingStopsWithinASecondAndKeepsThePlace(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop")
	n.run("CREATE order_events = { order_id: 1, amount: 1 }")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":1`)
	n.run("DROP TOPIC CONSUMER events_in; CREATE order_events = { order_id: 2, amount: 2 }")
	n.always("SELECT * FROM order_rows:2", "[]")
	n.refused("INFO FOR TOPIC CONSUMER events_in", fault.NotFound)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop")
	n.eventually("SELECT * FROM order_rows:2", `[{"id":"order_rows:2","value":{"total":2}}]`)
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"applied":1`)
}

func TestATopicNamedConsumerIsStillATopic(t *testing.T) {
	n := newNode(t)
	n.run("DEFINE TOPIC consumer; CREATE consumer = { v: 1 }")
	n.eventuallyHas("INFO FOR TOPIC consumer", `"topic":"consumer"`)
	n.run("DROP TOPIC consumer")
}

func TestOneBrokenConsumerDoesNotStopAnother(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TABLE gone (total int); DEFINE GROUP 'other' ON TOPIC order_events ACK DEADLINE 30s")
	n.run("DEFINE TOPIC CONSUMER broken FROM order_events GROUP 'other' INTO gone IDENTITY order_id MAP amount AS total ON FAILURE stop; DROP TABLE gone")
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop")
	n.run("CREATE order_events = { order_id: 1, amount: 1 }")
	n.eventually("SELECT count() FROM order_rows", `[{"value":{"count":1}}]`)
	n.eventuallyHas("INFO FOR TOPIC CONSUMER broken", `"halted":false`, "NotFound")
	// What was dropped comes back, and so does its consumer.
	n.run("DEFINE TABLE gone (total int)")
	n.eventually("SELECT count() FROM gone", `[{"value":{"count":1}}]`)
	n.eventuallyHas("INFO FOR TOPIC CONSUMER broken", `"last_error":"NotFound`)
}

func TestADroppedGroupOrTopicIsAnErrorAndNoReader(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine")
	n.run("DROP GROUP 'into-rows' ON TOPIC order_events; CREATE order_events = { order_id: 1 }")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", "NotFound", `"lag":null`)
	n.eventuallyHas("INFO FOR TOPIC order_events", `"readers":{}`)
	n.run("DROP TOPIC order_events")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", "topic order_events does not exist")
}

func TestAQuarantineThatLostItsDeadLetterDoesNotSpin(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine")
	n.run("ALTER GROUP 'into-rows' ON TOPIC order_events DROP DEAD LETTER DROP DELIVERIES; CREATE order_events = { order_id: 1, amount: 'bad' }")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", "InvalidClause")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"redelivered":0`)
}

func TestInfoListsWhatIsDeclaredAndWhatRuns(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine PARALLELISM 2")
	n.eventually("INFO FOR TOPIC CONSUMERS", `[{"consumer":"events_in","running":true}]`)
	n.eventually("INFO FOR TOPIC CONSUMER events_in", `{"declared":{"consumer":"events_in","from":"order_events","group":"into-rows",`+
		`"identity":"order_id","into":"order_rows","map":{"amount":"total"},"on_failure":"quarantine","parallelism":2},`+
		`"guarantees":{"delivery":"exactly once into this store","exactly_once":true,"schema_inference":false},`+
		`"running":{"applied":0,"halted":false,"lag":0,"last_error":null,"last_error_at":null,"quarantined":0,"rate":0.0,"running":true}}`)
	n.eventuallyHas("INFO FOR TOPIC order_events", `"ingested_by":[{"consumer":"events_in","group":"into-rows","running":true,"table":"order_rows"}]`)
	n.eventually("INFO FOR KAFKA CONSUMERS", `[]`)

	// A node that runs nothing says so.
	n.supervisor.Stop()
	n.eventually("INFO FOR TOPIC CONSUMERS", `[{"consumer":"events_in","running":false}]`)
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"running":{}}`)
}

func TestDeclarationsAreRefusedWhereTheyAreWritten(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE COLLECTION anything; DEFINE SPACE space; DEFINE GROUP 'plain' ON TOPIC order_events ACK DEADLINE 30s")
	declare := func(from, group, into, mapping, rest string) string {
		return fmt.Sprintf("DEFINE TOPIC CONSUMER c FROM %s GROUP '%s' INTO %s IDENTITY order_id MAP %s ON FAILURE %s", from, group, into, mapping, rest)
	}
	for _, test := range []struct {
		statement string
		kind      fault.Kind
		says      []string
	}{
		{declare("nothing", "plain", "order_rows", "amount AS total", "stop"), fault.NotFound, []string{"nothing"}},
		{declare("order_rows", "plain", "order_rows", "amount AS total", "stop"), fault.NotFound, []string{"order_rows"}},
		{declare("order_events", "nobody", "order_rows", "amount AS total", "stop"), fault.NotFound, []string{"nobody"}},
		{declare("order_events", "plain", "nothing", "amount AS total", "stop"), fault.NotFound, []string{"nothing"}},
		{declare("order_events", "plain", "space", "amount AS total", "stop"), fault.InvalidClause, []string{"space"}},
		{declare("order_events", "plain", "order_events_dead", "amount AS total", "stop"), fault.InvalidClause, []string{"topic"}},
		{declare("order_events", "plain", "order_rows", "amount AS total", "quarantine"), fault.InvalidClause, []string{"DELIVERIES", "DEAD LETTER TO", "plain"}},
		{declare("order_events", "plain", "order_rows", "amount AS total, price AS total", "stop"), fault.InvalidClause, []string{"amount", "price", "total"}},
		{declare("order_events", "plain", "order_rows", "amount AS id", "stop"), fault.InvalidClause, []string{"IDENTITY"}},
		{declare("order_events", "plain", "order_rows", "amount AS other", "stop"), fault.UnknownField, []string{"other", "order_rows"}},
		{declare("order_events", "plain", "order_rows", "amount AS total", "stop PARALLELISM 0"), fault.InvalidClause, []string{"PARALLELISM", "0"}},
		{declare("order_events", "plain", "order_rows", "amount AS total", "stop PARALLELISM 65"), fault.InvalidClause, []string{"64"}},
		{declare("other.order_events", "plain", "order_rows", "amount AS total", "stop"), fault.InvalidClause, []string{"other", "main"}},
		{declare("order_events", "plain", "other.order_rows", "amount AS total", "stop"), fault.InvalidClause, []string{"other", "main"}},
		{declare("other.order_events", "plain", "other.order_rows", "amount AS total", "stop"), fault.InvalidClause, []string{"other", "main"}},
		{"DROP TOPIC CONSUMER nobody", fault.NotFound, []string{"nobody"}},
		{"DROP KAFKA CONSUMER nobody", fault.NotFound, []string{"nobody"}},
		{"ALTER TOPIC CONSUMER nobody RESUME", fault.NotFound, []string{"nobody"}},
		{"INFO FOR TOPIC CONSUMER nobody", fault.NotFound, []string{"nobody"}},
	} {
		message := n.refused(test.statement, test.kind)
		for _, word := range test.says {
			if !strings.Contains(message, word) {
				t.Errorf("%s\n%q does not name %s", test.statement, message, word)
			}
		}
	}
	n.run(declare("main.order_events", "plain", "main.anything", "amount AS total", "stop"))
	n.run("CREATE order_events = { order_id: 1, amount: [1] }")
	n.eventually("SELECT * FROM anything", `[{"id":"anything:1","value":{"total":[1]}}]`)
}

func TestANodeThatStartsLaterStartsWhatIsDeclared(t *testing.T) {
	dir := t.TempDir()
	t.Run("declared", func(t *testing.T) {
		e, err := pebble.Open(dir, pebble.Options{})
		if err != nil {
			t.Fatal(err)
		}
		n := newNodeOn(t, e)
		n.run(orders)
		n.supervisor.Stop()
		n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop; CREATE order_events = { order_id: 1, amount: 1 }")
		n.always("SELECT * FROM order_rows", "[]")
	})
	e, err := pebble.Open(dir, pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := newNodeOn(t, e)
	n.eventually("SELECT * FROM order_rows", `[{"id":"order_rows:1","value":{"total":1}}]`)
}

func TestStopFinishesTheBatchAndTakesNoMore(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop PARALLELISM 2")
	var producing sync.WaitGroup
	producing.Go(func() {
		caller := n.newSession()
		defer caller.Close()
		for i := range 500 {
			_, _ = caller.Run(t.Context(), fmt.Sprintf("USE NAMESPACE shop; USE DATABASE main; CREATE order_events = { order_id: %d, amount: 1 }", i), nil)
		}
	})
	n.eventuallyIs("SELECT count() FROM order_rows", func(got string) bool { return got != `[{"value":{"count":0}}]` }, "some records")
	n.supervisor.Stop()
	rows := n.run("SELECT count() FROM order_rows")
	n.always("SELECT count() FROM order_rows", rows)
	producing.Wait()
	// What was written is what was acknowledged, and nothing is in flight.
	var count int
	if _, err := fmt.Sscanf(rows, `[{"value":{"count":%d`, &count); err != nil {
		t.Fatal(err)
	}
	n.eventuallyHas("INFO FOR TOPIC order_events", fmt.Sprintf(`"committed":%d,`, count), `"in_flight":0`)

	again := ingest.Start(n.store, ingest.Options{Log: slog.New(slog.DiscardHandler)})
	defer again.Stop()
	n.eventually("SELECT count() FROM order_rows", `[{"value":{"count":500}}]`)
}

func TestMessagesThatRetentionRemovedAreToldAndCounted(t *testing.T) {
	n := ordersNode(t)
	n.run("INSERT INTO order_events [{ order_id: 1, amount: 1 }, { order_id: 2, amount: 2 }, { order_id: 3, amount: 3 }]")
	n.run("ALTER TOPIC order_events RETAIN BYTES 30")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"first":3`)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"lapsed":2`, "retention removed 2 messages")
	n.eventually("SELECT count() FROM order_rows", `[{"value":{"count":1}}]`)
}

func TestEveryStartStopHaltAndQuarantineIsLogged(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine; CREATE order_events = { order_id: 1, amount: 'bad' }")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"quarantined":1`)
	n.run("DEFINE TOPIC CONSUMER OVERWRITE" + ordersConsumer + "stop; CREATE order_events = { order_id: 1, amount: 'worse' }")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"halted":true`)
	n.run("DROP TOPIC CONSUMER events_in")
	for _, line := range []string{"starts", "put aside", "halts", "has stopped"} {
		if !strings.Contains(n.log.String(), line) {
			t.Errorf("no line of the log says %q:\n%s", line, n.log)
		}
	}
}

func TestNodesThatShareAStoreShareTheWorkAndApplyEachMessageOnceInOrder(t *testing.T) {
	n := newNode(t)
	second := ingest.Start(n.store, ingest.Options{Log: slog.New(slog.DiscardHandler)})
	defer second.Stop()
	n.run("DEFINE TOPIC events; DEFINE TABLE rows (k int, written uuid DEFAULT uuid()); " +
		"DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s IN FLIGHT 1")
	n.run("DEFINE TOPIC CONSUMER c FROM events GROUP 'g' INTO rows IDENTITY k MAP k AS k ON FAILURE stop PARALLELISM 2")
	for k := range 400 {
		n.run(fmt.Sprintf("CREATE events = { k: %d }", k))
	}
	n.eventuallyHas("INFO FOR TOPIC events", `"committed":400`, `"redelivered":0`)
	n.eventually("SELECT count() FROM rows", `[{"value":{"count":400}}]`)
	byTime := n.run("SELECT k FROM rows ORDER BY written")
	if byKey := n.run("SELECT k FROM rows ORDER BY k"); byTime != byKey {
		t.Error("the messages were not applied in order")
	}
	// Both reports together count every message once.
	database, err := n.store.Database(t.Context(), "shop", "main")
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := database.Catalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var applied int64
	for _, supervisor := range []*ingest.Supervisor{n.supervisor, second} {
		by, _ := supervisor.Report(database, catalog.Consumers(store.TopicConsumer)[0])["applied"].AsInt()
		applied += by
	}
	if applied != 400 {
		t.Errorf("the nodes applied %d messages of 400", applied)
	}
	// The one goes on when the other ends.
	n.supervisor.Stop()
	n.run("CREATE events = { k: 400 }")
	n.eventually("SELECT k FROM rows:400", `[{"id":"rows:400","value":{"k":400}}]`)
}

func TestOnePoisonedMessageCostsTheOthersLittle(t *testing.T) {
	n := ordersNode(t)
	for from := 0; from < 6000; from += 2000 {
		var rows []string
		for i := from; i < from+2000; i++ {
			amount := "1"
			if i == 3333 {
				amount = "'poison'"
			}
			rows = append(rows, fmt.Sprintf("{ order_id: %d, amount: %s }", i, amount))
		}
		n.run("INSERT INTO order_events [" + strings.Join(rows, ",") + "]")
	}
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "quarantine")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":6000`, `"dead_lettered":1`)
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", `"applied":5999`, `"quarantined":1`)
}

func TestAMessageThatAForeignWorkerReturnsLateDoesNotReplaceALaterOne(t *testing.T) {
	n := ordersNode(t)
	// A worker of the same group took the first message before the consumer
	// was declared, and hands it back after the later one was applied.
	n.run("CREATE order_events = { order_id: 1, amount: 1 }; READ FROM order_events FOR CONSUMER 'into-rows'")
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop; CREATE order_events = { order_id: 1, amount: 2 }")
	n.eventually("SELECT * FROM order_rows", `[{"id":"order_rows:1","value":{"total":2}}]`)
	n.run("NACK order_events FOR CONSUMER 'into-rows' AT 1")
	n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":2`, `"in_flight":0`)
	n.eventually("SELECT * FROM order_rows", `[{"id":"order_rows:1","value":{"total":2}}]`)
	// Once everything is settled nothing is remembered, and a replay applies
	// all of it again.
	n.run("DELETE order_rows:1; ALTER GROUP 'into-rows' ON TOPIC order_events START AT 0")
	n.eventually("SELECT * FROM order_rows", `[{"id":"order_rows:1","value":{"total":2}}]`)
}
