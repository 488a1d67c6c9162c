package server

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
)

// metrics are what the server measures of itself, and at every scrape what
// INFO tells of topics.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	// webSocket is requests' observer of that surface.
	webSocket  prometheus.Observer
	statements *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	pushed     prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		registry: s.options.Registry,
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tidemark_request_seconds",
			Help:    "Time from the beginning of a request to its answer, by surface: http or websocket.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 3, 12),
		}, []string{"surface"}),
		statements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_statements_total",
			Help: "Statements that were answered, by the word that begins them and the outcome: ok, or the kind of the error.",
		}, []string{"statement", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_refusals_total",
			Help: "What was refused or cut off as a whole, by reason: sessions, request_bytes, request_memory, statements, read_time, write_time, ping, transaction_idle, draining, names, syntax, host, sign_in, sign_in_attempts, broken, internal.",
		}, []string{"reason"}),
		pushed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_pushed_messages_total",
			Help: "Messages that FOLLOW pushed.",
		}),
	}
	m.webSocket = m.requests.WithLabelValues("websocket")
	m.registry.MustRegister(m.requests, m.statements, m.refusals, m.pushed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidemark_sessions",
			Help: "Sessions that are open: WebSockets, and HTTP requests while they run.",
		}, func() float64 { return float64(s.gate.sessionCount()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidemark_waiting_reads",
			Help: "Reads that wait: READ … WAIT and FOLLOW.",
		}, func() float64 { return float64(s.waiting.Count()) }),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&topicCollector{server: s},
	)
	m.registry.MustRegister(s.store.Collectors()...)
	m.registry.MustRegister(s.options.Collectors...)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}

// requested counts a request that was answered.
func (m *metrics) requested(surface string, took time.Duration) {
	m.requests.WithLabelValues(surface).Observe(took.Seconds())
}

// count counts a statement of a script.
func (m *metrics) count(script *lang.Script, statement lang.Statement, answer session.Answer) {
	outcome := succeeded
	if answer.Err != nil {
		outcome = string(answer.Err.Kind)
	}
	m.counter(script, statement, outcome).Inc()
}

// succeeded is the outcome of a statement without an error.
const succeeded = "ok"

func (m *metrics) counter(script *lang.Script, statement lang.Statement, outcome string) prometheus.Counter {
	return m.statements.WithLabelValues(firstWord(script.Source[statement.Span().Start:]), outcome)
}

// firstWord is the word that a statement begins with, of which there are few.
func firstWord(text string) string {
	end := 0
	for end < len(text) && isLetter(text[end]) {
		end++
	}
	return strings.ToUpper(text[:end])
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// refused counts what was refused as a whole.
func (m *metrics) refused(why string) { m.refusals.WithLabelValues(why).Inc() }
