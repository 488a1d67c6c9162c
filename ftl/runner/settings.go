package runner

import (
	"flag"
	"net/http"
	"os"
	"strings"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
)

// settings say where a module's process runs. Each is a flag and an environment
// variable, the flag before the variable; who the module is to the nodes is a
// variable alone, since everybody on the machine sees a process's flags.
type settings struct {
	// nodes are the nodes of the store, as client.Connect takes them.
	nodes string
	// database is the database of the namespace ftl, deployment what the process
	// says it is a part of.
	database, deployment string
	// ingress is the address of the verbs over HTTP, "" for none; fd:3 is a
	// listener that the parent process holds open.
	ingress string
	// credit is how many events of one subscription are taken at once, where the
	// subscription allows that many.
	credit int
	// drain is how long a process that is told to stop may go on with what it
	// holds.
	drain time.Duration

	user, password, token string
}

// The defaults of settings.
const (
	defaultNodes  = "ws://127.0.0.1:7420"
	defaultCredit = 1024
	defaultDrain  = 30 * time.Second
)

// readSettings reads the flags and the environment. Its error is one that the
// flag package has told already.
func readSettings(module string, args []string) (settings, error) {
	s := settings{user: os.Getenv("TIDEMARK_USER"), password: os.Getenv("TIDEMARK_PASSWORD"), token: os.Getenv("TIDEMARK_TOKEN")}
	flags := flag.NewFlagSet(module, flag.ContinueOnError)
	text := func(dst *string, name, variable, standard, usage string) {
		if given := os.Getenv(variable); given != "" {
			standard = given
		}
		flags.StringVar(dst, name, standard, usage+" (or $"+variable+")")
	}
	text(&s.nodes, "node", "TIDEMARK_NODE", defaultNodes, "URL of a node, or of several of one store, separated by commas")
	text(&s.database, "database", "TIDEMARK_DATABASE", ftlwire.DefaultDatabase, "database of the namespace "+ftlwire.Namespace+" that the module is deployed in")
	text(&s.deployment, "deployment", "TIDEMARK_DEPLOYMENT", "", "deployment that this process is a part of, as tidemark ftl deploy made it")
	text(&s.ingress, "ingress", "TIDEMARK_INGRESS", "", "address and port to serve the verbs at, as 127.0.0.1:8080; fd:3 takes the parent process's listener; none without it")
	flags.IntVar(&s.credit, "credit", defaultCredit, "how many events of one subscription are taken at once")
	flags.DurationVar(&s.drain, "drain", defaultDrain, "how long to go on with what runs when told to stop")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.credit < 1 {
		return s, fault.New(fault.InvalidClause, "-credit is 1 or more, not %d", s.credit)
	}
	return s, nil
}

// urls are the URLs of the nodes, one by one.
func (s settings) urls() []string {
	scheme, hosts, found := strings.Cut(s.nodes, "://")
	if !found {
		scheme, hosts = "ws", s.nodes
	}
	var urls []string
	for host := range strings.SplitSeq(hosts, ",") {
		if !strings.Contains(host, "://") {
			host = scheme + "://" + host
		}
		urls = append(urls, host)
	}
	return urls
}

// options are those of the connection to the store.
func (s settings) options() client.Options {
	return client.Options{User: s.user, Password: s.password, Token: s.token}
}

// header is what signs in to a node.
func (s settings) header() http.Header {
	r := http.Request{Header: http.Header{}}
	switch {
	case s.token != "":
		r.Header.Set("Authorization", "Bearer "+s.token)
	case s.user != "":
		r.SetBasicAuth(s.user, s.password)
	}
	return r.Header
}
