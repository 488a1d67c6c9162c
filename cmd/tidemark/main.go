// Command tidemark is a transactional store whose topics do the job of a
// message broker: one binary that runs scripts, serves, and shows itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

const description = `Tidemark is a transactional store whose topics do the job of a message broker,
for a project that would rather not run one.

A topic keeps every message in the order of the commits, at positions 1, 2, 3
with no gap. A reader's position and the effect it writes commit together.

Start with "tidemark demo", which runs a walk-through and shows every statement
with its answer. "tidemark run" runs scripts of statements from files, and
"tidemark serve" serves a store to others.`

// commands are the subcommands; each is in a file of its own.
type commands struct {
	Run     runCommand     `cmd:"" help:"Run scripts of statements and print their answers."`
	Serve   serveCommand   `cmd:"" help:"Serve a store over HTTP and WebSockets."`
	Backup  backupCommand  `cmd:"" help:"Write all of a store, as it is at one moment, to a file."`
	Restore restoreCommand `cmd:"" help:"Make a store of a backup, on either engine."`
	Shell   shellCommand   `cmd:"" help:"Type statements and see their answers."`
	Export  exportCommand  `cmd:"" help:"Write a database as statements, or as JSON a line."`
	Import  importCommand  `cmd:"" help:"Run a long script, or insert JSON a line, in batches."`
	Ingest  ingestCommand  `cmd:"" help:"Look after the declared consumers of a node."`
	FTL     ftlCommand     `cmd:"" name:"ftl" help:"Work on modules: topics, subscriptions, sinks and mappers declared in Go."`
	Demo    demoCommand    `cmd:"" help:"Run the walk-through on a store in a temporary folder."`
}

// surroundings are what a command reads, writes and is ended by.
type surroundings struct {
	ctx    context.Context
	in     io.Reader
	out    io.Writer
	errors io.Writer
	// interrupts are what Ctrl-C does while a command takes it for itself.
	interrupts interrupts
}

// exit ends the process with a status; the reason was printed already.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	ctx, stop := context.WithCancel(context.Background())
	s := &surroundings{ctx: ctx, in: os.Stdin, out: os.Stdout, errors: os.Stderr}
	go s.awaitInterrupts(stop)
	status := run(s, os.Args[1:])
	stop()
	os.Exit(status)
}

// awaitInterrupts lets the command end in order at the first interrupt that it
// does not take for itself, and ends the process at the second.
func (s *surroundings) awaitInterrupts(stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	for stopping := false; ; {
		switch got := <-signals; {
		case got == os.Interrupt && !stopping && s.interrupts.happened():
		case stopping:
			os.Exit(interrupted)
		default:
			stop()
			stopping = true
		}
	}
}

// interrupted is the status of a process that an interrupt ended at once, by the
// custom of shells.
const interrupted = 130

// run runs the command line and returns the status to exit with.
func run(s *surroundings, arguments []string) int {
	var c commands
	parser, err := kong.New(&c,
		kong.Name("tidemark"),
		kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(s.out, s.errors),
		kong.Configuration(loadSettings),
		kong.PostBuild(nameEnvironment),
	)
	if err != nil {
		fmt.Fprintln(s.errors, "tidemark:", err)
		return 1
	}
	parsed, err := parser.Parse(arguments)
	if err != nil {
		fmt.Fprintf(s.errors, "tidemark: %s; tidemark --help shows what there is\n", err)
		return 2
	}
	err = parsed.Run(s)
	var status exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintln(s.errors, "tidemark:", err)
	return 1
}
