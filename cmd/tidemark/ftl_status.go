package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tidemarkdb/tidemark/internal/deploy"
)

// ftlStatusCommand is tidemark ftl status.
type ftlStatusCommand struct {
	ftlNode
	JSON bool `help:"Print it as JSON."`
}

// Help is the manual of the command.
func (ftlStatusCommand) Help() string {
	return `Lists the modules that are deployed: their topics with who publishes to them, and
their subscriptions with how many events are not settled, what is in flight and
since when, and the last error.`
}

// Run asks the node and prints what it tells.
func (c *ftlStatusCommand) Run(s *surroundings) error {
	status, err := c.status(s.ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		encoder := json.NewEncoder(s.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(status)
	}
	return printModules(newPrinter(s.out, s.out), status, time.Now())
}

// ftlRetryCommand is tidemark ftl retry.
type ftlRetryCommand struct {
	ftlNode
	Subscription string `arg:"" help:"Subscription, as module.subscription."`
}

// Help is the manual of the command.
func (ftlRetryCommand) Help() string {
	return `Has every event that the subscription has in flight tried again now, from its first
attempt: those that wait for their next attempt, those that are with the catch
verb, and those that a sink has had for too long, which is told to stop.`
}

// Run asks the node for it.
func (c *ftlRetryCommand) Run(s *surroundings) error {
	events, err := c.operate(s, c.Subscription, "retry", "")
	if err == nil {
		fmt.Fprintf(s.out, "%s of %s are tried again\n", countOf(events, "event"), c.Subscription)
	}
	return err
}

// ftlSkipCommand is tidemark ftl skip.
type ftlSkipCommand struct {
	ftlNode
	Subscription string `arg:"" help:"Subscription, as module.subscription."`
}

// Help is the manual of the command.
func (ftlSkipCommand) Help() string {
	return `Gives up on the oldest event that the subscription has in flight, so that the next
one comes. It goes to the dead letter topic, where there is one.`
}

// Run asks the node for it.
func (c *ftlSkipCommand) Run(s *surroundings) error {
	_, err := c.operate(s, c.Subscription, "skip", "")
	if err == nil {
		fmt.Fprintf(s.out, "one event of %s is given up on\n", c.Subscription)
	}
	return err
}

// ftlResetCommand is tidemark ftl reset.
type ftlResetCommand struct {
	ftlNode
	Subscription string `arg:"" help:"Subscription, as module.subscription."`
	To           string `name:"to" default:"beginning" help:"Where it goes on: beginning, latest, or the position of the event that comes next."`
}

// Help is the manual of the command.
func (ftlResetCommand) Help() string {
	return `Moves the subscription to a place in its topic. What it had in flight is forgotten;
events that come again are handled again.`
}

// Run asks the node for it.
func (c *ftlResetCommand) Run(s *surroundings) error {
	events, err := c.operate(s, c.Subscription, "reset", c.To)
	if err == nil {
		fmt.Fprintf(s.out, "%s goes on at %s; %s in flight were forgotten\n", c.Subscription, c.To, countOf(events, "event"))
	}
	return err
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printModules prints what is deployed for people.
func printModules(p *printer, status deploy.Status, now time.Time) error {
	if len(status.Modules) == 0 {
		_, err := fmt.Fprintf(p.out, "no modules are deployed in database %s\n", status.Database)
		return err
	}
	for i, module := range status.Modules {
		if i > 0 {
			fmt.Fprintln(p.out)
		}
		fmt.Fprintln(p.out, describeModule(p, module, now))
		for _, one := range module.Ingress {
			fmt.Fprintf(p.out, "  %s %s is %s\n", one.Method, one.Path, one.Verb)
		}
	}
	fmt.Fprintln(p.out)
	printTopics(p, status)
	printSubscriptions(p, status, now)
	printInFlight(p.out, status, now)
	printFailures(p, status, now)
	return nil
}

func describeModule(p *printer, module deploy.ModuleStatus, now time.Time) string {
	runners := 0
	var nodes []string
	for _, one := range module.Runners {
		runners += one.Runners
		nodes = append(nodes, one.Node)
	}
	line := "module " + p.paint(text.Colors{text.Bold}, module.Module)
	switch {
	case module.Deployment == "":
		return line + ": provisioned, and no runner has come yet"
	case runners == 0:
		return line + ": deployment " + module.Deployment + ", " + p.paint(text.Colors{text.FgRed}, "no runner is connected")
	}
	return fmt.Sprintf("%s: deployment %s for %s, %s on %s", line, module.Deployment, age(now, *module.Since), countOf(runners, "runner"), strings.Join(nodes, ", "))
}

func printTopics(p *printer, status deploy.Status) {
	t := newTable()
	t.AppendHeader(table.Row{"topic", "events", "type", "exported", "published by"})
	for _, module := range status.Modules {
		for _, one := range module.Topics {
			publishers := strings.Join(one.Publishers, ", ")
			if !one.Declared {
				publishers = p.paint(text.Colors{text.FgYellow}, "not declared any more")
			}
			t.AppendRow(table.Row{one.Topic, one.Events, one.Type, yesNo(one.Exported), publishers})
		}
	}
	if t.Length() > 0 {
		fmt.Fprintf(p.out, "%s\n\n", t.Render())
	}
}

func printSubscriptions(p *printer, status deploy.Status, now time.Time) {
	t := newTable()
	t.AppendHeader(table.Row{"subscription", "topic", "taken by", "node", "position", "lag", "in flight", "given up", "lapsed", "last error"})
	for _, module := range status.Modules {
		for _, one := range module.Subscriptions {
			taker := strings.Join(one.Sinks, ", ") + one.Mapper
			switch {
			case !one.Declared:
				taker = p.paint(text.Colors{text.FgYellow}, "not declared any more")
			case taker == "":
				taker = p.paint(text.Colors{text.FgYellow}, "nobody")
			}
			node := one.Node
			if node == "" {
				node = "-"
			}
			failed := "-"
			if one.LastError != nil {
				failed = age(now, one.LastError.At) + " ago"
			}
			t.AppendRow(table.Row{one.Subscription, one.Topic, taker, node, one.Position, one.Lag, one.InFlightCount, one.GivenUp, one.Lapsed, failed})
		}
	}
	if t.Length() > 0 {
		fmt.Fprintln(p.out, t.Render())
	}
}

// printInFlight prints a line an event that is being handled or waits.
func printInFlight(out io.Writer, status deploy.Status, now time.Time) {
	for _, module := range status.Modules {
		for _, one := range module.Subscriptions {
			for _, event := range one.InFlight {
				what := fmt.Sprintf("with %s for %s, attempt %d", event.Verb, age(now, event.Since), event.Attempt)
				if event.Until != nil {
					what = fmt.Sprintf("tried again in %s, after attempt %d of %s", age(*event.Until, now), event.Attempt, event.Verb)
				}
				fmt.Fprintf(out, "%s: event %d is %s\n", one.Subscription, event.Position, what)
			}
			if more := one.InFlightCount - len(one.InFlight); more > 0 {
				fmt.Fprintf(out, "%s: %d more are in flight\n", one.Subscription, more)
			}
		}
	}
}

func printFailures(p *printer, status deploy.Status, now time.Time) {
	for _, module := range status.Modules {
		for _, one := range module.Subscriptions {
			last := one.LastError
			if last == nil {
				continue
			}
			became := "failed"
			if last.GivenUp {
				became = "was given up on"
			}
			first, _, _ := strings.Cut(last.Error, "\n")
			fmt.Fprintf(p.out, "%s: event %d %s %s ago at attempt %d of %s: %s\n", one.Subscription, last.Position, became,
				age(now, last.At), last.Attempt, last.Verb, p.paint(text.Colors{text.FgRed}, first))
		}
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// age is how long ago something was, in the two largest units.
func age(now, then time.Time) string {
	d := max(now.Sub(then), 0)
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
