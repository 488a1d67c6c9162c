package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/ftl/extract"
	"github.com/tidemarkdb/tidemark/internal/deploy"
)

// ftlDeployCommand is tidemark ftl deploy.
type ftlDeployCommand struct {
	ftlDatabase
	Dirs    []string `arg:"" optional:"" default:"." name:"dir" help:"Folders of modules, each with an ftl.toml, or folders above them."`
	To      string   `name:"to" default:"ws://127.0.0.1:7420" help:"Node to deploy to: ws://host:port, or wss://host:port. Of several nodes of one store, separated by commas, the first provisions, and the modules connect to all." placeholder:"URL"`
	Ingress string   `default:"127.0.0.1:8080" help:"Address and port to serve the modules' verbs at."`
}

// Help is the manual of the command.
func (ftlDeployCommand) Help() string {
	return `Builds the modules, has the node provision what their schema declares, and runs
them until it is interrupted, or until another deployment has taken over.

What does not go with what is deployed, or with the events that are there, is
refused before anything is changed. A new deployment takes over when it is
connected; the one before it finishes what it holds, and its ftl deploy ends. The
same build again is the same deployment, of which there are then two processes.

A module's process that dies is started again. An interrupt or SIGTERM lets them
finish what they hold.`
}

// Run deploys and runs the modules.
func (c *ftlDeployCommand) Run(s *surroundings) error {
	modules, err := extractModules(s, c.Dirs)
	if err != nil {
		return err
	}
	keep, err := os.MkdirTemp("", "tidemark-ftl-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(keep) }()
	builds, err := buildModules(s.ctx, modules, keep)
	if err != nil {
		return err
	}
	listener, err := listenOn("--ingress", c.Ingress)
	if err != nil {
		return err
	}
	routes := newRouter()
	defer func() { _ = listener.Close() }()
	if err := routes.serve(extract.SchemaOf(modules).Modules); err != nil {
		return err
	}
	if err := c.provision(s, builds); err != nil {
		return err
	}
	var printing sync.Mutex
	running := newRunners(c.To, c.Database, routes, func(module, line string) {
		printing.Lock()
		defer printing.Unlock()
		fmt.Fprintf(s.errors, "%s | %s\n", module, line)
	})
	defer running.end()
	for _, b := range builds {
		if err := running.start(b); err != nil {
			return err
		}
		// What is built takes requests in a moment: they wait for its first process
		// as for any that follows.
		routes.serves(b.name())
	}
	serving := make(chan error, 1)
	go func() { serving <- routes.server.Serve(listener) }()
	fmt.Fprintf(s.out, "the modules' verbs are served at http://%s\n", listener.Addr())
	err = c.await(s.ctx, running, serving)
	ending, done := context.WithTimeout(context.Background(), endingTime)
	defer done()
	routes.end(ending)
	return err
}

// provision has the node provision builds, and tells what that changed.
func (c *ftlDeployCommand) provision(s *surroundings, builds []build) error {
	text, deployments := textOf(builds)
	first, _, _ := strings.Cut(c.To, ",")
	var changes deploy.Changes
	err := c.ask(s.ctx, first, http.MethodPost, deploy.PathDeploy, deploy.DeployRequest{
		Database: c.Database, Deployments: deployments, Schema: text,
	}, &changes)
	if err != nil {
		return err
	}
	for _, b := range builds {
		fmt.Fprintf(s.out, "module %s: deployment %s\n", b.name(), b.deployment)
	}
	for _, line := range describeChanges(changes) {
		fmt.Fprintln(s.out, line)
	}
	return nil
}

func describeChanges(changes deploy.Changes) []string {
	var lines []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			lines = append(lines, what+": "+strings.Join(names, ", "))
		}
	}
	add("new topics", changes.Topics)
	add("new subscriptions", changes.Subscriptions)
	add("altered", changes.Altered)
	add("kept with their place, though not declared any more", changes.Kept)
	return lines
}

// await waits until there is nothing left to run.
func (c *ftlDeployCommand) await(ctx context.Context, running *runners, serving <-chan error) error {
	ticker := time.NewTicker(supersededEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-serving:
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return err
		case <-ticker.C:
			if running.allSuperseded() {
				return nil
			}
		}
	}
}

// supersededEvery is how often a command looks whether its modules are still
// called.
const supersededEvery = 200 * time.Millisecond
