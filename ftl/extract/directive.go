package extract

import (
	"go/ast"
	"go/token"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/tools/go/analysis"

	"github.com/tidemarkdb/tidemark/ftl/schema"
)

// directivePrefix is what a directive begins with.
const directivePrefix = "//ftl:"

// usage is how each directive is written.
var usage = map[string]string{
	"export":     "//ftl:export",
	"verb":       "//ftl:verb",
	"ingress":    "//ftl:ingress POST /payment",
	"subscribe":  "//ftl:subscribe paymentProcessing",
	"map":        "//ftl:map receiptWriting receipts",
	"retry":      "//ftl:retry 5 1s 1m catch recoverPayin",
	"deadletter": "//ftl:deadletter givenUp",
}

// directiveAnalyzer finds the directives and what they stand over. It refuses
// those that nothing knows, that stand twice or over what cannot carry them.
var directiveAnalyzer = &analysis.Analyzer{
	Name:       "ftldirective",
	Doc:        "find //ftl: directives and what they stand over",
	Run:        func(pass *analysis.Pass) (any, error) { return findDirectives(pass), nil },
	ResultType: reflect.TypeFor[*carriers](),
}

// span is a piece of the source.
type span struct{ pos, end token.Pos }

func spanOf(node ast.Node) span { return span{node.Pos(), node.End()} }

// word is one word of a directive.
type word struct {
	text string
	span
}

// directive is one directive: the words after its name.
type directive struct {
	name string
	span
	words []word
}

// arguments is the piece of the source after the name, or the whole directive
// where nothing is there.
func (d directive) arguments() span {
	if len(d.words) == 0 {
		return d.span
	}
	return span{d.words[0].pos, d.words[len(d.words)-1].end}
}

// texts are the words.
func (d directive) texts() []string {
	var texts []string
	for _, w := range d.words {
		texts = append(texts, w.text)
	}
	return texts
}

// directives are those over one declaration, by name.
type directives map[string]directive

// carriers are the declarations with directives.
type carriers struct {
	functions []*function
	// variables are the package's variables with their directives.
	variables map[*ast.ValueSpec]directives
}

// ofKind are the functions of a kind, in the order of the source.
func (c *carriers) ofKind(kind kind) []*function {
	var functions []*function
	for _, f := range c.functions {
		if f.kind == kind {
			functions = append(functions, f)
		}
	}
	return functions
}

func findDirectives(pass *analysis.Pass) *carriers {
	found := &carriers{variables: map[*ast.ValueSpec]directives{}}
	carried := map[*ast.Comment]bool{}
	collect := func(doc *ast.CommentGroup, over string, allowed ...string) directives {
		return collectDirectives(pass, doc, carried, over, allowed)
	}
	for _, file := range pass.Files {
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if over := collect(d.Doc, "a function", "verb", "ingress", "subscribe", "map", "retry", "deadletter"); len(over) > 0 {
					found.functions = append(found.functions, newFunction(pass, d, over))
				}
			case *ast.GenDecl:
				if d.Tok != token.VAR {
					collect(d.Doc, "a "+d.Tok.String())
					continue
				}
				for _, spec := range d.Specs {
					spec := spec.(*ast.ValueSpec)
					doc := spec.Doc
					if !d.Lparen.IsValid() {
						doc = d.Doc
					}
					if over := collect(doc, "a variable", "export"); len(over) > 0 {
						found.variables[spec] = over
					}
				}
			}
		}
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if d, ok := parseDirective(comment); ok && !carried[comment] {
					report(pass, d.span, "%s%s stands over nothing; write it right above the declaration it is about", directivePrefix, d.name)
				}
			}
		}
	}
	return found
}

// collectDirectives returns the directives of a declaration's comment that it
// may carry, and reports the others.
func collectDirectives(pass *analysis.Pass, doc *ast.CommentGroup, carried map[*ast.Comment]bool, over string, allowed []string) directives {
	if doc == nil {
		return nil
	}
	found := directives{}
	for _, comment := range doc.List {
		d, ok := parseDirective(comment)
		if !ok {
			refuseSpace(pass, comment)
			continue
		}
		carried[comment] = true
		_, known := usage[d.name]
		_, twice := found[d.name]
		switch {
		case !known:
			report(pass, d.span, "there is no directive %s%s; %s", directivePrefix, d.name, acceptedDirective(d.name))
		case !slices.Contains(allowed, d.name):
			report(pass, d.span, "%s%s stands over %s; it stands over %s", directivePrefix, d.name, over, carrierOf(d.name))
		case twice:
			report(pass, d.span, "%s%s stands twice over one declaration; leave one out", directivePrefix, d.name)
		default:
			found[d.name] = d
		}
	}
	return found
}

// refuseSpace reports a directive that Go takes for prose, as in
// "// ftl:verb".
func refuseSpace(pass *analysis.Pass, comment *ast.Comment) {
	trimmed := strings.TrimLeft(strings.TrimPrefix(comment.Text, "//"), " \t")
	name, isDirective := strings.CutPrefix(firstWord(trimmed), "ftl:")
	if _, known := usage[name]; isDirective && known && strings.HasPrefix(comment.Text, "//") {
		report(pass, spanOf(comment), "a directive has no space after the slashes; write %s", "//"+trimmed)
	}
}

func firstWord(text string) string {
	if words := strings.Fields(text); len(words) > 0 {
		return words[0]
	}
	return ""
}

func acceptedDirective(name string) string {
	known := slices.Sorted(maps.Keys(usage))
	if nearest := schema.Nearest(name, known); nearest != "" {
		return "did you mean " + directivePrefix + nearest + "?"
	}
	return "there are " + strings.Join(known, ", ")
}

// carrierOf says what a directive stands over.
func carrierOf(name string) string {
	if name == "export" {
		return "the variable of a topic"
	}
	return "a function"
}

// parseDirective reads a comment that begins as a directive does.
func parseDirective(comment *ast.Comment) (directive, bool) {
	if !strings.HasPrefix(comment.Text, directivePrefix) {
		return directive{}, false
	}
	text := strings.TrimRightFunc(comment.Text, unicode.IsSpace)
	d := directive{span: span{comment.Slash, comment.Slash + token.Pos(len(text))}}
	for offset := len(directivePrefix); offset < len(text); {
		rest := text[offset:]
		length := strings.IndexFunc(rest, unicode.IsSpace)
		if length < 0 {
			length = len(rest)
		}
		if length > 0 {
			at := comment.Slash + token.Pos(offset)
			d.words = append(d.words, word{rest[:length], span{at, at + token.Pos(length)}})
		}
		offset += max(length, 1)
	}
	if len(d.words) > 0 && d.words[0].pos == comment.Slash+token.Pos(len(directivePrefix)) {
		d.name = d.words[0].text
		d.words = d.words[1:]
	}
	return d, true
}

// wanted checks how many words a directive has.
func (d directive) wanted(pass *analysis.Pass, count int) bool {
	if len(d.words) == count {
		return true
	}
	report(pass, d.span, "%s%s takes %s after it; write it as %s", directivePrefix, d.name, []string{"no word", "one word", "two words"}[count], usage[d.name])
	return false
}
