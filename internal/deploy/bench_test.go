package deploy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// BenchmarkDispatch is what an event costs from the topic to the end of its
// call, through a runner that does nothing, on a disk.
func BenchmarkDispatch(b *testing.B) {
	for _, parallel := range []int{1, 1000} {
		b.Run(fmt.Sprintf("parallel=%d", parallel), func(b *testing.B) {
			e, err := pebble.Open(b.TempDir(), pebble.Options{})
			if err != nil {
				b.Fatal(err)
			}
			n := startNodeWith(b, e, store.Options{}, 0)
			n.provision("d1", strings.Replace(payments(""), "paymentProcessing payments.payins",
				fmt.Sprintf("paymentProcessing payments.payins { +parallel %d }", parallel), 1))
			messages := make([]store.NewMessage, b.N)
			for i := range messages {
				messages[i] = store.NewMessage{Value: event(i)}
			}
			if _, err := n.database().Append(b.Context(), "payments_payins", messages...); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			r := n.connect("payments", "d1", 1000)
			for range b.N {
				r.succeed(<-r.calls)
			}
			nodetest.Eventually(b, time.Minute, func() bool { return n.status(processing).Lag == 0 }, "all are settled")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
