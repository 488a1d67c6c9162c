package spec_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/internal/lang"
)

// script is a chapter: prose, requests with their answers, and steps that
// steer the store.
type script struct {
	path  string
	steps []step
}

// step is a piece of a script. Its lines are kept as written, so that a script
// whose answers are right prints back to itself.
type step interface {
	// line is where the step stands in its file, from 1.
	line() int
}

type at int

func (a at) line() int { return int(a) }

// prose is a comment or an empty line.
type prose struct {
	at
	text string
}

// steering is a word that is no statement, and what follows it.
type steering struct {
	at
	text     string
	word     string
	argument string
	// answer is what the word answers: that of a request that was started.
	answer string
}

// request is what a caller sends at once: statements, each with its answer.
type request struct {
	at
	// caller is the name before the prompt, "" for the one without.
	caller string
	// prompt is what stands before the first line: "" or "worker-1> ".
	prompt string
	// started says that the script goes on before the request is answered.
	started bool
	lines   []requestLine
}

// requestLine is a line of statements, and the answers under it.
type requestLine struct{ text, answer string }

const (
	answerMark       = "=>"
	answerMarkSpace  = "=> "
	answerContinuing = "   "
	startWord        = "start "
)

var (
	steeringWords = regexp.MustCompile(`^(advance|restart|crash|housekeep|given|finish|signin|stranger)(?: +(.*))?$`)
	promptPattern = regexp.MustCompile(`^([a-z][a-z0-9-]*)> `)
)

// readScript reads a script from its file.
func readScript(path string) (*script, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseScript(path, string(content))
}

// parseScript parses a script. An error names the file and line.
func parseScript(path, content string) (*script, error) {
	s := &script{path: path}
	lines := strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	var open *request // the request that the next line may belong to
	for i := 0; i < len(lines); i++ {
		text := lines[i]
		switch {
		case strings.HasPrefix(text, answerMark):
			answer, more := readAnswer(lines[i:])
			if !s.attach(open, answer) {
				return nil, fmt.Errorf("%s:%d: an answer to nothing", path, i+1)
			}
			i += more
		case strings.TrimSpace(text) == "", strings.HasPrefix(text, "#"):
			open = nil
			s.steps = append(s.steps, &prose{at(i + 1), text})
		case steeringWords.MatchString(text):
			open = nil
			match := steeringWords.FindStringSubmatch(text)
			s.steps = append(s.steps, &steering{at: at(i + 1), text: text, word: match[1], argument: match[2]})
		default:
			if open == nil || isPrompted(text) || open.prompt != "" && !strings.HasPrefix(text, " ") {
				open = newRequest(i+1, text)
				s.steps = append(s.steps, open)
				continue
			}
			open.lines = append(open.lines, requestLine{text: text})
		}
	}
	return s, nil
}

func isPrompted(text string) bool {
	return promptPattern.MatchString(strings.TrimPrefix(text, startWord))
}

func newRequest(line int, text string) *request {
	r := &request{at: at(line)}
	if isPrompted(text) {
		bare := strings.TrimPrefix(text, startWord)
		r.started = bare != text
		match := promptPattern.FindStringSubmatch(bare)
		r.caller = match[1]
		r.prompt = text[:len(text)-len(bare)+len(match[0])]
	}
	r.lines = []requestLine{{text: text[len(r.prompt):]}}
	return r
}

// readAnswer reads the answers at the start of lines, and returns how many
// lines they take after the first.
func readAnswer(lines []string) (answer string, more int) {
	for more+1 < len(lines) {
		next := lines[more+1]
		if !strings.HasPrefix(next, answerContinuing) && !strings.HasPrefix(next, answerMark) {
			break
		}
		more++
	}
	return strings.Join(lines[:more+1], "\n"), more
}

// attach adds answers to what stands before them.
func (s *script) attach(open *request, answer string) bool {
	if open != nil {
		open.lines[len(open.lines)-1].answer = answer
		return true
	}
	if len(s.steps) == 0 {
		return false
	}
	last, ok := s.steps[len(s.steps)-1].(*steering)
	if ok {
		last.answer = answer
	}
	return ok
}

// source is the text of the request's statements.
func (r *request) source() string {
	texts := make([]string, len(r.lines))
	for i, line := range r.lines {
		texts[i] = line.text
	}
	return strings.Join(texts, "\n")
}

// lineOf is the line of the request on which a statement ends.
func lineOf(source string, statement lang.Statement) int {
	return strings.Count(source[:statement.Span().End], "\n")
}

// String is the script as it stands in its file.
func (s *script) String() string {
	var text strings.Builder
	write := func(line, answer string) {
		text.WriteString(line + "\n")
		if answer != "" {
			text.WriteString(answer + "\n")
		}
	}
	for _, step := range s.steps {
		switch x := step.(type) {
		case *prose:
			write(x.text, "")
		case *steering:
			write(x.text, x.answer)
		case *request:
			for i, line := range x.lines {
				prompt := ""
				if i == 0 {
					prompt = x.prompt
				}
				write(prompt+line.text, line.answer)
			}
		}
	}
	return text.String()
}

// parseAdvance reads how far a clock is moved.
func parseAdvance(argument string) (time.Duration, error) {
	e, err := lang.ParseExpression(argument)
	if err != nil {
		return 0, err
	}
	if literal, ok := e.(*lang.Literal); ok {
		if d, ok := literal.Value.AsDuration(); ok {
			return d, nil
		}
	}
	return 0, fmt.Errorf("advance takes a duration such as 30s, not %q", argument)
}
