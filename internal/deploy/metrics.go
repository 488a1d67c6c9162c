package deploy

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the modules of a node. A subscription is named module.subscription;
// there are as many as are deployed.
type metrics struct {
	// events are those that left a runner, by outcome: done, failed (it is tried
	// again), given_up, and released (its verb did not run).
	events *prometheus.CounterVec
	// calls is how long verbs took.
	calls *prometheus.HistogramVec
	// runners are those connected, by module.
	runners *prometheus.GaugeVec
}

func newMetrics() *metrics {
	return &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_ftl_events_total", Help: "Events that this node dispatched, by subscription and outcome: done, failed, given_up, released.",
		}, []string{"subscription", "outcome"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidemark_ftl_call_seconds", Help: "How long the verb of a subscription took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"subscription"}),
		runners: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidemark_ftl_runners", Help: "Runners that are connected to this node, by module.",
		}, []string{"module"}),
	}
}

func (m *metrics) event(subscription, outcome string) {
	m.events.WithLabelValues(subscription, outcome).Inc()
}

// Describe and Collect make a Host a collector of its metrics.
func (h *Host) Describe(ch chan<- *prometheus.Desc) {
	h.metrics.events.Describe(ch)
	h.metrics.calls.Describe(ch)
	h.metrics.runners.Describe(ch)
}

// Collect tells the metrics.
func (h *Host) Collect(ch chan<- prometheus.Metric) {
	h.metrics.events.Collect(ch)
	h.metrics.calls.Collect(ch)
	h.metrics.runners.Collect(ch)
}
