package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
)

// process is a module that runs. It is the call.Surroundings of its verbs.
type process struct {
	module   *module
	settings settings
	database *client.Database
	log      *slog.Logger
	// running is what the verbs' contexts hang on: it ends when what still runs
	// is given up.
	running context.Context
	// calls are the calls of nodes that run, also those whose node was lost.
	calls sync.WaitGroup
}

func (p *process) Database() *client.Database { return p.database }
func (p *process) Fake(call.Function) any     { return nil }
func (p *process) Log() *slog.Logger          { return p.log }

// ModuleOf knows the module itself; all other packages are none of its own.
func (p *process) ModuleOf(at call.Place) string {
	if at.Package == p.module.Package {
		return p.module.Name
	}
	return ""
}

func (p *process) StoreTopic(_ context.Context, t call.Topic) (string, error) {
	return ftlwire.StoreTopic(p.ModuleOf(t.Place), t.Name), nil
}

// serve runs a module until ctx ends, or a newer deployment has taken over at
// every node. Where it listens is written to out.
func serve(ctx context.Context, m Module, s settings, log *slog.Logger, out io.Writer) error {
	checked, err := m.check()
	if err != nil {
		return err
	}
	// The address is taken first: where another has it, nothing is begun.
	listener, err := listen(s.ingress)
	if err != nil {
		return err
	}
	options := s.options()
	options.Log = log
	store, err := client.Connect(ctx, s.nodes, options)
	if err != nil {
		return closing(listener, err)
	}
	defer func() { _ = store.Close() }()
	database, err := store.Database(ctx, ftlwire.Namespace, s.database)
	if err != nil {
		return closing(listener, err)
	}
	running, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	p := &process{module: checked, settings: s, database: database, log: log, running: running}
	if listener != nil {
		fmt.Fprintf(out, "module %s listens on %s\n", m.Name, ingressURL(listener))
	}
	return p.run(ctx, listener, giveUp)
}

// givingUpTime is how long verbs that were given up on have to notice.
const givingUpTime = time.Second

// closing closes a listener that will not be served.
func closing(listener net.Listener, err error) error {
	if listener != nil {
		_ = listener.Close()
	}
	return err
}

// run takes calls and serves the ingress until ctx ends; then it finishes what
// runs, within its time.
func (p *process) run(ctx context.Context, listener net.Listener, giveUp func()) error {
	taking, stopTaking := context.WithCancelCause(ctx)
	defer stopTaking(nil)
	var parts sync.WaitGroup
	nodes := newNodes(p, stopTaking, ingressURL(listener))
	for _, url := range p.settings.urls() {
		parts.Go(func() { nodes.keep(taking, url) })
	}
	if listener != nil {
		ingress := newIngress(p.running, p.module, p)
		parts.Go(func() {
			if err := ingress.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				stopTaking(fmt.Errorf("the ingress ended: %w", err))
			}
		})
		parts.Go(func() {
			<-taking.Done()
			_ = ingress.server.Shutdown(p.running)
		})
	}
	<-taking.Done()
	p.log.Info("the module finishes what it holds", "within", p.settings.drain)
	finished := make(chan struct{})
	go func() {
		parts.Wait()
		p.calls.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(p.settings.drain):
		giveUp()
		select {
		case <-finished:
		case <-time.After(givingUpTime):
		}
		return fault.New(fault.Timeout, "what still ran after %s was given up; the nodes count it as failed", p.settings.drain)
	}
	if cause := context.Cause(taking); !errors.Is(cause, context.Canceled) && !errors.Is(cause, errSuperseded) {
		return cause
	}
	p.log.Info("the module has ended")
	return nil
}

// listen opens the ingress, nil where there is none.
func listen(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	number, inherited := strings.CutPrefix(address, "fd:")
	if !inherited {
		return net.Listen("tcp", address)
	}
	descriptor, err := strconv.Atoi(number)
	if err != nil {
		return nil, fault.New(fault.InvalidClause, "%s is no listener of the parent process; write it as fd:3", address)
	}
	file := os.NewFile(uintptr(descriptor), address)
	defer func() { _ = file.Close() }()
	return net.FileListener(file)
}

// ingressURL is where a listener is reached, "" for none.
func ingressURL(listener net.Listener) string {
	if listener == nil {
		return ""
	}
	return "http://" + listener.Addr().String()
}
