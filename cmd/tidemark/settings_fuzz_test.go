package main

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// FuzzSettings holds that a file of settings is either taken or refused with a
// reason, and that what was taken can be printed as a file that is taken.
func FuzzSettings(f *testing.F) {
	for _, file := range []string{
		"", "listen: 127.0.0.1:0\n", "listen: [1, 2]\n", "shutdown-time: 3s\nlog-level: warn\n", "limits: {a: 1}\n",
		"origin:\n- https://a.example\n- https://b.example\n", "log-level: none\n", "nothing: 1\n", "a: &a [*a]\n", "- 1\n", "\x00", "listen: !!binary aGk=\n",
	} {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file string) {
		printed, err := printedSettings(file)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("it is refused without a reason")
			}
			return
		}
		again, err := printedSettings(printed)
		if err != nil {
			t.Fatalf("what was printed is refused: %v\n%s", err, printed)
		}
		if again != printed {
			t.Fatalf("printed\n%s\nand taken again\n%s", printed, again)
		}
	})
}

// printedSettings are the settings that a file comes to, as serve
// --print-config prints them.
func printedSettings(file string) (string, error) {
	resolver, err := loadSettings(strings.NewReader(file))
	if err != nil {
		return "", err
	}
	var c commands
	parser, err := kong.New(&c, kong.Resolvers(resolver), kong.PostBuild(nameEnvironment), kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) {}))
	if err != nil {
		return "", err
	}
	context, err := parser.Parse([]string{"serve"})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = printSettings(&out, context.Selected())
	return out.String(), err
}
