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
//	go -C bench run . --postgres the engine for many processes, on a PostgreSQL
//	                             that it starts, beside Watermill and River
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"
)

var flags struct {
	JSON  bool   `help:"Print one JSON object a row."`
	Quick bool   `help:"Measure each row for a moment only; ends within 45 seconds."`
	Only  string `help:"Measure only rows whose name contains this."`

	Rounds int `help:"Measure both sides of a row this often, in turns, and tell the medians." default:"1"`

	Postgres bool          `help:"Measure the engine on PostgreSQL instead, on a server that is started for it."`
	Hold     time.Duration `help:"How long a foreign transaction is held open before what it does is measured." default:"60s"`
}

// quietLog drops what a store or a reference has to say.
var quietLog = slog.New(slog.DiscardHandler)

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
	// perSecond is what the row compares: so many a second, or what its unit says.
	perSecond float64
	latencies latencies
}

// benchmark is a row to measure: Tidemark, and the reference beside it.
type benchmark struct {
	name      string
	unit      string
	tidemark  func(duration time.Duration) (result, error)
	reference func(duration time.Duration) (result, error)
	// both, instead of the two, measures them in turns.
	both func(duration time.Duration) (ours, theirs result, err error)
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
		flags.Hold = min(flags.Hold, 2*time.Second)
	}
	all := benchmarks()
	if flags.Postgres {
		stop, err := startPostgres(context.Background())
		if err != nil {
			return err
		}
		defer stop()
		all = postgresBenchmarks()
	}
	var rows []row
	for _, b := range all {
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

// measure measures a row: with --rounds, each side that often in turns, of which
// the medians are told.
func measure(b benchmark, duration time.Duration) (row, error) {
	if b.both != nil {
		ours, theirs, err := b.both(duration)
		return rowOf(b, []result{ours}, []result{theirs}), err
	}
	var ours, theirs []result
	for range max(1, flags.Rounds) {
		r, err := b.tidemark(duration)
		if err != nil {
			return row{}, err
		}
		ours = append(ours, r)
		if b.reference == nil {
			continue
		}
		if r, err = b.reference(duration); err != nil {
			return row{}, fmt.Errorf("reference: %w", err)
		}
		theirs = append(theirs, r)
	}
	return rowOf(b, ours, theirs), nil
}

func rowOf(b benchmark, ours, theirs []result) row {
	middle := median(ours)
	measured := row{
		Name: b.name, Tidemark: middle.perSecond, Unit: b.unit,
		P50: middle.latencies.quantile(0.5), P99: middle.latencies.quantile(0.99),
	}
	if len(theirs) > 0 {
		measured.Reference = median(theirs).perSecond
		measured.Ratio = measured.Tidemark / measured.Reference
	}
	return measured
}

func median(results []result) result {
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.perSecond, b.perSecond) })
	return results[len(results)/2]
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
	all = append(all, wireBenchmarks()...)
	all = append(all, modulesBenchmarks()...)
	return append(all, ingestBenchmarks()...)
}
