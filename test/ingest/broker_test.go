package ingest

import (
	"testing"

	"github.com/tidemarkdb/tidemark/internal/ingest/kafkatest"
)

// broker is a real broker that a test uses and kills.
type broker struct {
	*testing.T
	*kafkatest.Broker
}

func startBroker(t *testing.T) *broker {
	t.Helper()
	b, err := kafkatest.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Kill)
	return &broker{t, b}
}

func (b *broker) start() {
	b.Helper()
	if err := b.Start(); err != nil {
		b.Fatal(err)
	}
}

func (b *broker) produce(topic string, lines ...string) {
	b.Helper()
	if err := b.Produce(topic, lines...); err != nil {
		b.Fatal(err)
	}
}
