package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/value"
)

// ingestCommand is tidemark ingest.
type ingestCommand struct {
	Status ingestStatusCommand `cmd:"" help:"Show the declared consumers of a node: what runs, how far it is, and what went wrong."`
}

// ingestStatusCommand is tidemark ingest status.
type ingestStatusCommand struct {
	URL      string `name:"url" default:"ws://127.0.0.1:7420" help:"Node to ask: ws://host:port, or wss://host:port." placeholder:"URL"`
	User     string `env:"TIDEMARK_USER" help:"User who signs in on the node, with the password in TIDEMARK_PASSWORD; at a terminal it is asked for. A token in TIDEMARK_TOKEN signs in instead." placeholder:"NAME"`
	Database string `help:"Only the consumers of this database, as namespace/database." placeholder:"NAME"`
}

// Help is the manual of the command.
func (ingestStatusCommand) Help() string {
	return `Lists the consumers that are declared, with what the node runs of them. What
another node runs it does not know: ask that one.

Exit status: 0, or 1 when one of them halted at a message.`
}

// Run asks the node and prints what it tells.
func (c *ingestStatusCommand) Run(s *surroundings) error {
	signIn, err := anySource{URL: c.URL, User: c.User, Use: c.Database}.signIn(s)
	if err != nil {
		return err
	}
	session, err := client.Dial(s.ctx, c.URL, signIn)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	reports, err := consumersOf(s.ctx, session, c.Database)
	if err != nil {
		return err
	}
	if len(reports) == 0 {
		_, err := fmt.Fprintln(s.out, "no consumers are declared")
		return err
	}
	newPrinter(s.out, s.out).printConsumers(reports)
	for _, report := range reports {
		if report.Running.Halted {
			return exit(1)
		}
	}
	return nil
}

// consumerReport is what INFO tells of a consumer.
type consumerReport struct {
	database, kind string

	Declared struct {
		Consumer string `json:"consumer"`
		From     string `json:"from"`
		Topic    string `json:"topic"`
		Into     string `json:"into"`
	} `json:"declared"`
	// Running is zero where the node does not run it.
	Running struct {
		Running     bool       `json:"running"`
		Halted      bool       `json:"halted"`
		Applied     int64      `json:"applied"`
		Quarantined int64      `json:"quarantined"`
		Rate        float64    `json:"rate"`
		Lag         int64      `json:"lag"`
		LastError   *string    `json:"last_error"`
		LastErrorAt *time.Time `json:"last_error_at"`
	} `json:"running"`
}

// consumersOf asks a node about every consumer of one database, or of all.
func consumersOf(ctx context.Context, session *client.Session, only string) ([]consumerReport, error) {
	databases, err := databasesOf(ctx, session, only)
	if err != nil {
		return nil, err
	}
	var reports []consumerReport
	for _, database := range databases {
		namespace, name, _ := strings.Cut(database, "/")
		use := fmt.Sprintf("USE NAMESPACE %s; USE DATABASE %s;", value.QuoteIdentifier(namespace), value.QuoteIdentifier(name))
		if err := ask(ctx, session, use, nil); err != nil {
			return nil, err
		}
		for _, kind := range []string{"topic", "kafka"} {
			var listed []struct {
				Consumer string `json:"consumer"`
			}
			if err := ask(ctx, session, fmt.Sprintf("INFO FOR %s CONSUMERS;", kind), &listed); err != nil {
				return nil, err
			}
			for _, one := range listed {
				report := consumerReport{database: database, kind: kind}
				if err := ask(ctx, session, fmt.Sprintf("INFO FOR %s CONSUMER %s;", kind, value.QuoteIdentifier(one.Consumer)), &report); err != nil {
					return nil, err
				}
				reports = append(reports, report)
			}
		}
	}
	return reports, nil
}

// databasesOf are the databases of a node as namespace/database, or the one
// that was named.
func databasesOf(ctx context.Context, session *client.Session, only string) ([]string, error) {
	if only != "" {
		if !strings.Contains(only, "/") {
			return nil, fmt.Errorf("--database takes namespace/database, not %q", only)
		}
		return []string{only}, nil
	}
	var store struct {
		Namespaces []string `json:"namespaces"`
	}
	if err := ask(ctx, session, "INFO FOR STORE;", &store); err != nil {
		return nil, err
	}
	var databases []string
	for _, namespace := range store.Namespaces {
		var info struct {
			Databases []string `json:"databases"`
		}
		if err := ask(ctx, session, fmt.Sprintf("USE NAMESPACE %s; INFO FOR NAMESPACE;", value.QuoteIdentifier(namespace)), &info); err != nil {
			return nil, err
		}
		for _, database := range info.Databases {
			databases = append(databases, namespace+"/"+database)
		}
	}
	return databases, nil
}

// ask runs statements and scans the answer of the last into dst, unless that is
// nil.
func ask(ctx context.Context, session *client.Session, statements string, dst any) error {
	answers, err := session.Run(ctx, statements, nil)
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if answer.Err != nil {
			return answer.Err
		}
	}
	if dst == nil {
		return nil
	}
	return answers[len(answers)-1].Value.Scan(dst)
}

// printConsumers prints a line a consumer, and under them what went wrong last.
func (p *printer) printConsumers(reports []consumerReport) {
	t := newTable()
	t.AppendHeader(table.Row{"consumer", "database", "kind", "from", "into", "state", "applied", "rate", "lag", "quarantined"})
	for _, report := range reports {
		running := report.Running
		state := p.paint(text.Colors{text.FgGreen}, "running")
		switch {
		case running.Halted:
			state = p.paint(text.Colors{text.FgRed}, "halted")
		case !running.Running:
			state = p.paint(text.Colors{text.FgYellow}, "not here")
		}
		t.AppendRow(table.Row{
			report.Declared.Consumer, report.database, report.kind, report.Declared.From + report.Declared.Topic, report.Declared.Into,
			state, running.Applied, fmt.Sprintf("%.1f/s", running.Rate), running.Lag, running.Quarantined,
		})
	}
	fmt.Fprintln(p.out, t.Render())
	for _, report := range reports {
		if failure := report.Running.LastError; failure != nil {
			at := ""
			if when := report.Running.LastErrorAt; when != nil {
				at = " at " + when.Format(time.RFC3339)
			}
			fmt.Fprintf(p.out, "%s of %s: last error%s: %s\n", report.Declared.Consumer, report.database, at, p.paint(text.Colors{text.FgRed}, *failure))
		}
	}
}
