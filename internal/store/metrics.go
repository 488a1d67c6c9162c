package store

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/fault"
)

// metrics are what the committers of a store measure of themselves. They cost
// a few counters a commit, nothing a message.
type metrics struct {
	commits   *prometheus.CounterVec
	requests  prometheus.Histogram
	durable   prometheus.Histogram
	appended  prometheus.Counter
	conflicts prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_commits_total",
			Help: "Commits of this node's committers, by outcome: durable, or failed, which the log explains.",
		}, []string{"outcome"}),
		requests: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tidemark_commit_requests",
			Help:    "Transactions and lone statements that share a commit, and so a sync.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		durable: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tidemark_commit_sync_seconds",
			Help:    "Time from when a commit is formed until it is durable: the write and its sync, or PostgreSQL's COMMIT.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12),
		}),
		appended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_appends_total",
			Help: "Messages that this node's commits appended to topics.",
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_conflicts_total",
			Help: "Transactions that lost to another at their commit, those that were then run again among them.",
		}),
	}
}

// Collectors are the store's metrics, for whoever serves them.
func (s *Store) Collectors() []prometheus.Collector {
	m := s.metrics
	return []prometheus.Collector{m.commits, m.requests, m.durable, m.appended, m.conflicts}
}

// committed counts a commit that is durable, formed at a time out of requests
// with these outcomes.
func (m *metrics) committed(formed time.Time, appended int, outcomes []error) {
	if len(outcomes) == 0 {
		return // Another committer took what waited.
	}
	m.commits.WithLabelValues("durable").Inc()
	m.requests.Observe(float64(len(outcomes)))
	m.durable.Observe(time.Since(formed).Seconds())
	m.appended.Add(float64(appended))
	for _, err := range outcomes {
		if err != nil && errors.Is(err, fault.Conflict) {
			m.conflicts.Inc()
		}
	}
}

// failed counts a commit that is not.
func (m *metrics) failed() { m.commits.WithLabelValues("failed").Inc() }
