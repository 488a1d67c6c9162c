package node

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
)

// Nodes that share a PostgreSQL are one store: whatever is defined on one is in
// force on the others with their next statement. What counts by itself on each
// is the rate of strangers.
func TestNodesThatShareAPostgreSQLAreOneStore(t *testing.T) {
	url := postgrestest.New(t).URL()
	var nodes [3]*process
	for i := range nodes {
		nodes[i] = start(t, "--postgres", url)
	}
	one, two, three := nodes[0], nodes[1], nodes[2]

	// The first owner closes all of them at once.
	one.prepare()
	three.must(nobody, inOrders, "CREATE events = 'anybody'")
	two.must(nobody, "", "DEFINE USER 'root' ON STORE PASSWORD '"+rootPassword+"' ROLE owner")
	for _, n := range nodes {
		n.refused(nobody, inOrders, "CREATE events = 'nobody'", "NotSignedIn")
		n.must(asRoot, inOrders, "CREATE events = 'root'")
	}

	t.Run("the catalog and INFO are the same on each", func(t *testing.T) {
		for i, definition := range []string{
			"DEFINE TABLE orders (total int)",
			"ALTER TOPIC events MAX BYTES 1000",
			"DEFINE GROUP 'mailer' ON TOPIC events ACK DEADLINE 1h IN FLIGHT 10; READ FROM events FOR CONSUMER 'mailer' LIMIT 2",
			"DROP TABLE orders",
			"DEFINE DATABASE other",
		} {
			nodes[i%3].must(asRoot, inOrders, definition)
			for _, info := range []string{"INFO FOR STORE", "INFO FOR NAMESPACE", "INFO FOR DATABASE", "INFO FOR TOPIC events", "READ FROM events"} {
				want := one.must(asRoot, inOrders, info)
				for _, n := range nodes[1:] {
					if got := n.must(asRoot, inOrders, info); got != want {
						t.Errorf("after %s, %s answers\n%s\non one node and on another\n%s", definition, info, want, got)
					}
				}
			}
		}
		if info := three.must(asRoot, "", "INFO FOR STORE"); strings.Count(info, `"started"`) != len(nodes) {
			t.Errorf("of three nodes one lists %s", info)
		}
	})

	t.Run("what strangers may append is counted on each node", func(t *testing.T) {
		two.must(asRoot, inOrders, "DEFINE TOPIC signups MAX BYTES 100 PUBLIC RATE 2 PER 1h")
		for _, n := range nodes {
			n.must(nobody, inOrders, "CREATE signups = 1; CREATE signups = 2")
			n.refused(nobody, inOrders, "CREATE signups = 3", "TopicRateExceeded")
		}
		if count := one.must(asRoot, inOrders, "SELECT count() AS n FROM signups"); !strings.Contains(count, `"n":6`) {
			t.Errorf("two from each of three nodes are %s", count)
		}
	})

	t.Run("a user and what it may is in force on all at once", func(t *testing.T) {
		one.must(asRoot, inOrders, "DEFINE USER 'ann' ON DATABASE PASSWORD 'the password of ann'")
		two.must(asAnn, inOrders, "SLEEP 0s")
		three.refused(asAnn, inOrders, "READ FROM events", "NotAllowed")
		_, token, _, _ := three.signIn(annSignsIn)
		session, err := client.Dial(t.Context(), two.URL, client.Options{Namespace: "shop", Database: "orders", User: "ann", Password: "the password of ann"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close() }()
		// reads is how a read is answered: over the session, and by a token of
		// another node.
		reads := func(after string, want error) {
			t.Helper()
			answers, err := session.Run(t.Context(), "READ FROM events", nil)
			if err == nil && answers[0].Err != nil {
				err = answers[0].Err
			}
			if !errors.Is(err, want) {
				t.Errorf("after %s a session on another node is answered %v, want %v", after, err, want)
			}
			status, answer := one.sql(bearer(token), inOrders, "READ FROM events")
			told := status == http.StatusOK && strings.Contains(answer, `"ok":true`)
			switch {
			case errors.Is(want, fault.NotSignedIn):
				told = status == http.StatusUnauthorized
			case want != nil:
				told = strings.Contains(answer, want.Error())
			}
			if !told {
				t.Errorf("after %s a token is answered %d %s, want %v", after, status, answer, want)
			}
		}
		for range 3 {
			three.must(asRoot, inOrders, "GRANT read ON events TO 'ann'")
			reads("GRANT", nil)
			one.must(asRoot, inOrders, "REVOKE read ON events FROM 'ann'")
			reads("REVOKE", fault.NotAllowed)
		}
		one.must(asRoot, inOrders, "ALTER USER 'ann' ON DATABASE ROLE viewer")
		reads("ROLE viewer", nil)
		three.must(asRoot, inOrders, "ALTER USER 'ann' ON DATABASE PASSWORD 'another'")
		reads("another password", fault.NotSignedIn)
		for _, n := range nodes {
			if status, answer := n.sql(asAnn, inOrders, "SLEEP 0s"); status != http.StatusUnauthorized {
				t.Errorf("the password of before signs in: %d %s", status, answer)
			}
			n.must(basic("ann", "another"), inOrders, "READ FROM events")
		}
		two.must(asRoot, inOrders, "DROP USER 'ann' ON DATABASE")
		for _, n := range nodes {
			if status, answer := n.sql(basic("ann", "another"), inOrders, "SLEEP 0s"); status != http.StatusUnauthorized {
				t.Errorf("a user that was dropped signs in: %d %s", status, answer)
			}
		}
	})
}
