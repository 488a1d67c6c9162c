package spec_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
)

// lineWidth is how long an answer may be before its rows, or its fields, stand
// on lines of their own.
const lineWidth = 110

// show is an answer as a script has it: the JSON of its value, the lapsed note
// where there is one, or the error with its whole message.
func (r *runner) show(statement lang.Statement, a session.Answer) string {
	var text string
	switch {
	case a.Err != nil:
		text = fmt.Sprintf("error %s: %s", a.Err.Kind, a.Err.Message)
	default:
		json, err := a.Value.AppendJSON(nil)
		if err != nil {
			failure := fault.Of(err)
			text = fmt.Sprintf("error %s: %s", failure.Kind, failure.Message)
			break
		}
		if info, ok := statement.(*lang.Info); ok && info.Kind == lang.Store {
			json = changing.ReplaceAll(json, []byte(`"$1":"*"`))
		}
		text = fold(string(json), 0)
		if a.Lapsed > 0 {
			text += fmt.Sprintf(" lapsed %d", a.Lapsed)
		}
	}
	text = r.names.name(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(answerContinuing+line, " ")
	}
	lines[0] = answerMarkSpace + strings.TrimPrefix(lines[0], answerContinuing)
	return strings.Join(lines, "\n")
}

// changing is what INFO FOR STORE tells that is not the same everywhere.
var changing = regexp.MustCompile(`"(engine|nodes|version)":(?:"[^"]*"|\[[^\]]*\])`)

// fold breaks JSON that is too long for one line: an element of an array a
// line, and as many fields of an object as a line holds.
func fold(json string, indent int) string {
	if fits(json, indent) || json[0] != '[' && json[0] != '{' {
		return json
	}
	indent++
	parts := split(json[1 : len(json)-1])
	separator := ",\n" + strings.Repeat(" ", indent)
	if json[0] == '[' {
		for i, part := range parts {
			parts[i] = fold(part, indent)
		}
		return "[" + strings.Join(parts, separator) + "]"
	}
	folded := "{"
	line := ""
	for i, part := range parts {
		if joined := line + "," + part; i > 0 && fits(joined, indent) {
			line = joined
			continue
		}
		if i > 0 {
			folded += line + separator
		}
		colon := strings.Index(part, `":`) + 2
		line = part[:colon] + fold(part[colon:], indent+colon)
	}
	return folded + line + "}"
}

func fits(json string, indent int) bool { return indent+len([]rune(json)) <= lineWidth }

// split cuts JSON at the commas that stand in no brackets and quotes.
func split(json string) []string {
	var parts []string
	depth, start, quoted := 0, 0, false
	for i := 0; i < len(json); i++ {
		switch c := json[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, json[start:i])
			start = i + 1
		}
	}
	return append(parts, json[start:])
}

// uuidNames gives uuids that the store makes up names that stay: #1, #2 and
// on, in the order in which answers show them.
type uuidNames struct {
	mu sync.Mutex
	// The following are protected by mu.
	byUUID map[string]string
	byName map[string]string
}

var (
	uuidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	namePattern = regexp.MustCompile(`#[0-9]+\b`)
)

// newUUIDNames leaves alone the uuids that the script itself has.
func newUUIDNames(script string) *uuidNames {
	names := &uuidNames{byUUID: map[string]string{}, byName: map[string]string{}}
	for _, written := range uuidPattern.FindAllString(script, -1) {
		names.byUUID[written] = written
	}
	return names
}

// name puts names in place of uuids.
func (n *uuidNames) name(text string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return uuidPattern.ReplaceAllStringFunc(text, func(uuid string) string {
		if n.byUUID[uuid] == "" {
			name := "#" + strconv.Itoa(len(n.byName)+1)
			n.byUUID[uuid], n.byName[name] = name, uuid
		}
		return n.byUUID[uuid]
	})
}

// restore puts uuids in place of their names, for statements that take one.
func (n *uuidNames) restore(text string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return namePattern.ReplaceAllStringFunc(text, func(name string) string {
		if uuid := n.byName[name]; uuid != "" {
			return uuid
		}
		return name
	})
}
