package shell

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/tidemarkdb/tidemark/internal/lang"
)

// pipe reads input that nobody types.
type pipe struct{ in *bufio.Reader }

func newPipe(in io.Reader) *pipe { return &pipe{bufio.NewReader(in)} }

// read reads lines until they are whole statements, or a command. What the
// input ends with is taken as it is.
func (p *pipe) read(context.Context) (string, error) {
	var input strings.Builder
	for {
		line, err := p.in.ReadString('\n')
		input.WriteString(line)
		switch {
		case err == nil && isWhole(input.String()):
			return input.String(), nil
		case errors.Is(err, io.EOF) && strings.TrimSpace(input.String()) != "":
			return input.String(), nil
		case err != nil:
			return "", err
		}
	}
}

// isWhole reports whether an input is a command or whole statements.
func isWhole(input string) bool {
	if strings.HasPrefix(strings.TrimSpace(input), `\`) {
		return true
	}
	_, rest := lang.Split(input)
	return rest == ""
}
