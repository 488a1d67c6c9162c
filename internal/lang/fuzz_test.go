package lang

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// FuzzParse holds that any input is parsed or refused with a place within it,
// and that what is parsed prints to text that parses to the same.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.golden", "testdata/documents/*.txt"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			for _, c := range strings.Split(string(content), "\n\n") {
				source, _, _ := strings.Cut(c, "\n----\n")
				f.Add(source)
			}
		}
	}
	f.Fuzz(func(t *testing.T, source string) {
		script, err := Parse(source)
		if err != nil {
			var mistake *SyntaxError
			if !errors.As(err, &mistake) || fault.Of(err).Kind != fault.Syntax {
				t.Fatalf("%T %v", err, err)
			}
			if lines := strings.Count(source, "\n") + 1; mistake.Line < 1 || mistake.Line > lines || mistake.Column < 1 || mistake.Column > len(source)+1 {
				t.Fatalf("line %d, column %d of a source of %d lines and %d bytes", mistake.Line, mistake.Column, lines, len(source))
			}
			return
		}
		requireRoundTrip(t, script)
		previous := 0
		for _, statement := range script.Statements {
			span := statement.Span()
			if span.Start < previous || span.End <= span.Start || span.End > len(source) {
				t.Fatalf("%s stands at %+v", statement, span)
			}
			previous = span.End
			// The text of a statement is a script of that statement.
			alone := mustParse(t, source[span.Start:span.End])
			if len(alone.Statements) != 1 || !equalTrees(statement, alone.Statements[0]) {
				t.Fatalf("%q alone is something else", source[span.Start:span.End])
			}
		}
	})
}

// Whatever is sent is parsed or refused in time that grows with its length, and
// on a bounded stack.
func TestLargeAndDeepInputsEndSoon(t *testing.T) {
	const size = 1 << 20
	repeat := func(part string) string { return strings.Repeat(part, size/len(part)) }
	cases := map[string]struct {
		source string
		parses bool
	}{
		"brackets":         {"CREATE t = " + repeat("["), false},
		"closed brackets":  {"CREATE t = " + repeat("[") + repeat("]"), false},
		"braces":           {"CREATE t = " + repeat("{a:"), false},
		"parentheses":      {"CREATE t = " + repeat("("), false},
		"calls":            {"CREATE t = " + repeat("f("), false},
		"indexes":          {"CREATE t = " + repeat("a["), false},
		"subqueries":       {"CREATE t = " + repeat("(SELECT a FROM t WHERE "), false},
		"negations":        {"CREATE t = " + repeat("NOT ") + "a", false},
		"minus signs":      {"CREATE t = " + repeat("- ") + "a", false},
		"and":              {"CREATE t = a" + repeat(" AND a"), false},
		"sum":              {"CREATE t = 1" + repeat(" + 1"), false},
		"path":             {"CREATE t = a" + repeat(".a"), false},
		"string":           {"CREATE t = '" + repeat("x") + "'", true},
		"escapes":          {"CREATE t = '" + repeat(`\u00e9`) + "'", true},
		"open string":      {"CREATE t = '" + repeat("x"), false},
		"open escapes":     {"CREATE t = '" + repeat(`\\`), false},
		"quotes":           {"CREATE t = " + repeat("'"), false},
		"backquotes":       {"CREATE " + repeat("`"), false},
		"comment":          {repeat("-"), true},
		"open comment":     {"/*" + repeat("* /"), false},
		"comments":         {repeat("/**/"), true},
		"word":             {repeat("x"), false},
		"digits":           {"CREATE t = " + repeat("9"), false},
		"fraction":         {"CREATE t = 0." + repeat("9"), true},
		"duration":         {"CREATE t = " + repeat("0s"), true},
		"semicolons":       {repeat(";"), true},
		"statements":       {repeat("BEGIN;"), true},
		"passwords":        {repeat("PASSWORD '"), false},
		"array":            {"CREATE t = [1" + repeat(", 1") + "]", true},
		"parameters":       {"CREATE t = [$a" + repeat(", $a") + "]", true},
		"lines":            {repeat("\n") + "x", false},
		"one long line":    {"CREATE t = [" + repeat("ü' ü', "), false},
		"positions":        {"ACK t FOR CONSUMER 'g' AT 1" + repeat(", 1 DELIVERY 2"), true},
		"clauses":          {"DEFINE TOPIC t" + repeat(" RETAIN 5s"), false},
		"invalid UTF-8":    {repeat("\n") + "\xff", false},
		"signs":            {repeat("!"), false},
		"brackets in list": {"CREATE t = [" + repeat("[[]],") + "1]", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			script, err := Parse(c.source)
			if (err == nil) != c.parses {
				t.Fatalf("%.200v", err)
			}
			if err != nil {
				if message := fault.Of(err).Message; len(message) > 2000 {
					t.Errorf("the message has %d bytes", len(message))
				}
			} else if name != "statements" && name != "comments" {
				requireRoundTrip(t, script)
			}
			// A quadratic parser takes minutes; a busy machine has time enough.
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestAScriptPastTheLimitIsRefused(t *testing.T) {
	if _, err := Parse(strings.Repeat(" ", MaxSourceBytes)); err != nil {
		t.Error(err)
	}
	if _, err := Parse(strings.Repeat(" ", MaxSourceBytes+1)); !errors.Is(err, fault.Syntax) {
		t.Errorf("%v", err)
	}
}

func TestDepthAndOperatorsAreBoundedExactly(t *testing.T) {
	for _, c := range []struct {
		source string
		parses bool
	}{
		{strings.Repeat("[", MaxDepth-1) + "1" + strings.Repeat("]", MaxDepth-1), true},
		{strings.Repeat("[", MaxDepth) + "1" + strings.Repeat("]", MaxDepth), false},
		{strings.Repeat("NOT ", MaxDepth-1) + "a", true},
		{strings.Repeat("NOT ", MaxDepth) + "a", false},
		{"a" + strings.Repeat(" + a", MaxOperators), true},
		{"a" + strings.Repeat(" + a", MaxOperators+1), false},
		{"[" + strings.Repeat("a + a, ", MaxOperators+1) + "a]", true},
	} {
		e, err := ParseExpression(c.source)
		if (err == nil) != c.parses {
			t.Errorf("%.40s…: %.200v", c.source, err)
			continue
		}
		if err == nil {
			if again, err := ParseExpression(e.String()); err != nil || !equalTrees(e, again) {
				t.Errorf("%.40s… does not print to itself: %.200v", c.source, err)
			}
		}
	}
}
