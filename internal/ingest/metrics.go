package ingest

import "github.com/prometheus/client_golang/prometheus"

// The metrics of declared consumers, as this node runs them: a consumer that
// runs elsewhere has none here. The lag of a topic consumer is that of its
// group.
var (
	consumerLabels = []string{"namespace", "database", "kind", "consumer"}

	consumerRunning     = prometheus.NewDesc("tidemark_consumer_running", "1 where this node runs a declared consumer, 0 where it halted at a message.", consumerLabels, nil)
	consumerApplied     = prometheus.NewDesc("tidemark_consumer_applied_total", "Messages that a declared consumer applied on this node.", consumerLabels, nil)
	consumerQuarantined = prometheus.NewDesc("tidemark_consumer_quarantined_total", "Messages that a declared consumer put aside on this node.", consumerLabels, nil)
	consumerLapsed      = prometheus.NewDesc("tidemark_consumer_lapsed_total", "Messages that were gone before a declared consumer could read them.", consumerLabels, nil)
	consumerLag         = prometheus.NewDesc("tidemark_kafka_consumer_lag", "Messages of the partitions that this node reads which are not applied yet.", consumerLabels, nil)
)

var _ prometheus.Collector = (*Supervisor)(nil)

// Describe tells the metrics that there are.
func (sv *Supervisor) Describe(told chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{consumerRunning, consumerApplied, consumerQuarantined, consumerLapsed, consumerLag} {
		told <- desc
	}
}

// Collect tells the figures of what runs here: the same that INFO tells.
func (sv *Supervisor) Collect(told chan<- prometheus.Metric) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for key, c := range sv.consumers {
		p := c.snapshot()
		tell := func(desc *prometheus.Desc, kind prometheus.ValueType, n int64) {
			told <- prometheus.MustNewConstMetric(desc, kind, float64(n), key.database.Namespace, key.database.Name, string(key.kind), key.name)
		}
		running, lapsed := int64(1), int64(0)
		if p.halted {
			running = 0
		}
		for _, n := range p.lapsed {
			lapsed += n
		}
		tell(consumerRunning, prometheus.GaugeValue, running)
		tell(consumerApplied, prometheus.CounterValue, p.applied)
		tell(consumerQuarantined, prometheus.CounterValue, p.quarantined)
		tell(consumerLapsed, prometheus.CounterValue, lapsed)
		if len(p.ends) > 0 {
			tell(consumerLag, prometheus.GaugeValue, p.lag())
		}
	}
}
