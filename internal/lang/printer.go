package lang

import (
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/value"
)

// printer gathers the words of a statement, with a space between.
type printer struct {
	text strings.Builder
	// joined says that what comes next follows without a space.
	joined bool
	// atValue says that what comes next begins the value of a clause, where no
	// bare word may stand.
	atValue bool
}

// text is what a node prints.
func text(n Node) string {
	var p printer
	n.print(&p)
	return p.text.String()
}

// word prints keywords, or anything else that stands between spaces.
func (p *printer) word(word string) {
	if p.text.Len() > 0 && !p.joined {
		p.text.WriteByte(' ')
	}
	p.joined, p.atValue = false, false
	p.text.WriteString(word)
}

// sign prints something that follows what is before it without a space.
func (p *printer) sign(sign string) {
	p.joined = true
	p.word(sign)
}

// open prints a bracket that both sides are close to.
func (p *printer) open(bracket string) {
	p.word(bracket)
	p.joined = true
}

// ambiguousNames are names that a statement could take for a keyword where it
// wants a name, so they are printed in backquotes.
var ambiguousNames = []string{"if", "overwrite", "consumer", "consumers", "database"}

// name prints an identifier that stands where a statement wants a name.
func (p *printer) name(name string) { p.word(quoteName(name, ambiguousNames)) }

func quoteName(name string, ambiguous []string) string {
	if slices.ContainsFunc(ambiguous, func(word string) bool { return strings.EqualFold(word, name) }) {
		return "`" + name + "`"
	}
	return value.QuoteIdentifier(name)
}

// clause prints keywords and their value, if there is one.
func (p *printer) clause(keywords string, e Expression) {
	if e == nil {
		return
	}
	p.word(keywords)
	p.value(e)
}

// value prints an expression that stands where parseValue or parseQuoted
// reads it.
func (p *printer) value(e Expression) {
	p.atValue = true
	p.operand(e, precedenceAdditive)
}

// list prints parts separated by commas.
func list[T any](p *printer, parts []T, print func(T)) {
	for i, part := range parts {
		if i > 0 {
			p.sign(",")
		}
		print(part)
	}
}

// flag prints keywords where they are given.
func (p *printer) flag(keywords string, given bool) {
	if given {
		p.word(keywords)
	}
}
