package ingest_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// BenchmarkATopicIntoATable measures messages of 1 KiB that are read from a
// topic on the disk into a table, one operation a message.
func BenchmarkATopicIntoATable(b *testing.B) {
	e, err := pebble.Open(b.TempDir(), pebble.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(b.Context(), e, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	supervisor := ingest.Start(s, ingest.Options{Log: slog.New(slog.DiscardHandler)})
	defer supervisor.Stop()
	caller := session.New(s, session.Options{Running: supervisor})
	run := func(script string) string {
		answers, err := caller.Run(b.Context(), script, nil)
		if err != nil {
			b.Fatal(err)
		}
		last := answers[len(answers)-1]
		if last.Err != nil {
			b.Fatal(last.Err)
		}
		text, _ := last.Value.AppendJSON(nil)
		return string(text)
	}
	run("DEFINE NAMESPACE n; USE NAMESPACE n; DEFINE DATABASE d; USE DATABASE d; DEFINE TOPIC events; " +
		"DEFINE TABLE rows (v int, text string); DEFINE GROUP 'g' ON TOPIC events ACK DEADLINE 30s IN FLIGHT 64")
	database, err := s.Database(b.Context(), "n", "d")
	if err != nil {
		b.Fatal(err)
	}
	text := value.String(strings.Repeat("x", 1000))
	for i := 0; i < b.N; {
		var messages []store.NewMessage
		for ; i < b.N && len(messages) < 1000; i++ {
			messages = append(messages, store.NewMessage{Value: value.Fields(value.Object{
				"k": value.Int(int64(i)), "v": value.Int(int64(i)), "text": text,
			})})
		}
		if _, err := database.Append(b.Context(), "events", messages...); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	run("DEFINE TOPIC CONSUMER c FROM events GROUP 'g' INTO rows IDENTITY k MAP v AS v, text AS text ON FAILURE stop")
	nodetest.Eventually(b, 10*time.Minute, func() bool { return strings.Contains(run("INFO FOR TOPIC events"), `"lag":0`) }, "all messages are applied")
}
