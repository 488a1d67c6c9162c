package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/tidemarkdb/tidemark/internal/backup"
)

// progress shows how far a long command is: on a terminal a line that changes,
// otherwise a line now and then.
type progress struct {
	out      io.Writer
	what     string
	quiet    bool
	terminal bool
	every    time.Duration
	started  time.Time
	shown    time.Time
	last     backup.Progress
}

// How often progress is shown on a terminal and elsewhere.
const (
	progressOnTerminal = 200 * time.Millisecond
	progressInLog      = 10 * time.Second
)

func newProgress(out io.Writer, what string, quiet bool) *progress {
	file, ok := out.(*os.File)
	p := &progress{out: out, what: what, quiet: quiet, terminal: ok && term.IsTerminal(int(file.Fd())), every: progressInLog, started: time.Now()}
	if p.terminal {
		p.every = progressOnTerminal
	}
	p.shown = p.started
	return p
}

// tell is called with every step.
func (p *progress) tell(header backup.Header, done backup.Progress) {
	p.last = done
	if p.quiet || time.Since(p.shown) < p.every {
		return
	}
	p.shown = time.Now()
	p.print(header)
}

func (p *progress) print(header backup.Header) {
	begin, end := "", "\n"
	if p.terminal {
		begin, end = "\r\x1b[K", ""
	}
	took := time.Since(p.started)
	fmt.Fprintf(p.out, "%s%s %s in %s, %s/s", begin, p.what, sizeText(p.last.Bytes), took.Round(time.Second), sizeText(uint64(float64(p.last.Bytes)/took.Seconds())))
	if header.Spaces > 0 {
		fmt.Fprintf(p.out, ", %d rows, %d of %d databases", p.last.Rows, min(p.last.Spaces, header.Spaces-1), header.Spaces-1)
	}
	fmt.Fprint(p.out, end)
}

// count is called with how many steps are done.
func (p *progress) count(done int) {
	if p.quiet || time.Since(p.shown) < p.every {
		return
	}
	p.shown = time.Now()
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s %d", p.what, done)
		return
	}
	fmt.Fprintf(p.out, "%s %d\n", p.what, done)
}

// end clears the line on a terminal.
func (p *progress) end() {
	if p.terminal && !p.quiet {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// sizeText is a number of bytes as people read it.
func sizeText(bytes uint64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	size := float64(bytes) / 1024
	for size >= 1024 && len(units) > 1 {
		size, units = size/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", size, units[0])
}
