package shell

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
)

// maxHistory is how many inputs a history keeps.
const maxHistory = 2000

// history is what was typed, in a file of one JSON string a line, since an
// input may have several. It is the user's alone, and holds no passwords.
type history struct {
	file   string
	inputs []string
}

// openHistory reads the file, if there is one.
func openHistory(file string) *history {
	h := &history{file: file}
	opened, err := os.Open(file)
	if err != nil {
		return h // It is made with the first input.
	}
	defer func() { _ = opened.Close() }()
	lines := bufio.NewScanner(opened)
	lines.Buffer(nil, maxHistoryLine)
	for lines.Scan() {
		var input string
		if json.Unmarshal(lines.Bytes(), &input) == nil {
			h.inputs = append(h.inputs, input)
		}
	}
	h.trim()
	return h
}

// maxHistoryLine bounds an input that is kept.
const maxHistoryLine = 64 << 10

func (h *history) trim() {
	if extra := len(h.inputs) - maxHistory; extra > 0 {
		h.inputs = h.inputs[extra:]
	}
}

// passwordWord is in every statement that holds a password. An input that has it
// elsewhere is not kept either.
var passwordWord = regexp.MustCompile(`(?i)\bPASSWORD\b`)

// Write adds an input, and returns how many there are.
func (h *history) Write(input string) (int, error) {
	input = strings.TrimSpace(input)
	last := ""
	if n := len(h.inputs); n > 0 {
		last = h.inputs[n-1]
	}
	if input == "" || input == last || passwordWord.MatchString(input) || len(input) > maxHistoryLine/2 {
		return len(h.inputs), nil
	}
	h.inputs = append(h.inputs, input)
	h.trim()
	return len(h.inputs), h.keep(input)
}

// keep appends an input to the file, or writes the file anew where it has grown
// to twice what is kept.
func (h *history) keep(input string) error {
	if h.file == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(h.file), 0o700); err != nil {
		return fault.New(fault.Unavailable, "the history cannot be kept: %w", err)
	}
	line, err := json.Marshal(input)
	if err != nil {
		return fault.New(fault.Internal, "the history cannot be kept: %w", err)
	}
	file, err := os.OpenFile(h.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.New(fault.Unavailable, "the history cannot be kept: %w", err)
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		_ = file.Close()
		return fault.New(fault.Unavailable, "the history cannot be kept: %w", err)
	}
	return file.Close()
}

// GetLine returns an input by its place.
func (h *history) GetLine(at int) (string, error) {
	if at < 0 || at >= len(h.inputs) {
		return "", fault.New(fault.NotFound, "the history has %d inputs", len(h.inputs))
	}
	return h.inputs[at], nil
}

// Len is how many inputs there are.
func (h *history) Len() int { return len(h.inputs) }

// Dump returns all inputs.
func (h *history) Dump() any { return h.inputs }
