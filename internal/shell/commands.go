package shell

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// command is what begins with a backslash.
type command struct {
	name, argument, help string
	run                  func(s *Shell, ctx context.Context, argument string) (quit bool)
}

// commands are all of them, in the order of \help. It is filled by init, since
// \help shows them.
var commands []command

func init() {
	commands = []command{
		{`\help`, "", "show this", (*Shell).help},
		{`\d`, "[name]", "show the tables and topics of the database, or what a name is", (*Shell).describe},
		{`\l`, "", "list namespaces and their databases", (*Shell).list},
		{`\use`, "namespace/database", "use a namespace and a database", (*Shell).use},
		{`\i`, "file", "run the statements of a file", (*Shell).include},
		{`\watch`, "[seconds]", "run the last statement again and again, every two seconds, until Ctrl-C", (*Shell).watch},
		{`\timing`, "", "show how long statements take, or no more", (*Shell).toggleTiming},
		{`\json`, "", "show answers as JSON, or as tables again", (*Shell).toggleJSON},
		{`\q`, "", "leave, as Ctrl-D does", func(*Shell, context.Context, string) bool { return true }},
	}
}

// command runs a command.
func (s *Shell) command(ctx context.Context, input string) (quit bool) {
	name, argument, _ := strings.Cut(input, " ")
	if name == `\?` || name == `\h` {
		name = `\help`
	}
	for _, c := range commands {
		if c.name == name {
			return c.run(s, ctx, strings.TrimSpace(argument))
		}
	}
	s.refuse(`there is no command %s; \help shows those that there are`, name)
	return false
}

func (s *Shell) refuse(format string, args ...any) {
	s.show(session.Answer{Err: fault.Of(fault.New(fault.Syntax, format, args...))})
}

func (s *Shell) help(context.Context, string) bool {
	for _, c := range commands {
		fmt.Fprintf(s.options.Out, "  %-26s %s\n", c.name+" "+c.argument, c.help)
	}
	fmt.Fprint(s.options.Out, `
A statement ends with a semicolon and may have several lines. Tab completes
keywords and names, Ctrl-R searches what was typed before, Ctrl-C gives up the
line or the statement that runs, Ctrl-D leaves.
`)
	return false
}

func (s *Shell) describe(ctx context.Context, name string) bool {
	if name == "" {
		s.run(ctx, "INFO FOR DATABASE;")
		return false
	}
	if !s.reopen(ctx) {
		return false
	}
	kind := "TABLE"
	failed := s.quietly(ctx, "INFO FOR DATABASE;", func(info value.Value) {
		if contains(info, "topics", name) {
			kind = "TOPIC"
		}
	})
	if failed != nil {
		s.show(session.Answer{Err: failed})
		s.checkLost()
		return false
	}
	s.run(ctx, "INFO FOR "+kind+" "+value.QuoteIdentifier(name)+";")
	return false
}

// contains reports whether a field of an object lists a name.
func contains(info value.Value, field, name string) bool {
	fields, _ := info.AsObject()
	listed, _ := fields[field].AsArray()
	for _, v := range listed {
		if text, ok := v.AsString(); ok && text == name {
			return true
		}
	}
	return false
}

func (s *Shell) list(ctx context.Context, _ string) bool {
	if !s.reopen(ctx) {
		return false
	}
	if s.inTransaction {
		s.refuse(`\l uses one namespace after another, which a transaction does not; COMMIT or CANCEL first`)
		return false
	}
	var namespaces []string
	failed := s.quietly(ctx, "INFO FOR STORE;", func(info value.Value) { namespaces = listed(info, "namespaces") })
	for _, namespace := range namespaces {
		if failed == nil {
			failed = s.quietly(ctx, "USE NAMESPACE "+value.QuoteIdentifier(namespace)+"; INFO FOR NAMESPACE;", func(info value.Value) {
				databases := listed(info, "databases")
				fmt.Fprintf(s.options.Out, "%s\n", namespace)
				for _, database := range databases {
					fmt.Fprintf(s.options.Out, "  %s/%s\n", namespace, database)
				}
			})
		}
	}
	if use := s.useStatements(); use != "" && failed == nil {
		failed = s.quietly(ctx, use, nil)
	}
	if failed != nil {
		s.show(session.Answer{Err: failed})
	}
	s.checkLost()
	return false
}

// listed are the names that a field of an object lists.
func listed(info value.Value, field string) []string {
	fields, _ := info.AsObject()
	elements, _ := fields[field].AsArray()
	var names []string
	for _, v := range elements {
		if name, ok := v.AsString(); ok {
			names = append(names, name)
		}
	}
	return names
}

func (s *Shell) use(ctx context.Context, argument string) bool {
	namespace, database, both := strings.Cut(argument, "/")
	if namespace == "" || both && database == "" {
		s.refuse(`\use takes namespace/database, or a namespace`)
		return false
	}
	statements := "USE NAMESPACE " + value.QuoteIdentifier(namespace) + ";"
	if both {
		statements += " USE DATABASE " + value.QuoteIdentifier(database) + ";"
	}
	s.run(ctx, statements)
	return false
}

func (s *Shell) include(ctx context.Context, name string) bool {
	if name == "" {
		s.refuse(`\i takes the name of a file`)
		return false
	}
	s.readFile(ctx, name)
	return false
}

// watchEvery is how often \watch runs the statement when it is not told.
const watchEvery = 2 * time.Second

func (s *Shell) watch(ctx context.Context, argument string) bool {
	every := watchEvery
	if argument != "" {
		seconds, err := strconv.ParseFloat(argument, 64)
		if err != nil || !(seconds >= 0.1 && seconds <= 86400) {
			s.refuse(`\watch takes a number of seconds from 0.1 to 86400, not %s`, argument)
			return false
		}
		every = time.Duration(seconds * float64(time.Second))
	}
	if s.last == "" {
		s.refuse(`\watch runs the last statement again, and there is none yet`)
		return false
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	defer s.options.Interrupted(stop)()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if s.options.Colour {
			fmt.Fprint(s.options.Out, clearScreen)
		}
		fmt.Fprintf(s.options.Out, "%s, every %s, until Ctrl-C: %s\n", time.Now().Format(time.TimeOnly), every, strings.TrimSpace(s.last))
		s.run(watching, s.last)
		select {
		case <-watching.Done():
			return false
		case <-ticker.C:
		}
	}
}

func (s *Shell) toggleTiming(context.Context, string) bool {
	s.timing = !s.timing
	fmt.Fprintf(s.options.Out, "timing is %s\n", onOff(s.timing))
	return false
}

func (s *Shell) toggleJSON(context.Context, string) bool {
	s.json = !s.json
	fmt.Fprintf(s.options.Out, "JSON is %s\n", onOff(s.json))
	return false
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
