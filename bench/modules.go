package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/load"
)

// Rows of modules measure from a verb's Publish to the end of the sink that
// takes the event, with everything as it is in use: a node as a process, with a
// sync before every answer, and the module in bench/meter, which tidemark ftl
// deploy builds and runs as another. In the rows of events a second as many
// goroutines as modulePublishers publish, each the next event when the one before
// is on the disk; the clock stops when the last one is handled. In those of
// latency events are published at a pace, and the number is the p99 in
// microseconds, of which less is better.
//
// The references do the same, with the same load and the same clocks (package
// load), in the benchmark's own process.

const (
	// modulePublishers is how many publish at once, unless moduleBacklog events
	// wait to be handled.
	modulePublishers = 256
	moduleBacklog    = 4096
)

// latencyTime is for how long events are published at a pace.
const latencyTime = 5 * time.Second

// manySubscriptions is how many take every event in the rows of many.
const manySubscriptions = 64

// moduleLoad is what is published, and who takes it.
type moduleLoad struct {
	// topic is one of the module's: parallel, ordered or many.
	topic string
	// subscriptions take every event, each once, one after the other if inOrder.
	subscriptions int
	inOrder       bool
	plan          load.Plan
}

// The loads of the rows.
func parallelLoad() moduleLoad { return moduleLoad{topic: "parallel", subscriptions: 1} }
func orderedLoad() moduleLoad  { return moduleLoad{topic: "ordered", subscriptions: 1, inOrder: true} }
func manyLoad() moduleLoad     { return moduleLoad{topic: "many", subscriptions: manySubscriptions} }

// atFull is the load as fast as the publishers can, publishing for as long as d.
func (l moduleLoad) atFull(d time.Duration) moduleLoad {
	l.plan = load.Plan{
		Publishers: modulePublishers, Backlog: moduleBacklog, Subscriptions: l.subscriptions, Milliseconds: int(d.Milliseconds()),
	}
	return l
}

// at is the load at a pace.
func (l moduleLoad) at(perSecond int, d time.Duration) moduleLoad {
	if !flags.Quick {
		d = latencyTime
	}
	l.plan = load.Plan{PerSecond: perSecond, Milliseconds: int(d.Milliseconds())}
	return l
}

// modulesBenchmarks are the rows of a store on disk, beside a stream that syncs
// and beside what keeps nothing at all.
func modulesBenchmarks() []benchmark {
	return append(
		modulesBeside("modules", modulesOnDisk, "JetStream's consumer loop, sync always", carryJetStream),
		modulesBeside("modules", modulesOnDisk, "Watermill's router on Go channels", carryChannels)...)
}

// modulesOnPostgresBenchmarks are the rows beside Watermill on the PostgreSQL of
// the run: of a store on disk, and of one on the same PostgreSQL.
func modulesOnPostgresBenchmarks() []benchmark {
	return append(
		modulesBeside("postgres: modules on it", modulesOnPostgres, "Watermill's router on it", carryWatermillSQL),
		modulesBeside("postgres: modules on disk", modulesOnDisk, "Watermill's router on it", carryWatermillSQL)...)
}

// modulesBeside are the rows of one store beside one reference.
func modulesBeside(prefix string, ours side, name string, theirs side) (rows []benchmark) {
	for _, row := range []struct {
		name string
		load moduleLoad
		// pace is how many events are published a second for a latency: as many as
		// all that are compared can bear.
		pace int
	}{
		{"1 parallel subscription", parallelLoad(), 1000},
		{"1 subscription in order", orderedLoad(), 500},
		{"64 subscriptions", manyLoad(), 50},
	} {
		rows = append(rows, benchmark{
			name: fmt.Sprintf("%s: %s, beside %s", prefix, row.name, name), unit: "events/s",
			tidemark: throughput(ours, row.load), reference: throughput(theirs, row.load),
		}, benchmark{
			name: fmt.Sprintf("%s: %s, %d published a second, beside %s", prefix, row.name, row.pace, name), unit: "µs p99",
			tidemark: latency(ours, row.load, row.pace), reference: latency(theirs, row.load, row.pace),
		})
	}
	return rows
}

// side is what carries a load: Tidemark or a reference.
type side func(moduleLoad) (load.Report, error)

// throughput measures a load as fast as a side carries it, latency at a pace.
func throughput(of side, l moduleLoad) func(time.Duration) (result, error) {
	return func(d time.Duration) (result, error) {
		report, err := of(l.atFull(d))
		return result{perSecond: report.PerSecond, latencies: percentiles(report)}, err
	}
}

func latency(of side, l moduleLoad, perSecond int) func(time.Duration) (result, error) {
	return func(d time.Duration) (result, error) {
		report, err := of(l.at(perSecond, d))
		return p99Of(report), err
	}
}

// p99Of is the result of a row of latencies.
func p99Of(r load.Report) result {
	if len(r.Percentiles) == 0 {
		return result{}
	}
	return result{perSecond: float64(r.Percentiles[99]), latencies: percentiles(r)}
}

// percentiles are the samples that a row's quantiles are taken of.
func percentiles(r load.Report) (samples latencies) {
	for _, microseconds := range r.Percentiles {
		samples.add(time.Duration(microseconds) * time.Microsecond)
	}
	return samples
}

// stallTime is how long no event may be handled before a row is given up on.
const stallTime = 20 * time.Second

// awaitHandled waits until so many events were handled.
func awaitHandled(want int, handled func() (int, error)) error {
	last, since := -1, time.Now()
	for {
		count, err := handled()
		if err != nil || count >= want {
			return err
		}
		if count != last {
			last, since = count, time.Now()
		}
		if time.Since(since) > stallTime {
			return fmt.Errorf("of %d events %d were handled, and no more for %s", want, count, stallTime)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// carried runs a load on a side that records in this process, and waits until
// every subscription has handled every event.
func carried(l moduleLoad, recorder *load.Recorder, publish func(ctx context.Context, stamp int64) error) (load.Report, error) {
	published, err := l.plan.Run(context.Background(), recorder, publish)
	if err == nil {
		err = awaitHandled(published*l.subscriptions, func() (int, error) { return recorder.HandledCount(), nil })
	}
	return recorder.Report(), err
}

// modulesOnDisk carries a load by the module on a node with a store on disk.
func modulesOnDisk(l moduleLoad) (load.Report, error) {
	dir, err := os.MkdirTemp("", "tidemark-bench-")
	if err != nil {
		return load.Report{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return byModule(l, "--data", dir)
}

// modulesOnPostgres carries a load by the module on a node with a store on the
// PostgreSQL of the run, in a database of its own.
func modulesOnPostgres(l moduleLoad) (report load.Report, err error) {
	address, drop, err := onPostgres.database(context.Background())
	if err != nil {
		return report, err
	}
	defer drop()
	return byModule(l, "--postgres", address)
}

// byModule starts a node and the module, has the module publish, and waits until
// its sinks have handled everything.
func byModule(l moduleLoad, store ...string) (report load.Report, err error) {
	dir, err := os.MkdirTemp("", "tidemark-bench-")
	if err != nil {
		return report, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, err := buildTidemark(dir)
	if err != nil {
		return report, err
	}
	module, err := writeMeter(l)
	if err != nil {
		return report, err
	}
	defer func() { _ = os.RemoveAll(module) }()
	node, err := startProcess(binary, "listens on ", append([]string{"serve", "--listen", "127.0.0.1:0", "--log-level", "ERROR"}, store...)...)
	if err != nil {
		return report, err
	}
	defer node.end()
	deployed, err := startProcess(binary, "verbs are served at ", "ftl", "deploy", "--to", "ws"+strings.TrimPrefix(node.said, "http"), "--ingress", "127.0.0.1:0", module)
	if err != nil {
		return report, err
	}
	defer deployed.end()
	return publishes(l, deployed.said)
}

// publishes has the module at an address publish a load, and waits for the end.
func publishes(l moduleLoad, ingress string) (report load.Report, err error) {
	// A first few events, so that everything is connected.
	for _, plan := range []load.Plan{{Publishers: 4, Backlog: 100, Subscriptions: l.subscriptions, Milliseconds: 500}, l.plan} {
		var published, handled struct{ Events int }
		order := map[string]any{"topic": l.topic, "plan": plan}
		if err := askModule(http.MethodPost, ingress+"/publish", order, &published); err != nil {
			return report, err
		}
		err := awaitHandled(published.Events*l.subscriptions, func() (int, error) {
			err := askModule(http.MethodGet, ingress+"/handled", nil, &handled)
			return handled.Events, err
		})
		if err != nil {
			return report, err
		}
	}
	return report, askModule(http.MethodGet, ingress+"/report", nil, &report)
}

// askModule calls a verb over HTTP. While the module's process is starting it
// asks again.
func askModule(method, url string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if request == nil {
		body = nil
	}
	client := &http.Client{Timeout: time.Minute}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		asked, err := http.NewRequest(method, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		asked.Header.Set("Content-Type", "application/json")
		response, err := client.Do(asked)
		if err != nil {
			return err
		}
		said, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		switch {
		case err != nil:
			return err
		case response.StatusCode == http.StatusOK:
			return json.Unmarshal(said, answer)
		case response.StatusCode != http.StatusServiceUnavailable && response.StatusCode != http.StatusBadGateway || time.Since(began) > stallTime:
			return fmt.Errorf("%s %s answers %s: %s", method, url, response.Status, said)
		}
	}
}

// writeMeter writes the module of bench/meter into a folder of its own, with the
// subscriptions that a load is for.
func writeMeter(l moduleLoad) (dir string, err error) {
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("testdata", "meter-"); err != nil {
		return "", err
	}
	for _, name := range []string{"ftl.toml", "meter.go"} {
		text, err := os.ReadFile(filepath.Join("meter", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			return dir, err
		}
	}
	if l.topic != "many" {
		return dir, nil
	}
	text := bytes.NewBufferString("package meter\n\nimport (\n\t\"context\"\n\n\t\"github.com/tidemarkdb/tidemark/ftl\"\n)\n")
	for n := range l.subscriptions {
		fmt.Fprintf(text, `
var many%[1]d = ftl.RegisterSubscription(many, "many%[1]d", ftl.Parallel(64))

//ftl:subscribe many%[1]d
func TakeMany%[1]d(_ context.Context, event Event) error { return take(event) }
`, n)
	}
	return dir, os.WriteFile(filepath.Join(dir, "many.go"), text.Bytes(), 0o644)
}
