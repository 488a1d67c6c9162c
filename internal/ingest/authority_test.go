package ingest_test

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// declareAs declares consumers as a user of the database.
func (n *node) declareAs(user, statement string) {
	n.Helper()
	defined, err := n.store.FindUser(n.Context(), "shop", "main", user)
	if err != nil {
		n.Fatal(err)
	}
	own, err := session.NewIn(n.Context(), n.store, "shop", "main", session.Options{Caller: session.SignedIn(defined, time.Time{})})
	if err != nil {
		n.Fatal(err)
	}
	defer own.Close()
	answers, err := own.Run(n.Context(), statement, nil)
	if err != nil || answers[0].Err != nil {
		n.Fatalf("%s: %v %v", statement, answers, err)
	}
}

func TestAConsumerRunsWithTheAuthorityOfWhoDeclaredIt(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE USER 'root' ON STORE PASSWORD 'x' ROLE owner; DEFINE USER 'ann' ON DATABASE PASSWORD 'x'")
	n.run("GRANT read, manage ON order_events TO 'ann'; GRANT read, write, manage ON order_rows TO 'ann'")
	n.declareAs("ann", "DEFINE TOPIC CONSUMER"+ordersConsumer+"quarantine")
	n.run("CREATE order_events = { order_id: 1, amount: 1 }")
	n.eventuallyHas("SELECT * FROM order_rows", "order_rows:1")

	for i, lost := range []string{"write ON order_rows", "read ON order_events"} {
		n.run("REVOKE " + lost + " FROM 'ann'")
		n.run("CREATE order_events = { order_id: " + []string{"2", "3"}[i] + ", amount: 1 }")
		n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", "NotAllowed: user 'ann' has no", `"halted":false`, `"quarantined":0`, `"applied":`+[]string{"1", "2"}[i])
		n.eventuallyHas("INFO FOR TOPIC order_events", `"committed":`+[]string{"1", "2"}[i], `"redelivered":0`, `"in_flight":0`)
		n.run("GRANT " + lost + " TO 'ann'")
		n.eventuallyHas("SELECT * FROM order_rows", "order_rows:"+[]string{"2", "3"}[i])
	}

	// A user who is dropped takes the authority along, also where another of
	// the name comes; a consumer that is declared again has a new declarer.
	n.run("DROP USER 'ann' ON DATABASE; DEFINE USER 'ann' ON DATABASE PASSWORD 'x' ROLE owner")
	n.run("CREATE order_events = { order_id: 4, amount: 1 }")
	n.eventuallyHas("INFO FOR TOPIC CONSUMER events_in", "who declared the consumer, was dropped", `"applied":3`)
	n.declareAs("ann", "DEFINE TOPIC CONSUMER OVERWRITE"+ordersConsumer+"quarantine")
	n.eventuallyHas("SELECT * FROM order_rows", "order_rows:4")
}

func TestAConsumerOfTheProcessItselfNeedsNobody(t *testing.T) {
	n := ordersNode(t)
	n.run("DEFINE TOPIC CONSUMER" + ordersConsumer + "stop")
	n.run("DEFINE USER 'root' ON STORE PASSWORD 'x' ROLE owner; CREATE order_events = { order_id: 1, amount: 1 }")
	n.eventuallyHas("SELECT * FROM order_rows", "order_rows:1")
	database, err := n.store.Database(t.Context(), "shop", "main")
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := database.Catalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if consumer, err := catalog.Consumer(store.TopicConsumer, "events_in"); err != nil || consumer.DeclaredBy != nil {
		t.Errorf("%+v %v", consumer, err)
	}
}
