package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/internal/collection"
	"github.com/tidemarkdb/tidemark/internal/deploy"
	"github.com/tidemarkdb/tidemark/internal/server"
)

// serveCommand is tidemark serve. Its flags are the node's settings: what is
// said of them here is their documentation.
type serveCommand struct {
	source
	Config      kong.ConfigFlag `help:"File of settings: YAML, one setting a line, named like the flags." placeholder:"FILE"`
	PrintConfig bool            `help:"Print every setting with its meaning, as a file that --config takes, and exit."`

	Listen         string   `default:"127.0.0.1:7420" help:"Address and port to listen on. Port 0 takes a free one."`
	AllowAnonymous bool     `help:"Listen on more than this machine although the store has no owner: everybody who reaches the port may do everything. Where the store has one, sign-in is required all the same."`
	Origin         []string `help:"Web origins, as https://app.example.com, whose pages may call the node from a browser; only the node's own may otherwise."`
	TLSCert        string   `name:"tls-cert" help:"File of the TLS certificate and its chain, in PEM. With --tls-key the node speaks https and wss only; both are read again on SIGHUP." placeholder:"FILE"`
	TLSKey         string   `name:"tls-key" help:"File of the certificate's private key, in PEM." placeholder:"FILE"`

	RootPasswordFile string        `help:"File that holds the password of root, an owner of the store: root is defined at the start, or given this password. The environment variable TIDEMARK_ROOT_PASSWORD does the same; there is no flag of the password itself, since others on the machine see flags." placeholder:"FILE"`
	TokenTime        time.Duration `default:"12h" help:"How long a token of POST /signin is good for. It ends sooner with the user, and with the user's password."`

	OTLP string `name:"otlp" help:"OpenTelemetry collector that spans are sent to over HTTP, as http://127.0.0.1:4318; they go to /v1/traces there unless it has a path. A request is a span of the trace that its traceparent names, where its caller records that one; left out, nothing is traced. Messages carry their trace context either way." placeholder:"URL"`

	LogFormat    string        `default:"text" enum:"text,json" help:"Form of the log, which goes to standard error: text or json."`
	LogLevel     slog.Level    `default:"INFO" help:"What is logged: DEBUG tells every request, INFO what the node does, WARN and ERROR what needs somebody."`
	ShutdownTime time.Duration `default:"20s" help:"How long a shutdown may take. What then still runs is given up: it is committed whole or not at all, and its client is not told."`

	Limits server.Limits `embed:"" group:"Limits:"`
}

// Help is the manual of the command.
func (serveCommand) Help() string {
	return `Serves a store: statements over HTTP (POST /sql) and over a WebSocket (/ws),
sign-in (/signin), modules (/ftl), /backup and /export, /health, /ready and
/metrics.

Each setting is given by its flag, by an environment variable (TIDEMARK_ and the
flag's name, as TIDEMARK_LISTEN), or in the file of --config, the earlier before
the later. --print-config shows what they add up to.

An interrupt or SIGTERM ends it in order: it takes no new connections and
consumers take no new messages, what runs is finished and answered, and the
store is closed. A second one exits at once; nothing that was acknowledged is
lost.`
}

// Validate refuses settings that no node can go by.
func (c *serveCommand) Validate() error {
	switch {
	case c.TokenTime <= 0:
		return fmt.Errorf("token-time takes more than 0, not %s", c.TokenTime)
	case c.ShutdownTime <= 0:
		return fmt.Errorf("shutdown-time takes more than 0, not %s", c.ShutdownTime)
	}
	return c.Limits.Check()
}

// Run serves until it is interrupted.
func (c *serveCommand) Run(s *surroundings, k *kong.Context) error {
	if c.PrintConfig {
		return printSettings(s.out, k.Selected())
	}
	log := c.newLog(s)
	collection.Relax()
	tlsConfig, certificates, err := c.tls()
	if err != nil {
		return err
	}
	local, err := c.isLocal()
	if err != nil {
		return err
	}
	// The address is taken first: where another node has it, nothing is opened.
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	tracer, flush, err := openTracer(s.ctx, c.OTLP, log)
	if err != nil {
		return err
	}
	defer flush()
	started := time.Now()
	store, err := c.openStore(s.ctx, log)
	if err != nil {
		return err
	}
	if store.Engine().Name() == "memory" {
		log.Warn("the store is in memory and ends with this process; --data names a folder that keeps it")
	}
	store.SetAddress(reachedAt(listener.Addr()))
	if err := c.checkOwner(s.ctx, store.Store, log); err != nil {
		return errors.Join(err, store.Close())
	}
	modules := deploy.Start(deploy.Options{Store: store.Store, Log: log})
	node, err := server.New(server.Options{
		Modules:       modules.Handler(),
		RequireSignIn: !local && !c.AllowAnonymous, TokenTime: c.TokenTime,
		Store: store.Store, Running: store.consumers, Limits: c.Limits, TLS: tlsConfig,
		Origins: c.Origin, LocalHostsOnly: !c.AllowAnonymous, Log: log,
		Collectors: []prometheus.Collector{store.consumers, modules}, Tracer: tracer,
	})
	if err != nil {
		return errors.Join(err, store.Close())
	}
	serving := make(chan error, 1)
	go func() { serving <- node.Serve(listener) }()
	stopReloading := reloadOnHangup(certificates, log)
	defer stopReloading()
	fmt.Fprintf(s.out, "tidemark listens on %s://%s\n", c.scheme(), listener.Addr())
	log.Info("the node serves", slog.String("address", listener.Addr().String()), slog.String("engine", store.Engine().Name()),
		slog.Duration("started in", time.Since(started)))
	select {
	case err := <-serving:
		return errors.Join(err, store.Close())
	case <-s.ctx.Done():
	}
	return c.shutDown(node, modules, store, log)
}

// reachedAt is where other machines reach what listens on an address: one that
// listens on all of this machine's is reached by the machine's name.
func reachedAt(listening net.Addr) string {
	address, err := netip.ParseAddrPort(listening.String())
	if err != nil || !address.Addr().IsUnspecified() {
		return listening.String()
	}
	host, err := os.Hostname()
	if err != nil {
		return listening.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(address.Port())))
}

func (c *serveCommand) newLog(s *surroundings) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(s.errors, options))
	}
	return slog.New(slog.NewTextHandler(s.errors, options))
}

func (c *serveCommand) scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}

// shutDown ends the node in order, within its time.
func (c *serveCommand) shutDown(node *server.Server, modules *deploy.Host, store opened, log *slog.Logger) error {
	log.Info("the node shuts down; a second interrupt exits at once", slog.Duration("within", c.ShutdownTime))
	ctx, done := context.WithTimeout(context.Background(), c.ShutdownTime)
	defer done()
	ended := make(chan error, 1)
	go func() {
		// First, and with half the time: what modules hold they finish with
		// statements on this node.
		draining, drained := context.WithTimeout(ctx, c.ShutdownTime/2)
		modules.Stop(draining)
		drained()
		var ending sync.WaitGroup
		// At the same moment: consumers take no more, and finish what they hold.
		ending.Go(store.consumers.Stop)
		err := node.Shutdown(ctx)
		ending.Wait()
		ended <- errors.Join(err, store.Close())
	}()
	select {
	case err := <-ended:
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("what still ran after %s was given up, and its clients were not told; --shutdown-time gives it longer: %w", c.ShutdownTime, err)
		}
		if err != nil {
			return fmt.Errorf("the node did not end in order: %w", err)
		}
		log.Info("the node has ended")
		return nil
	case <-time.After(c.ShutdownTime + closingTime):
		return fmt.Errorf("the node did not end within %s and is given up", c.ShutdownTime)
	}
}

// closingTime is how long the store may take to close after everything else has
// ended.
const closingTime = 5 * time.Second

// tls is the configuration of TLS, nil where the node speaks none.
func (c *serveCommand) tls() (*tls.Config, *certificates, error) {
	if c.TLSCert == "" && c.TLSKey == "" {
		return nil, nil, nil
	}
	if c.TLSCert == "" || c.TLSKey == "" {
		return nil, nil, errors.New("--tls-cert and --tls-key go together")
	}
	certificates := &certificates{certFile: c.TLSCert, keyFile: c.TLSKey}
	if err := certificates.load(); err != nil {
		return nil, nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificates.get}, certificates, nil
}
