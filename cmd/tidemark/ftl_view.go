package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/tidemarkdb/tidemark/internal/deploy"
)

const (
	// viewEvery is how often the live view looks at the node.
	viewEvery = 500 * time.Millisecond
	// keptLines is how many lines of the modules' logs the live view keeps.
	keptLines = 200
	// leastLines is how many of them it shows where there is little room.
	leastLines = 5
)

// devView is what tidemark ftl dev shows: at a terminal a live view, and
// otherwise a line after the other.
type devView struct {
	printer *printer
	// terminal is nil where there is no live view.
	terminal *os.File
	heading  string

	mu sync.Mutex
	// The following are protected by mu.
	lines []string
	// failure is what is wrong with the source, "" for nothing.
	failure string
}

func newDevView(s *surroundings, plain bool) *devView {
	v := &devView{printer: newPrinter(s.out, s.out)}
	if file, ok := s.out.(*os.File); ok && !plain && isTerminal(file) && v.printer.colour {
		v.terminal = file
	}
	return v
}

// say shows a line of a module, or of the command itself.
func (v *devView) say(module, line string) {
	if module != "" {
		line = module + " | " + line
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.terminal == nil {
		fmt.Fprintln(v.printer.out, line)
		return
	}
	v.lines = append(v.lines, line)
	v.lines = v.lines[max(len(v.lines)-keptLines, 0):]
}

// Write shows the lines of the node's log.
func (v *devView) Write(log []byte) (int, error) {
	v.say("node", strings.TrimSpace(string(log)))
	return len(log), nil
}

// wrong shows what is wrong with the source, until it is mended.
func (v *devView) wrong(failure string) {
	failure = strings.TrimSpace(failure)
	v.mu.Lock()
	v.failure = failure
	v.mu.Unlock()
	if v.terminal == nil && failure != "" {
		v.say("", failure)
	}
}

// show draws the live view until it is stopped.
func (v *devView) show(status func(context.Context) (deploy.Status, error)) (stop func()) {
	if v.terminal == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var drawing sync.WaitGroup
	drawing.Go(func() {
		ticker := time.NewTicker(viewEvery)
		defer ticker.Stop()
		for {
			now, err := status(ctx)
			if ctx.Err() != nil {
				return
			}
			v.draw(now, err)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return func() {
		cancel()
		drawing.Wait()
		fmt.Fprintln(v.terminal)
	}
}

// draw draws the whole view in one write, over what was there.
func (v *devView) draw(status deploy.Status, err error) {
	width, height, sizeErr := term.GetSize(int(v.terminal.Fd()))
	if sizeErr != nil {
		width, height = 80, 24
	}
	const home, restOfLine, restOfScreen = "\x1b[H", "\x1b[K", "\x1b[J"
	var screen strings.Builder
	screen.WriteString(home)
	for i, line := range v.render(status, err, height) {
		if i > 0 {
			screen.WriteString("\r\n")
		}
		screen.WriteString(text.Trim(line, width) + restOfLine)
	}
	screen.WriteString(restOfScreen)
	_, _ = v.terminal.WriteString(screen.String())
}

// render is the lines of the view, as many as there is room for.
func (v *devView) render(status deploy.Status, err error, height int) []string {
	v.mu.Lock()
	logged, failure := v.lines, v.failure
	v.mu.Unlock()
	lines := []string{v.printer.paint(text.Colors{text.Bold}, "tidemark ftl dev") + "   " + v.heading, ""}
	if failure != "" {
		for line := range strings.SplitSeq(failure, "\n") {
			lines = append(lines, v.printer.paint(text.Colors{text.FgRed}, line))
		}
		lines = append(lines, "")
	}
	if err == nil {
		var shown bytes.Buffer
		p := *v.printer
		p.out = &shown
		_ = printModules(&p, status, time.Now())
		lines = append(lines, strings.Split(strings.TrimRight(shown.String(), "\n"), "\n")...)
	}
	lines = lines[:min(len(lines), max(height-leastLines-1, 1))]
	room := height - len(lines) - 1
	lines = append(lines, "")
	return append(lines, logged[max(len(logged)-room, 0):]...)
}
