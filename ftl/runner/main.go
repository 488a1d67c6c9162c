package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/tidemarkdb/tidemark/internal/collection"
)

// Main runs the module's process until a signal, or a newer deployment, ends it.
// It does not return.
func Main(m Module) {
	os.Exit(run(m, os.Args[1:]))
}

// run returns the exit code: 0 for a process that ended in order, 1 for one that
// failed, 2 for flags that are none.
func run(m Module, args []string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("module", m.Name)
	settings, err := readSettings(m.Name, args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	collection.Relax()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if err := serve(ctx, m, settings, log, os.Stdout); err != nil {
		log.Error("the module ends", "error", err)
		return 1
	}
	return 0
}
