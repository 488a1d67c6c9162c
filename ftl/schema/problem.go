package schema

import (
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
)

// Problem is one thing that is wrong with what a module declares.
type Problem struct {
	Module string
	// Declaration is the *Topic, *Subscription, *Data, *Verb, *Sink, *Mapper or
	// *Module it is about, and Part what of it.
	Declaration any
	Part        Part
	// Sentence says what is wrong, and Accepted what would be taken instead;
	// it may be empty.
	Sentence, Accepted string
}

// Part is a part of a declaration.
type Part string

// The parts of declarations, by what they are called in the text.
const (
	PartName       Part = "name"
	PartEvent      Part = "event"    // of a topic, sink or mapper
	PartRequest    Part = "request"  // of a verb
	PartResponse   Part = "response" // of a verb, and what a mapper returns
	PartTopic      Part = "topic"    // of a subscription
	PartParallel   Part = "parallel"
	PartRetain     Part = "retain"
	PartSubscribe  Part = "subscribe" // of a sink, and of a mapper
	PartMap        Part = "map"       // the topic that a mapper fills
	PartRetry      Part = "retry"
	PartCatch      Part = "catch" // the verb in the retry
	PartDeadLetter Part = "deadletter"
	PartIngress    Part = "ingress"
	PartPublish    Part = "publish"
)

// Validate returns the first of Problems as fault.InvalidClause, or nil.
func (s *Schema) Validate() error {
	for _, p := range s.Problems() {
		return p.Err()
	}
	return nil
}

// Err returns the problem as a fault.InvalidClause.
func (p Problem) Err() error {
	text := "module " + p.Module + ": " + p.Sentence
	if p.Accepted != "" {
		text += "; " + p.Accepted
	}
	return fault.New(fault.InvalidClause, "%s", text)
}

// Nearest returns the known name that was probably meant, or "" where none is
// near: at most a third of its letters differ.
func Nearest(name string, known []string) string {
	best, distance := "", max(len(name)/3, 1)+1
	for _, candidate := range slices.Sorted(slices.Values(known)) {
		if d := editDistance(strings.ToLower(name), strings.ToLower(candidate)); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// editDistance is how many letters must be put in, taken out or changed to make
// one text of the other (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// didYouMean says which name would be taken in place of one that is unknown.
func didYouMean(kind, name string, known []string) string {
	if nearest := Nearest(name, known); nearest != "" {
		return "did you mean " + nearest + "?"
	}
	if len(known) == 0 {
		return "the module declares no " + kind
	}
	sorted := slices.Sorted(slices.Values(known))
	const shown = 10
	if len(sorted) > shown {
		sorted = append(sorted[:shown], "…")
	}
	return "the module declares " + strings.Join(sorted, ", ")
}

func namesOf[D declaration](declarations []D) []string {
	var names []string
	for _, d := range declarations {
		names = append(names, d.declared())
	}
	return names
}
