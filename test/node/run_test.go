package node

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

// scripts are run on a store in memory and on a node, with the same answers.
var scripts = []string{
	`DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE d; USE DATABASE d; DEFINE TOPIC events; DEFINE COLLECTION invoices;
	CREATE events:'a' = { kind: 'paid', at: d'2026-01-31T10:00:00Z', for: 1h30m, raw: b'00ff', n: 9007199254740993, f: 1.0 };
	INSERT INTO events [{ id: 'b', x: none }, { id: 'c', x: null }]; CREATE events:'a' = 1; READ FROM events AFTER 1;
	BEGIN; READ FROM events FOR CONSUMER 'billing' LIMIT 2; CREATE invoices:1 = { total: 40 }; COMMIT;
	READ FROM events FOR CONSUMER 'billing'; DELETE events:'a'; UPDATE invoices:1 SET total = total + 1; SELECT * FROM invoices;
	BEGIN; CREATE invoices:2 = { }; CANCEL; BEGIN; CREATE invoices:1 = { }; CREATE invoices:3 = { }; COMMIT; SELECT count() FROM invoices;
	BEGIN; BEGIN; COMMIT; COMMIT; INFO FOR TOPIC events; FOLLOW events FROM`,
	`USE NAMESPACE none; SELECT * FROM t; BEGIN; SLEEP 0s; CANCEL`,
	`DEFINE NAMESPACE m; USE NAMESPACE m; DEFINE DATABASE d; USE DATABASE d; DEFINE TOPIC mail RETAIN BYTES 3; INSERT INTO mail [1, 2, 3]; CREATE mail = 4;
	DEFINE GROUP 'g' ON TOPIC mail ACK DEADLINE 30s IN FLIGHT 2; READ FROM mail FOR CONSUMER 'g' LIMIT 10; ACK mail FOR CONSUMER 'g' AT 2, 3; NACK mail FOR CONSUMER 'none' AT 1;
	SELECT value, position() FROM mail; SELECT 1;;`,
}

func TestRunOnANodeAnswersAsRunInMemory(t *testing.T) {
	p := start(t)
	for _, form := range [][]string{{"--json"}, nil} {
		for i, script := range scripts {
			local, _, localStatus := nodetest.Run(t, script, append(append([]string{"run"}, form...), "-")...)
			remote, errors, remoteStatus := nodetest.Run(t, script, append(append([]string{"run", "--url", "ws://" + p.Address}, form...), "-")...)
			local, remote = stable(local), stable(remote)
			if local != remote || localStatus != remoteStatus {
				t.Errorf("script %d %v\nin memory exits with %d:\n%s\non a node with %d:\n%s\n%s", i, form, localStatus, local, remoteStatus, remote, errors)
			}
			if local == "" {
				t.Errorf("script %d prints nothing", i)
			}
		}
		// The next form begins with an empty store again.
		p.Kill()
		p = start(t)
	}
}

// stable is output without what differs from run to run: generated identities,
// and how wide they make a table.
func stable(out string) string {
	var b strings.Builder
	for part := range strings.FieldsSeq(out) {
		if strings.HasPrefix(part, "───") || strings.HasPrefix(part, "mail:u'") || strings.HasPrefix(part, "\"mail:u'") {
			part = "…"
		}
		for {
			before, rest, generated := strings.Cut(part, ":u'")
			if !generated {
				break
			}
			_, after, _ := strings.Cut(rest, "'")
			part = before + ":…" + after
		}
		b.WriteString(part + " ")
	}
	return b.String()
}

func TestRunOnANodeThatIsNotThereSaysSo(t *testing.T) {
	_, errors, status := nodetest.Run(t, "SLEEP 0s", "run", "--url", "ws://127.0.0.1:1", "-")
	if status != 1 || !strings.Contains(errors, "no node answers at ws://127.0.0.1:1/ws") {
		t.Errorf("%d %s", status, errors)
	}
	_, errors, status = nodetest.Run(t, "SLEEP 0s", "run", "--url", "ws://127.0.0.1:1", "--data", t.TempDir(), "-")
	if status != 2 || !strings.Contains(errors, "--data") {
		t.Errorf("%d %s", status, errors)
	}
}

func TestTwoNodesDoNotShareAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_ = start(t, "--data", dir)
	_, errors, status := nodetest.Run(t, "", "serve", "--listen", "127.0.0.1:0", "--data", dir)
	if status != 1 || !strings.Contains(errors, "Unavailable") {
		t.Errorf("%d %s", status, errors)
	}
}
