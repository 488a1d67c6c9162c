// Command bench measures Tidemark beside its references, each pair in the same
// run on the same machine, since machines are noisy and only a ratio of two
// neighbours says anything.
//
// It is a Go module of its own, so that what Tidemark is compared with never
// enters its users' dependencies.
//
//	go -C bench run .            a table
//	go -C bench run . --json     one JSON object a row
//	go -C bench run . --quick    ends within 45 seconds
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"
)

var flags struct {
	JSON  bool   `help:"Print one JSON object a row."`
	Quick bool   `help:"Measure each row for a moment only; ends within 45 seconds."`
	Only  string `help:"Measure only rows whose name contains this."`
}

// row is one measurement beside its reference.
type row struct {
	Name      string  `json:"name"`
	Tidemark  float64 `json:"tidemark"`
	Reference float64 `json:"reference"`
	Ratio     float64 `json:"ratio"`
	Unit      string  `json:"unit"`
	P50       string  `json:"p50"`
	P99       string  `json:"p99"`
}

// result is what one side of a row measured.
type result struct {
	perSecond float64
	latencies latencies
}

// benchmark is a row to measure: Tidemark, and the reference beside it.
type benchmark struct {
	name      string
	unit      string
	tidemark  func(duration time.Duration) (result, error)
	reference func(duration time.Duration) (result, error)
}

func main() {
	kong.Parse(&flags, kong.Name("bench"), kong.Description("Measure Tidemark beside its references."))
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	duration := 3 * time.Second
	if flags.Quick {
		duration = 400 * time.Millisecond
	}
	var rows []row
	for _, b := range benchmarks() {
		if !strings.Contains(b.name, flags.Only) {
			continue
		}
		measured, err := measure(b, duration)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		rows = append(rows, measured)
		if flags.JSON {
			if err := json.NewEncoder(os.Stdout).Encode(measured); err != nil {
				return err
			}
		}
	}
	if flags.JSON {
		return nil
	}
	return printTable(rows)
}

func measure(b benchmark, duration time.Duration) (row, error) {
	ours, err := b.tidemark(duration)
	if err != nil {
		return row{}, err
	}
	measured := row{
		Name: b.name, Tidemark: ours.perSecond, Unit: b.unit,
		P50: ours.latencies.quantile(0.5), P99: ours.latencies.quantile(0.99),
	}
	if b.reference == nil {
		return measured, nil
	}
	theirs, err := b.reference(duration)
	if err != nil {
		return row{}, fmt.Errorf("reference: %w", err)
	}
	measured.Reference = theirs.perSecond
	measured.Ratio = ours.perSecond / theirs.perSecond
	return measured, nil
}

func printTable(rows []row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "name\ttidemark\treference\tratio\tunit\tp50\tp99\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.2f\t%s\t%s\t%s\t\n", r.Name, r.Tidemark, r.Reference, r.Ratio, r.Unit, r.P50, r.P99)
	}
	return w.Flush()
}

func benchmarks() []benchmark {
	var all []benchmark
	for _, size := range []int{128, 1024} {
		for _, outstanding := range []int{1, 64, 512, 4096} {
			all = append(all, appendBenchmarks(size, outstanding)...)
		}
	}
	all = append(all, consumeBenchmarks()...)
	all = append(all, readBenchmarks()...)
	all = append(all, groupBenchmarks()...)
	return append(all, wireBenchmarks()...)
}
