package shell

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/value"
)

// names are those that completion knows of the database in use.
type names struct {
	// tables are tables and topics, quoted those that stand in quotes: groups
	// and readers.
	tables, quoted, fields []string
	// asked is when the store was asked.
	asked time.Time
}

// How long names are good for, how long the store may take to tell them, and
// how many tables are asked for what is in them.
const (
	namesAge    = 10 * time.Second
	namesTime   = time.Second
	namesTables = 64
)

func newNames() *names { return &names{} }

// forget makes the store be asked again.
func (n *names) forget() { n.asked = time.Time{} }

// refresh asks the store, where that disturbs nothing.
func (s *Shell) refreshNames() {
	n := s.names
	// In a transaction a statement that fails would be the end of it.
	if s.session == nil || s.inTransaction || s.database == "" || time.Since(n.asked) < namesAge {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), namesTime)
	defer done()
	found := names{asked: time.Now()}
	var topics []string
	// What cannot be told now is not completed.
	_ = s.quietly(ctx, "INFO FOR DATABASE;", func(info value.Value) {
		topics = listed(info, "topics")
		for _, kind := range []string{"collections", "tables", "spaces", "topics"} {
			found.tables = append(found.tables, listed(info, kind)...)
		}
	})
	for i, table := range found.tables {
		if i >= namesTables || ctx.Err() != nil {
			break
		}
		kind := "TABLE "
		if slices.Contains(topics, table) {
			kind = "TOPIC "
		}
		_ = s.quietly(ctx, "INFO FOR "+kind+value.QuoteIdentifier(table)+";", func(info value.Value) {
			fields, _ := info.AsObject()
			found.quoted = append(found.quoted, fieldNames(fields["groups"])...)
			found.quoted = append(found.quoted, fieldNames(fields["readers"])...)
			found.fields = append(found.fields, fieldNames(fields["fields"])...)
		})
	}
	*n = found
}

func fieldNames(v value.Value) []string {
	fields, _ := v.AsObject()
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	return names
}

// candidate is a completion: what replaces the word that is typed, and what it
// is.
type candidate struct{ text, what string }

// complete returns what the word before the cursor may become, and where that
// word begins.
func (s *Shell) complete(line string) (candidates []candidate, from int) {
	from = len(line)
	for from > 0 && isWordByte(line[from-1]) {
		from--
	}
	word := line[from:]
	before := strings.TrimSpace(line[:from])
	if strings.HasPrefix(strings.TrimSpace(line), `\`) {
		return s.completeCommand(line)
	}
	if from > 0 && line[from-1] == '\'' {
		// In quotes stand groups, readers and values.
		s.refreshNames()
		return matching(s.names.quoted, word, "group or reader", func(name string) string { return name + "'" }), from
	}
	s.refreshNames()
	upper := word == strings.ToUpper(word)
	if before == "" || strings.HasSuffix(before, ";") {
		return matching(beginnings, word, "statement", cased(upper)), from
	}
	candidates = matching(s.names.tables, word, "table", value.QuoteIdentifier)
	candidates = append(candidates, matching(s.names.fields, word, "field", value.QuoteIdentifier)...)
	if word != "" || len(candidates) == 0 {
		candidates = append(candidates, matching(keywords, word, "keyword", cased(upper))...)
	}
	return candidates, from
}

// beginnings are the words that statements begin with.
var beginnings = strings.Fields(`ACK ALTER BEGIN CANCEL COMMIT CREATE DEFINE DELETE DROP EXTEND GRANT INFO INSERT NACK READ REJECT RELEASE REVOKE
	SELECT SLEEP UPDATE UPSERT USE`)

// completeCommand completes a command, and the name after \d.
func (s *Shell) completeCommand(line string) ([]candidate, int) {
	name, argument, more := strings.Cut(line, " ")
	if more {
		s.refreshNames()
		return matching(s.names.tables, argument, "table", func(name string) string { return name }), len(line) - len(argument)
	}
	var candidates []candidate
	for _, c := range commands {
		if strings.HasPrefix(c.name, name) {
			candidates = append(candidates, candidate{c.name, c.help})
		}
	}
	return candidates, 0
}

// matching are the names that begin with a word, in any case.
func matching(names []string, word, what string, form func(string) string) []candidate {
	var candidates []candidate
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if len(name) >= len(word) && strings.EqualFold(name[:len(word)], word) {
			candidates = append(candidates, candidate{form(name), what})
		}
	}
	return candidates
}

// cased gives keywords the case in which the word is typed.
func cased(upper bool) func(string) string {
	if upper {
		return strings.ToUpper
	}
	return strings.ToLower
}
