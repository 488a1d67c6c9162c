package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/deploy"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// onBothEngines runs a test on a node in memory and on one on PostgreSQL.
func onBothEngines(t *testing.T, test func(t *testing.T, n *node)) {
	t.Run("memory", func(t *testing.T) { test(t, newNode(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, newNodeOn(t, postgrestest.Schema())) })
}

func mustChange(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// records are the keys of a table's records.
func (n *node) records(table string) []string {
	n.t.Helper()
	tx, err := n.database().Begin(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	defer tx.Cancel()
	definition, err := tx.Catalog().Table(table)
	if err != nil {
		n.t.Fatal(err)
	}
	var keys []string
	rows := tx.Scan(n.t.Context(), definition, store.ScanOptions{})
	for rows.Next() {
		key, _ := rows.Row().ID.Key.AsString()
		keys = append(keys, key)
	}
	if err := rows.Close(); err != nil {
		n.t.Fatal(err)
	}
	return keys
}

func TestADeploymentMakesWhatIsMissingAndKeepsWhatGoesAway(t *testing.T) {
	onBothEngines(t, func(t *testing.T, n *node) {
		first := n.provision("d1", payments("+deadletter failedPayins"))
		mustChange(t, "new topics", first.Topics, []string{"payments.payins", "payments.failedPayins"})
		mustChange(t, "new subscriptions", first.Subscriptions, []string{processing})
		n.publish("payments_payins", 1, 2, 3)
		again := n.provision("d2", payments("+deadletter failedPayins"))
		if len(again.Topics)+len(again.Subscriptions)+len(again.Altered)+len(again.Kept) > 0 {
			t.Fatalf("the same schema changes %+v", again)
		}
		r := n.connect("payments", "d2", 8)
		r.succeed(must(t, r.next(), "processPayin", 1, 1))
		must(t, r.next(), "processPayin", 2, 1)
		mustChange(t, "subscribers", n.records("topic_subscribers"), []string{processing + "/payments.processPayin"})

		without := n.provision("d3", "module payments {\n  topic payins payments.PayinEvent { +retain 1d }\n  data PayinEvent { n Int }\n}")
		mustChange(t, "kept", without.Kept, []string{"payments.failedPayins", processing})
		mustChange(t, "altered", without.Altered, []string{"payments.payins"})
		next := n.connect("payments", "d3", 8)
		next.quiet()
		mustChange(t, "subscribers", n.records("topic_subscribers"), nil)
		r.kill()

		// It comes back, with another width, and goes on from its place.
		back := n.provision("d4", strings.Replace(payments(""), "subscription paymentProcessing payments.payins", "subscription paymentProcessing payments.payins { +parallel 2 }", 1))
		mustChange(t, "altered", back.Altered, []string{"payments.payins", processing})
		mustChange(t, "kept", back.Kept, nil)
		last := n.connect("payments", "d4", 8)
		if c := last.next(); c.Position != 3 {
			t.Errorf("it goes on at %d", c.Position)
		}
	})
}

func TestASubscriptionBeginsAtTheBeginningOrWhereTheTopicEndsWhenItIsCreated(t *testing.T) {
	onBothEngines(t, func(t *testing.T, n *node) {
		n.provision("d1", "module payments {\n  topic payins payments.PayinEvent\n  data PayinEvent { n Int }\n}")
		n.publish("payments_payins", 1, 2)
		n.provision("d2", `module payments {
			topic payins payments.PayinEvent
			subscription all payments.payins
			subscription fresh payments.payins { +fromLatest +parallel 10 }
			data PayinEvent { n Int }
			sink takeAll(payments.PayinEvent) { +subscribe all }
			sink takeFresh(payments.PayinEvent) { +subscribe fresh }
		}`)
		n.publish("payments_payins", 3)
		if s := n.status("payments.all"); s.Lag != 3 {
			t.Errorf("from the beginning %d events lie before it", s.Lag)
		}
		if s := n.status("payments.fresh"); s.Lag != 1 || s.Position != 2 {
			t.Errorf("from the latest it is at %d with %d before it", s.Position, s.Lag)
		}
		// What the topic holds now does not move one that is there.
		n.provision("d3", `module payments {
			topic payins payments.PayinEvent
			subscription all payments.payins { +fromLatest }
			data PayinEvent { n Int }
			sink takeAll(payments.PayinEvent) { +subscribe all }
		}`)
		if s := n.status("payments.all"); s.Lag != 3 {
			t.Errorf("a subscription that is there has %d events before it", s.Lag)
		}
	})
}

func TestADeploymentThatDoesNotFitIsRefusedWholeWithWhatWouldBeTaken(t *testing.T) {
	n := newNode(t)
	n.provision("d1", payments(""))
	n.provision("r1", `module receipts {
		subscription receiptWriting payments.payins
		data Receipt { n Int }
		topic receipts receipts.Receipt
		mapper toReceipt(payments.PayinEvent) receipts.Receipt { +map receiptWriting receipts.receipts }
	}`)
	before := n.records("topics")
	for name, c := range map[string]struct {
		schema string
		kind   error
		says   []string
	}{
		"an event type that loses a field": {
			strings.Replace(payments(""), "data PayinEvent { n Int }", "data PayinEvent { amount Int }\n topic more payments.PayinEvent", 1),
			fault.TypeMismatch, []string{"payments.failedPayins.n", "It was:", "It would be:", "amount Int"},
		},
		"a topic that another module subscribes to": {
			"module payments { }", fault.InvalidClause, []string{"receipts", "payments.payins"},
		},
		"a topic of a module that is not deployed": {
			"module orders { subscription all shipping.parcels\n sink take(shipping.Parcel) { +subscribe all } }", fault.InvalidClause, []string{"shipping"},
		},
		"no schema": {"modul payments {}", fault.Syntax, []string{"line 1"}},
		"modules that serve one request": {
			"module a { verb v() { +ingress http GET /x } }\nmodule b { verb w() { +ingress http GET /x } }",
			fault.InvalidClause, []string{"a.v", "b.w", "GET /x", "give one of them another path"},
		},
		"a module with the tables' prefix": {"module topic { }", fault.InvalidClause, []string{"topic"}},
	} {
		_, err := n.tryProvision("d2", c.schema)
		t.Log(name, err)
		refused(t, err, c.kind, c.says...)
	}
	mustChange(t, "topics", n.records("topics"), before)
	_, err := n.tryProvision("", payments(""))
	refused(t, err, fault.InvalidClause, "id of the deployment of module payments")
	// Events of a topic that nobody declares for a while are still there.
	n.provision("x1", "module other {\n topic things other.Thing\n data Thing { n Int }\n}")
	n.provision("x2", "module other {\n}")
	_, err = n.tryProvision("x3", "module other {\n topic things other.Thing\n data Thing { n String }\n}")
	refused(t, err, fault.TypeMismatch, "other.things.n")
}

func TestModulesThatSubscribeToOneAnotherAreDeployedTogether(t *testing.T) {
	n := newNode(t)
	const ping = `module ping {
		export topic pings ping.Ping
		subscription pongs pong.pongs
		data Ping { n Int }
		sink takePong(pong.Pong) { +subscribe pongs }
	}
	`
	pong := strings.NewReplacer("ping", "pong", "Ping", "Pong", "pong", "ping", "Pong", "Ping").Replace(ping)
	_, err := n.tryProvision("d1", ping)
	refused(t, err, fault.InvalidClause, "pong")
	changes := n.provision("d1", ping+pong)
	mustChange(t, "subscriptions", changes.Subscriptions, []string{"ping.pongs", "pong.pings"})
}

func TestTheCatalogIsTheSameOnBothEngines(t *testing.T) {
	shown := map[string]string{}
	onBothEngines(t, func(t *testing.T, n *node) {
		n.provision("d1", payments("+deadletter failedPayins"))
		n.provision("r1", receipts)
		n.connect("payments", "d1", 8)
		n.connect("receipts", "r1", 8)
		tx, err := n.database().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Cancel()
		var text strings.Builder
		for _, table := range tx.Catalog().Tables() {
			text.WriteString(string(table.Kind) + " " + table.Name + "\n")
			if table.Kind == store.Topic || table.Name == "topic_runners" {
				continue
			}
			rows := tx.Scan(t.Context(), table, store.ScanOptions{})
			for rows.Next() {
				v, err := rows.Row().Value()
				if err != nil {
					t.Fatal(err)
				}
				fields, _ := v.AsObject()
				delete(fields, "created_at")
				delete(fields, "since")
				text.WriteString("  " + rows.Row().ID.String() + " " + value.Fields(fields).String() + "\n")
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
		}
		shown[t.Name()[strings.LastIndex(t.Name(), "/")+1:]] = text.String()
	})
	if shown["memory"] != shown["postgres"] || !strings.Contains(shown["memory"], "topic_mappers") {
		t.Errorf("in memory:\n%s\non PostgreSQL:\n%s", shown["memory"], shown["postgres"])
	}
}

func TestStatusTellsWhatIsDeployedAndHowItDoes(t *testing.T) {
	n := newNode(t)
	n.provision("d1", `module payments {
		export topic payins payments.PayinEvent
		subscription paymentProcessing payments.payins
		data PayinEvent { n Int }
		verb payin(payments.PayinEvent) {
			+ingress http POST /payment
			+publish payments.payins
		}
		sink processPayin(payments.PayinEvent) { +subscribe paymentProcessing }
	}`)
	r := n.connect("payments", "d1", 8)
	n.publish("payments_payins", 1, 2)
	must(t, r.next(), "processPayin", 1, 1)
	status, err := n.host.Status(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	m := status.Modules[0]
	if m.Module != "payments" || m.Deployment != "d1" || len(m.Runners) != 1 || m.Runners[0].Runners != 1 ||
		len(m.Ingress) != 1 || m.Ingress[0] != (deploy.IngressStatus{Verb: "payments.payin", Method: "POST", Path: "/payment"}) {
		t.Errorf("the module is %+v", m)
	}
	if topic := m.Topics[0]; topic.Topic != "payments.payins" || topic.Type != "payments.PayinEvent" || !topic.Exported || topic.Last != 2 ||
		!slices.Equal(topic.Publishers, []string{"payments.payin"}) {
		t.Errorf("the topic is %+v", topic)
	}
	s := m.Subscriptions[0]
	if s.Subscription != processing || s.Lag != 2 || s.Node == "" || !slices.Equal(s.Sinks, []string{"payments.processPayin"}) || s.InFlightCount != 1 {
		t.Fatalf("the subscription is %+v", s)
	}
	if one := s.InFlight[0]; one.Position != 1 || one.Attempt != 1 || one.Verb != "payments.processPayin" || !one.Since.Equal(n.clock.read()) || one.Until != nil {
		t.Errorf("in flight is %+v, now %s", one, n.clock.read())
	}
}
