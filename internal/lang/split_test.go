package lang_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/internal/lang"
)

func TestASourceIsCutWhereItsStatementsEnd(t *testing.T) {
	for _, c := range []struct {
		source     string
		statements []string
		rest       string
	}{
		{"", nil, ""},
		{" -- nothing\n /* at all */ ", nil, ""},
		{"SELECT 1", nil, "SELECT 1"},
		{"A; B;", []string{"A;", " B;"}, ""},
		{"A; -- ; not here\n B; ", []string{"A;", " -- ; not here\n B;"}, ""},
		{"A ';' \"\\\";\" `\\`;`; B", []string{"A ';' \"\\\";\" `\\`;`;"}, " B"},
		{"A 'open; ", nil, "A 'open; "},
		{"A; /* open; ", []string{"A;"}, " /* open; "},
		{"A; // to the end", []string{"A;"}, ""},
		{"# is nothing; B;", []string{"# is nothing;", " B;"}, ""},
		{";;", []string{";", ";"}, ""},
	} {
		statements, rest := lang.Split(c.source)
		if !slices.Equal(statements, c.statements) || rest != c.rest {
			t.Errorf("%q is cut into %q and %q, want %q and %q", c.source, statements, rest, c.statements, c.rest)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("SELECT 'a;b'; /* ; */ READ FROM t -- ;\n;")
	f.Fuzz(func(t *testing.T, source string) {
		statements, rest := lang.Split(source)
		if !strings.HasPrefix(source, strings.Join(statements, "")+rest) {
			t.Fatalf("%q is cut into %q and %q", source, statements, rest)
		}
		script, err := lang.Parse(source)
		if err != nil {
			return
		}
		// What parses as a whole parses in its parts, to the same statements.
		count := 0
		for _, part := range append(statements, rest) {
			parsed, err := lang.Parse(part)
			if err != nil {
				t.Fatalf("%q parses, and its part %q does not: %v", source, part, err)
			}
			count += len(parsed.Statements)
		}
		if count != len(script.Statements) {
			t.Fatalf("%q has %d statements, and its parts %d", source, len(script.Statements), count)
		}
	})
}
