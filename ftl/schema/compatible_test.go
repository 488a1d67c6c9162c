package schema_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl/schema"
)

func TestAnEventTypeMayOnlyGrowByWhatIsOptional(t *testing.T) {
	const was = "topic t E data E { a Int b String? lines [Line] by {String: Line} } data Line { x Int }"
	for _, c := range []struct {
		name, next string
		// refused is how the refusal begins, "" for none.
		refused string
	}{
		{"the same", was, ""},
		{"a field added optional", "topic t E data E { a Int b String? c Int? lines [Line] by {String: Line} } data Line { x Int }", ""},
		{"one added below", "topic t E data E { a Int b String? lines [Line] by {String: Line} } data Line { x Int y [Line]? }", ""},
		{"a field made optional", "topic t E data E { a Int? b String? lines [Line] by {String: Line} } data Line { x Int }", ""},
		{"data types renamed", "topic t F data F { a Int b String? lines [Row] by {String: Row} } data Row { x Int }", ""},
		{"another topic", "topic other Int", ""},
		{"retention and export", "export topic t E { +retain 1d } data E { a Int b String? lines [Line] by {String: Line} } data Line { x Int }", ""},
		{"a field added required", "topic t E data E { a Int b String? c Int lines [Line] by {String: Line} } data Line { x Int }", "field m.t.c, which events in the topic do not have, is not optional"},
		{"a field removed", "topic t E data E { a Int lines [Line] by {String: Line} } data Line { x Int }", "field m.t.b, which events in the topic have, is gone"},
		{"a field renamed", "topic t E data E { amount Int? b String? lines [Line] by {String: Line} } data Line { x Int }", "field m.t.a, which events in the topic have, is gone"},
		{"a field retyped", "topic t E data E { a String b String? lines [Line] by {String: Line} } data Line { x Int }", "m.t.a was of type Int and is now of type String"},
		{"a field made required", "topic t E data E { a Int b String lines [Line] by {String: Line} } data Line { x Int }", "m.t.b was of type String? and is now of type String"},
		{"retyped in a list", "topic t E data E { a Int b String? lines [Line] by {String: Line} } data Line { x Float }", "m.t.lines.x was of type Int and is now of type Float"},
		{"keys retyped", "topic t E data E { a Int b String? lines [Line] by {Int: Line} } data Line { x Int }", "m.t.by was of type {String: m.Line} and is now of type {Int: m.Line}"},
		{"no struct any more", "topic t String", "m.t was of type m.E and is now of type String"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := schema.Compatible(parse(t, "module m { "+was+" }"), parse(t, "module m { "+c.next+" }"))
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.refused != "" && (!errors.Is(err, fault.TypeMismatch) || !strings.HasPrefix(fault.Of(err).Message, c.refused+";")):
				t.Errorf("got %v, want %s", err, c.refused)
			}
		})
	}
}

func TestARefusalShowsBothShapes(t *testing.T) {
	err := schema.Compatible(
		parse(t, "module m { topic t E  data E { a Int lines [Line] }  data Line { x Int } }"),
		parse(t, "module m { topic t E  data E { a Int lines [Line] }  data Line { x Int? y String } }"))
	const want = `TypeMismatch: field m.t.lines.y, which events in the topic do not have, is not optional; what is in topic m.t could not be read. Keep its fields as they are and add only optional ones, or publish the new shape to a new topic.
It was:
  data Line {
    x Int
  }
It would be:
  data Line {
    x Int?
    y String
  }`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestTypesOfOtherModulesAreComparedWhereTheyAreAtHand(t *testing.T) {
	const owner, other = "module a { data E { x Int } }", "module a { data E { x String } }"
	const user = "module b { topic t a.E }"
	if err := schema.Compatible(parse(t, user), parse(t, user)); err != nil {
		t.Errorf("refused without the owner: %v", err)
	}
	if err := schema.Compatible(parse(t, owner+user), parse(t, owner+user)); err != nil {
		t.Errorf("refused with the owner: %v", err)
	}
	if err := schema.Compatible(parse(t, owner+user), parse(t, other+user)); !errors.Is(err, fault.TypeMismatch) {
		t.Errorf("the owner's change is let pass: %v", err)
	}
}

func TestTypesThatHoldThemselvesAreCompared(t *testing.T) {
	const tree, wider = "module m { topic t Tree  data Tree { x Int of [Tree] } }", "module m { topic t Tree  data Tree { x Int of [Tree] y Tree? } }"
	if err := schema.Compatible(parse(t, tree), parse(t, wider)); err != nil {
		t.Error(err)
	}
	if err := schema.Compatible(parse(t, wider), parse(t, tree)); !errors.Is(err, fault.TypeMismatch) {
		t.Errorf("a field that is gone is let pass: %v", err)
	}
}
