package lang

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests find into the golden files")

// golden runs a file of cases: the source of a case, a line of four hyphens,
// and what is made of it, then an empty line. With -rewrite it writes the file
// anew.
func golden(t *testing.T, file string, run func(source string) string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rewritten strings.Builder
	for i, c := range strings.Split(strings.Trim(string(content), "\n"), "\n\n") {
		source, want, found := strings.Cut(c, "\n----\n")
		if !found && !*rewrite {
			t.Fatalf("%s, case %d has no ----:\n%s", path, i+1, c)
		}
		source = strings.TrimSuffix(source, "\n----")
		got := strings.TrimRight(run(source), "\n")
		rewritten.WriteString(source + "\n----\n" + got + "\n\n")
		if got != want && !*rewrite {
			t.Errorf("%s\nwanted\n%s\ncame\n%s", source, want, got)
		}
	}
	if *rewrite {
		text := strings.TrimSuffix(rewritten.String(), "\n")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// equalTrees compares two trees, or slices of them, and takes no notice of
// where they stand in their sources.
func equalTrees(a, b any) bool { return equalValues(reflect.ValueOf(a), reflect.ValueOf(b)) }

func equalValues(a, b reflect.Value) bool {
	if a.IsValid() != b.IsValid() || a.IsValid() && a.Type() != b.Type() {
		return false
	}
	if !a.IsValid() || a.Type() == reflect.TypeFor[node]() {
		return true
	}
	if a.Type() == reflect.TypeFor[value.Value]() {
		// The encoding is exact: it tells an int from a float, and -0.0 from 0.0.
		x, err1 := a.Interface().(value.Value).AppendCBOR(nil)
		y, err2 := b.Interface().(value.Value).AppendCBOR(nil)
		return err1 == nil && err2 == nil && bytes.Equal(x, y)
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		return a.IsNil() == b.IsNil() && (a.IsNil() || equalValues(a.Elem(), b.Elem()))
	case reflect.Struct:
		for i := range a.NumField() {
			if !equalValues(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !equalValues(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	}
	panic("equalTrees: a tree has no " + a.Kind().String())
}

// mustParse parses a script that has no mistake.
func mustParse(t testing.TB, source string) *Script {
	t.Helper()
	script, err := Parse(source)
	if err != nil {
		t.Fatalf("%s\n%v", source, err)
	}
	return script
}

// requireRoundTrip fails unless each statement prints to text that parses to
// the same tree and prints the same.
func requireRoundTrip(t testing.TB, script *Script) {
	t.Helper()
	for _, statement := range script.Statements {
		printed := statement.String()
		again, err := Parse(printed)
		if err != nil {
			t.Fatalf("printed as\n%s\nwhich does not parse: %v", printed, err)
		}
		if len(again.Statements) != 1 || !equalTrees(statement, again.Statements[0]) {
			t.Fatalf("printed as\n%s\nwhich parses to something else: %s", printed, again.Statements)
		}
		if twice := again.Statements[0].String(); twice != printed {
			t.Fatalf("printed as\n%s\nand, parsed again, as\n%s", printed, twice)
		}
	}
}

func TestStatementsPrintAsTextThatParsesToTheSameTree(t *testing.T) {
	golden(t, "statements.golden", func(source string) string {
		script, err := Parse(source)
		if err != nil {
			t.Errorf("%s\n%v", source, err)
			return ""
		}
		requireRoundTrip(t, script)
		var printed []string
		for _, statement := range script.Statements {
			printed = append(printed, statement.String()+";")
		}
		return strings.Join(printed, "\n")
	})
}

func TestRefusalsNameThePlaceWithACaret(t *testing.T) {
	golden(t, "refusals.golden", func(source string) string {
		script, err := Parse(source)
		if err == nil {
			t.Errorf("%s\nparsed as %s", source, script.Statements)
			return ""
		}
		return fault.Of(err).Message
	})
}

// The documents' statements are what users copy.
func TestEveryStatementOfTheDocumentsParses(t *testing.T) {
	files, err := filepath.Glob("testdata/documents/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script := mustParse(t, string(content))
			if len(script.Statements) < 10 {
				t.Errorf("only %d statements", len(script.Statements))
			}
			requireRoundTrip(t, script)
		})
	}
}

func TestASyntaxErrorIsAFault(t *testing.T) {
	_, err := Parse("READ FROM events;\nREAD FROM events LIMITS 3;")
	var mistake *SyntaxError
	if !errors.As(err, &mistake) || !errors.Is(err, fault.Syntax) {
		t.Fatalf("%T %v", err, err)
	}
	want := SyntaxError{Line: 2, Column: 18, Found: "LIMITS", Expected: "FOR CONSUMER, AFTER, SINCE, LIMIT, WAIT or ';'"}
	if mistake.Line != want.Line || mistake.Column != want.Column || mistake.Found != want.Found || mistake.Expected != want.Expected {
		t.Errorf("%+v", mistake)
	}
	message := "line 2, column 18: found LIMITS, expected " + want.Expected +
		"\nREAD FROM events LIMITS 3;" +
		"\n                 ^"
	if f := fault.Of(err); f.Kind != fault.Syntax || f.Message != message {
		t.Errorf("%s\n%s", f.Kind, f.Message)
	}
}

func TestSpansAndTextAreThoseOfTheSource(t *testing.T) {
	source := "BEGIN;  /* ü */ CREATE  `tä` = { a: 'ü', b: $p };\n  COMMIT"
	script := mustParse(t, source)
	want := []string{"BEGIN", "CREATE  `tä` = { a: 'ü', b: $p }", "COMMIT"}
	for i, statement := range script.Statements {
		if text := script.Text(statement); text != want[i] {
			t.Errorf("statement %d is %q, wanted %q", i, text, want[i])
		}
	}
	create := script.Statements[1].(*Create)
	if span := create.Span(); span.Line != 1 || span.Column != 17 {
		t.Errorf("CREATE stands at %+v", span)
	}
	object := create.Value.(*ObjectExpression)
	if span := object.Fields[1].Value.Span(); source[span.Start:span.End] != "$p" || span.Column != 45 {
		t.Errorf("$p stands at %+v", span)
	}
	if span := script.Statements[2].Span(); span.Line != 2 || span.Column != 3 {
		t.Errorf("COMMIT stands at %+v", span)
	}
	binary, err := ParseExpression("  a.b + 2*$c ")
	if err != nil {
		t.Fatal(err)
	}
	if span := binary.Span(); span.Start != 2 || span.End != 12 {
		t.Errorf("the sum stands at %+v", span)
	}
}

func TestAPasswordIsNotShown(t *testing.T) {
	source := "DEFINE USER 'ada' ON STORE PASSWORD 'sec\\'ret' ROLE owner; ALTER USER 'ada' ON STORE password \"hidden\";"
	script := mustParse(t, source)
	for _, statement := range script.Statements {
		if text := script.Text(statement); strings.Contains(text, "ret") || strings.Contains(text, "hidden") || !strings.Contains(text, "'ada'") {
			t.Errorf("shown as %s", text)
		}
	}
	_, err := Parse(source + " COMIT")
	if err == nil || strings.Contains(err.Error(), "ret") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
	password := script.Statements[0].(*DefineUser).Password.(*Literal).Value
	if text, _ := password.AsString(); text != "sec'ret" {
		t.Errorf("the password is %q", text)
	}
}

func TestAnExpressionAloneParsesToItsEnd(t *testing.T) {
	e, err := ParseExpression("total >= 0 AND total < 1e6")
	if err != nil || e.String() != "total >= 0 AND total < 1000000.0" {
		t.Fatalf("%v, %v", e, err)
	}
	for _, source := range []string{"", "a b", "a;", "1 +", "a = 1; DROP TOPIC t", "-- nothing"} {
		if e, err := ParseExpression(source); !errors.Is(err, fault.Syntax) {
			t.Errorf("%q parsed as %v, %v", source, e, err)
		}
	}
}

func TestAProjectionIsNamedByItsText(t *testing.T) {
	script := mustParse(t, "SELECT a.b, a[0].c, count(), sum(total), a+1, x AS y, limit, `none` FROM t")
	want := []string{"a.b", "a[0].c", "count", "sum(total)", "a + 1", "y", "limit", "none"}
	for i, projection := range script.Statements[0].(*Select).Projections {
		if name := projection.Name(); name != want[i] {
			t.Errorf("projection %d is named %s, wanted %s", i, name, want[i])
		}
	}
}

func TestNoErrorShowsAPassword(t *testing.T) {
	for _, source := range []string{
		"DEFINE USER 'a' PASSWORD 'hush'",
		"DEFINE USER 'a' ON STORE PASSWORD 'hush",
		"DEFINE USER 'a' ON STORE PASSWORD hush",
		"DEFINE USER 'a' ON STORE PASSWORD hush-hush! ROLE owner",
		"DEFINE USER 'a' ON STORE PASSWORD = 'hush'",
		"DEFINE USER 'a' ON STORE PASSWORD 'x' 'hush'",
		"DEFINE USER 'a' ON STORE PASSWORD 'hu\\'hush' nonsense",
		"DEFINE USER 'a' ON STORE ROLE king PASSWORD \"hush\"",
		"ALTER USER 'a' ON STORE\n PASSWORD /* why */ 'hush' ROLE",
		"ALTER USER 'a' ON STORE PASSWORD 'hush' PASSWORD 'hush'",
		"DEFINE USER 'a' ON STORE PASSWORD 'hush'; ALTER USER 'a' ON STORE PASSWORD 'hush' x",
		"DEFINE USER 'a' ON STORE PASSWRD 'hush'",
		"ALTER USER 'a' ON STORE 'hush'",
		"define user if not exists \"a\" ON STORE PASSWRD 'x' 'hush'",
		"DEFINE USER IF NOT EXIST 'a' ON STORE 'hush'",
	} {
		_, err := Parse(source)
		if err == nil {
			t.Errorf("%s parses", source)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s is answered by %s", source, err)
		}
	}
}

func TestWhatIsNoPasswordIsShown(t *testing.T) {
	for _, source := range []string{
		"CREATE users = { password_age: 1d, name: 'ada' }",
		"SELECT user FROM orders WHERE a = 'ada' AND b = 'bob'",
		"DROP USER 'ada' ON STORE",
		"DEFINE USER 'ada' ON STORE PASSWORD ''; CREATE users = ['ada', 'bob']",
	} {
		script, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		var shown []string
		for _, statement := range script.Statements {
			shown = append(shown, script.Text(statement))
		}
		if text := strings.Join(shown, "; "); text != source {
			t.Errorf("%s is shown as %s", source, text)
		}
	}
}
