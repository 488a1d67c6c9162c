package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/ftl/extract"
	"github.com/tidemarkdb/tidemark/internal/deploy"
	"github.com/tidemarkdb/tidemark/internal/server"
)

// ftlDevCommand is tidemark ftl dev.
type ftlDevCommand struct {
	Dirs     []string `arg:"" optional:"" default:"." name:"dir" help:"Folders of modules, each with an ftl.toml, or folders above them."`
	Data     string   `help:"Folder of the store, created where it is missing. Left out: a store in memory, which ends with the command." placeholder:"DIR"`
	Listen   string   `default:"127.0.0.1:7420" help:"Address and port of the node."`
	Ingress  string   `default:"127.0.0.1:8080" help:"Address and port to serve the modules' verbs at."`
	Database string   `default:"main" help:"Database of the namespace ftl that the modules are deployed in."`
	Plain    bool     `help:"Print lines, and no live view, also at a terminal."`
}

// Help is the manual of the command.
func (ftlDevCommand) Help() string {
	return `Starts a node on the embedded engine, builds the modules, deploys them and serves
their verbs. When a file of theirs is saved they are built again, and the new
build takes over; what does not build is told, and what runs goes on.

At a terminal it shows topics, subscriptions, what is in flight and what failed,
as they change, with the newest lines that the modules log. Meanwhile the node
takes statements: tidemark shell --url ws://127.0.0.1:7420 --use ftl/main.`
}

// Run runs the modules until it is interrupted.
func (c *ftlDevCommand) Run(s *surroundings) error {
	dirs, err := extract.Find(c.Dirs...)
	if err != nil {
		return err
	}
	view := newDevView(s, c.Plain)
	node, err := c.startNode(s.ctx, view)
	if err != nil {
		return err
	}
	defer node.end()
	listener, err := listenOn("--ingress", c.Ingress)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	watched, err := watch(dirs)
	if err != nil {
		return err
	}
	defer watched.stop()
	keep, err := os.MkdirTemp("", "tidemark-ftl-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(keep) }()

	routes := newRouter()
	go func() { _ = routes.server.Serve(listener) }()
	view.heading = fmt.Sprintf("node ws://%s   verbs http://%s", node.listener.Addr(), listener.Addr())
	dev := &development{
		dirs: dirs, keep: keep, database: c.Database, host: node.host, routes: routes, view: view, deployed: map[string]string{},
		runners: newRunners("ws://"+node.listener.Addr().String(), c.Database, routes, view.say),
	}
	view.say("", view.heading)
	stopView := view.show(func(ctx context.Context) (deploy.Status, error) { return node.host.Status(ctx, c.Database) })
	defer stopView()
	defer func() {
		ctx, done := context.WithTimeout(context.Background(), endingTime)
		defer done()
		routes.end(ctx)
	}()
	defer dev.runners.end()
	for {
		dev.deploy(s.ctx)
		if folders, err := extract.Imported(s.ctx, dirs...); err == nil {
			watched.imports(folders)
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-watched.changed:
		}
	}
}

// withoutDebugInformation takes a third off the time of linking, which is most of
// what building again takes. Stack traces stay whole.
const withoutDebugInformation = "-ldflags=-w"

// development builds and deploys modules again and again.
type development struct {
	dirs           []string
	keep, database string
	host           *deploy.Host
	routes         *router
	runners        *runners
	view           *devView
	// deployed are the deployments that run, by module.
	deployed map[string]string
}

// deploy builds the modules and runs those that changed. What is wrong it tells,
// and leaves what runs.
func (d *development) deploy(ctx context.Context) {
	if err := d.tryDeploy(ctx); err != nil && ctx.Err() == nil {
		text := err.Error()
		var wrong extract.Diagnostics
		if errors.As(err, &wrong) {
			base, _ := os.Getwd()
			text = wrong.Render(base)
		}
		d.view.wrong(text)
	}
}

func (d *development) tryDeploy(ctx context.Context) error {
	modules, builds, err := d.build(ctx)
	if err != nil {
		return err
	}
	if err := d.routes.serve(extract.SchemaOf(modules).Modules); err != nil {
		return err
	}
	text, deployments := textOf(builds)
	changes, err := d.host.Provision(ctx, d.database, deployments, text)
	if err != nil {
		return err
	}
	d.view.wrong("")
	for _, line := range describeChanges(changes) {
		d.view.say("", line)
	}
	for _, b := range builds {
		if d.deployed[b.name()] == b.deployment {
			continue
		}
		if err := d.runners.start(b); err != nil {
			return err
		}
		d.deployed[b.name()] = b.deployment
		d.view.say(b.name(), "deployment "+b.deployment)
	}
	return nil
}

// build extracts and builds the modules, and says when that begins and when it
// has ended: the first time it may take a minute.
func (d *development) build(ctx context.Context) ([]*extract.Module, []build, error) {
	began := time.Now()
	d.view.say("", "building the modules in "+strings.Join(d.shown(), ", "))
	modules, err := extract.Extract(ctx, d.dirs...)
	var builds []build
	if err == nil {
		builds, err = buildModules(ctx, modules, d.keep, withoutDebugInformation)
	}
	took := time.Since(began).Round(10 * time.Millisecond)
	if err != nil {
		d.view.say("", fmt.Sprintf("the build failed after %s", took))
		return nil, nil, err
	}
	d.view.say("", fmt.Sprintf("built in %s", took))
	return modules, builds, nil
}

// shown are the modules' folders, from the working one where they lie in it.
func (d *development) shown() []string {
	var shown []string
	base, _ := os.Getwd()
	for _, dir := range d.dirs {
		if relative, err := filepath.Rel(base, dir); err == nil && filepath.IsLocal(relative) {
			dir = relative
		}
		shown = append(shown, dir)
	}
	return shown
}

// devNode is the node of tidemark ftl dev.
type devNode struct {
	store    opened
	host     *deploy.Host
	server   *server.Server
	listener net.Listener
}

func (c *ftlDevCommand) startNode(ctx context.Context, view *devView) (*devNode, error) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil || !isLoopback(host) {
		return nil, fmt.Errorf("--listen of a node for development is an address of this machine alone, as 127.0.0.1:7420, not %s", c.Listen)
	}
	listener, err := listenOn("--listen", c.Listen)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(view, &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := source{Data: c.Data}.openStore(ctx, log)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	n := &devNode{store: store, host: deploy.Start(deploy.Options{Store: store.Store, Log: log}), listener: listener}
	n.server, err = server.New(server.Options{
		Store: store.Store, Running: store.consumers, Modules: n.host.Handler(), LocalHostsOnly: true, Log: log,
	})
	if err != nil {
		return nil, errors.Join(err, store.Close(), listener.Close())
	}
	go func() { _ = n.server.Serve(listener) }()
	return n, nil
}

// end ends the node, whose modules have ended.
func (n *devNode) end() {
	ctx, done := context.WithTimeout(context.Background(), endingTime)
	defer done()
	n.host.Stop(ctx)
	_ = n.server.Shutdown(ctx)
	_ = n.store.Close()
}

func isLoopback(host string) bool {
	address := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || address != nil && address.IsLoopback()
}
