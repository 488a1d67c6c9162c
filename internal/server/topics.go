package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/internal/store"
)

// topicCollector tells at every scrape what INFO FOR TOPIC tells of the topics:
// the figures come from the same state, so they cannot drift from it.
type topicCollector struct{ server *Server }

// The bounds of a scrape. Every topic, reader and group is a time series, and
// no monitor takes any number of those.
const (
	maxScrapedTopics = 1000
	scrapeTime       = 5 * time.Second
)

var (
	topicLabels  = []string{"namespace", "database", "topic"}
	readerLabels = append(append([]string{}, topicLabels...), "reader")
	groupLabels  = append(append([]string{}, topicLabels...), "group")

	topicMessages     = prometheus.NewDesc("tidemark_topic_messages", "Messages that the topic holds.", topicLabels, nil)
	topicLast         = prometheus.NewDesc("tidemark_topic_last_position", "The last position that the topic gave: how much was ever appended.", topicLabels, nil)
	readerLag         = prometheus.NewDesc("tidemark_reader_lag", "Messages between a reader's place and the topic's last.", readerLabels, nil)
	groupLag          = prometheus.NewDesc("tidemark_group_lag", "Messages between what a group has settled and the topic's last.", groupLabels, nil)
	groupInFlight     = prometheus.NewDesc("tidemark_group_in_flight", "Messages that a group has handed out and not settled.", groupLabels, nil)
	groupRedelivered  = prometheus.NewDesc("tidemark_group_redelivered_total", "Messages that a group handed out again.", groupLabels, nil)
	groupDeadLettered = prometheus.NewDesc("tidemark_group_dead_lettered_total", "Messages that a group gave up on.", groupLabels, nil)
	groupRefused      = prometheus.NewDesc("tidemark_group_dead_letter_refused_total", "Messages given up on that the dead letter topic did not take.", groupLabels, nil)
)

// Describe tells the metrics that there are.
func (c *topicCollector) Describe(told chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{topicMessages, topicLast, readerLag, groupLag, groupInFlight, groupRedelivered, groupDeadLettered, groupRefused} {
		told <- desc
	}
}

// Collect tells the figures of the first topics by name. What cannot be read
// is left out and logged.
func (c *topicCollector) Collect(told chan<- prometheus.Metric) {
	ctx, done := context.WithTimeout(c.server.running, scrapeTime)
	defer done()
	left := maxScrapedTopics
	err := c.eachDatabase(ctx, func(database *store.Database) error {
		return collectDatabase(ctx, database, told, &left)
	})
	if err != nil {
		c.server.log.Warn("the figures of the topics cannot be read whole", slog.Any("error", err))
	}
}

func (c *topicCollector) eachDatabase(ctx context.Context, visit func(*store.Database) error) error {
	s := c.server.store
	namespaces, err := s.Namespaces(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		names, err := s.Databases(ctx, namespace)
		if err != nil {
			return err
		}
		for _, name := range names {
			database, err := s.Database(ctx, namespace, name)
			if err != nil {
				return err
			}
			if err := visit(database); err != nil {
				return err
			}
		}
	}
	return nil
}

func collectDatabase(ctx context.Context, database *store.Database, told chan<- prometheus.Metric, left *int) error {
	tx, err := database.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Cancel()
	for _, table := range tx.Catalog().Tables() {
		if table.Kind != store.Topic || *left == 0 {
			continue
		}
		*left--
		report, err := tx.ReportTopic(ctx, table)
		if err != nil {
			return err
		}
		collectTopic(database, report, told)
	}
	return nil
}

func collectTopic(database *store.Database, report store.TopicReport, told chan<- prometheus.Metric) {
	tell := func(desc *prometheus.Desc, kind prometheus.ValueType, n uint64, who ...string) {
		labels := append([]string{database.Namespace, database.Name, report.Table.Name}, who...)
		told <- prometheus.MustNewConstMetric(desc, kind, float64(n), labels...)
	}
	tell(topicMessages, prometheus.GaugeValue, report.Messages)
	tell(topicLast, prometheus.CounterValue, uint64(report.Last))
	for name, reader := range report.Readers {
		tell(readerLag, prometheus.GaugeValue, reader.Lag, name)
	}
	for name, group := range report.Groups {
		tell(groupLag, prometheus.GaugeValue, group.Lag, name)
		tell(groupInFlight, prometheus.GaugeValue, group.InFlight, name)
		tell(groupRedelivered, prometheus.CounterValue, group.Redelivered, name)
		tell(groupDeadLettered, prometheus.CounterValue, group.DeadLettered, name)
		tell(groupRefused, prometheus.CounterValue, group.DeadLetterRefused, name)
	}
}
