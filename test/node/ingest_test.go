package node

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

func get(t testing.TB, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestIngestStatusAndMetricsTellWhatADeclaredConsumerDoes(t *testing.T) {
	p := start(t)
	p.prepare()
	status := func() (string, int) {
		out, errors, code := nodetest.Run(t, "", "ingest", "status", "--url", "ws://"+p.Address)
		if errors != "" {
			t.Fatalf("ingest status says: %s", errors)
		}
		return out, code
	}
	if out, code := status(); code != 0 || !strings.Contains(out, "no consumers are declared") {
		t.Errorf("a node without consumers: %d %s", code, out)
	}
	answers, err := p.dial().Run(context.Background(), `
		DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 5s;
		DEFINE TABLE rows (v int);
		DEFINE TOPIC CONSUMER events_in FROM events GROUP 'g' INTO rows IDENTITY k MAP v AS v ON FAILURE stop;
		INSERT INTO events [{ k: 1, v: 1 }, { k: 2, v: 2 }, { k: 3, v: 'three' }]`, nil)
	if err != nil || answers[len(answers)-1].Err != nil {
		t.Fatal(err, answers)
	}
	nodetest.Eventually(t, soon, func() bool {
		out, code := status()
		return code == 1 && strings.Contains(out, "halted")
	}, "the consumer halts at the third message")
	out, _ := status()
	for _, wanted := range []string{"events_in", "shop/orders", "field v of table rows takes int"} {
		if !strings.Contains(out, wanted) {
			t.Errorf("the status lacks %q:\n%s", wanted, out)
		}
	}
	metrics := get(t, p.URL+"/metrics")
	labels := `{consumer="events_in",database="orders",kind="topic",namespace="shop"}`
	for _, wanted := range []string{
		"tidemark_consumer_applied_total" + labels + " 2\n",
		"tidemark_consumer_running" + labels + " 0\n",
		"tidemark_appends_total 3\n",
		"tidemark_commit_sync_seconds_count ",
		`tidemark_commits_total{outcome="durable"} `,
		"tidemark_conflicts_total 0\n",
	} {
		if !strings.Contains(metrics, wanted) {
			t.Errorf("/metrics lacks %q", wanted)
		}
	}
}
