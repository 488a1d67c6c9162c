package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/term"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/ingest"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/remote"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// source says which store a command works on.
type source struct {
	Data     string `xor:"source" help:"Folder of the store, created where it is missing. Left out: a store in memory, which ends with the command." placeholder:"DIR"`
	Postgres string `xor:"source" help:"PostgreSQL that carries the store, shared by all nodes that are given it: postgres://user@host/database. Its password is better left to PGPASSWORD or a password file." placeholder:"URL"`
}

// opened is an open store, whose declared consumers run.
type opened struct {
	*store.Store
	consumers *ingest.Supervisor
}

// openStore opens the store of a source and runs its declared consumers.
func (s source) openStore(ctx context.Context, log *slog.Logger) (opened, error) {
	e, err := s.openEngine(ctx, log)
	if err != nil {
		return opened{}, err
	}
	st, err := store.Open(ctx, e, store.Options{Log: log})
	if err != nil {
		_ = e.Close()
		return opened{}, err
	}
	return opened{st, ingest.Start(st, ingest.Options{Log: log})}, nil
}

// newSession starts a session of the store.
func (o opened) newSession() *session.Session {
	return session.New(o.Store, session.Options{Running: o.consumers})
}

// Close lets the declared consumers finish their batches and closes the store.
func (o opened) Close() error {
	o.consumers.Stop()
	return o.Store.Close()
}

func (s source) openEngine(ctx context.Context, log *slog.Logger) (engine.Engine, error) {
	switch {
	case s.Postgres != "":
		return postgres.Open(ctx, postgres.Options{URL: s.Postgres, Logger: log})
	case s.Data == "":
		return pebble.OpenMemory(pebble.Options{Logger: log})
	}
	return pebble.Open(s.Data, pebble.Options{Logger: log})
}

// anySource is a source, or a node that serves one.
type anySource struct {
	source
	URL  string `name:"url" xor:"source" help:"Node that serves the store: ws://host:port, or wss://host:port." placeholder:"URL"`
	User string `env:"TIDEMARK_USER" help:"User who signs in on the node of --url, with the password in TIDEMARK_PASSWORD; at a terminal it is asked for. A token in TIDEMARK_TOKEN signs in instead." placeholder:"NAME"`
	Use  string `help:"Namespace, or namespace/database, in use from the start. A user of one signs in there." placeholder:"NAME"`
}

// caller runs scripts: a session of a store opened here, or one on a node.
type caller interface {
	RunScript(ctx context.Context, script *lang.Script, params map[string]value.Value, tell func(lang.Statement, session.Answer))
	Close()
}

// open opens a session: on the node, or of a store that is opened here.
func (s anySource) open(around *surroundings, log *slog.Logger) (runner caller, closeAll func(), err error) {
	if s.URL != "" {
		options, err := s.signIn(around)
		if err != nil {
			return nil, nil, err
		}
		node, err := remote.Dial(around.ctx, s.URL, options)
		if err != nil {
			return nil, nil, err
		}
		return node, node.Close, nil
	}
	opened, err := s.openStore(around.ctx, log)
	if err != nil {
		return nil, nil, err
	}
	namespace, database, _ := strings.Cut(s.Use, "/")
	session, err := session.NewIn(around.ctx, opened.Store, namespace, database, session.Options{Running: opened.consumers})
	if err != nil {
		return nil, nil, errors.Join(err, opened.Close())
	}
	return session, func() {
		session.Close()
		_ = opened.Close()
	}, nil
}

// signIn is how sessions on the node begin. It asks for a password that is
// missing, at a terminal.
func (s anySource) signIn(around *surroundings) (client.Options, error) {
	namespace, database, _ := strings.Cut(s.Use, "/")
	options := client.Options{
		Namespace: namespace, Database: database,
		User: s.User, Password: os.Getenv("TIDEMARK_PASSWORD"), Token: os.Getenv("TIDEMARK_TOKEN"),
	}
	terminal, isFile := around.in.(*os.File)
	if s.User == "" || options.Password != "" || options.Token != "" || !isFile || !isTerminal(terminal) {
		return options, nil
	}
	fmt.Fprintf(around.errors, "Password of %s: ", s.User)
	password, err := term.ReadPassword(int(terminal.Fd()))
	fmt.Fprintln(around.errors)
	if err != nil {
		return options, fmt.Errorf("the password cannot be read: %w", err)
	}
	options.Password = string(password)
	return options, nil
}
