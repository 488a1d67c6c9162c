package export

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/value"
)

// Run runs statements and returns what the last answered, or the first error.
type Run func(ctx context.Context, statements string, params map[string]value.Value) (value.Value, error)

// ReadOptions say how an import goes.
type ReadOptions struct {
	// Skip is how many lines (of JSON), or statements, are passed over.
	Skip int
	// Overwrite replaces records that are there; otherwise they are refused. Of
	// statements it is fault.InvalidClause: they say themselves what they do.
	Overwrite bool
	// Into says that everything goes into the database in use: what a script
	// says of namespaces and databases is passed over.
	Into bool
	// Tell, unless nil, is called with how many lines or statements are done.
	Tell func(done int)
}

// Stopped is why an import stopped, and how far it was: all that is done is
// committed, and nothing after it, unless the error is that the outcome is not
// known.
type Stopped struct {
	// Done is how many lines or statements are done, those skipped included.
	Done int
	// What is "line" or "statement".
	What  string
	cause error
}

// Error says where it stopped and how to go on.
func (s *Stopped) Error() string {
	return fmt.Sprintf("%v\nstopped at %s %d; the %d before it are in the store. When that is mended, go on with --skip %d", s.cause, s.What, s.Done+1, s.Done, s.Done)
}

// Unwrap is why it stopped.
func (s *Stopped) Unwrap() error { return s.cause }

// Read imports an export: JSON where it begins with a brace, statements
// otherwise. Rows are committed in batches. Its error is a *Stopped.
func Read(ctx context.Context, from io.Reader, run Run, options ReadOptions) (done int, err error) {
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		first, err := in.Peek(1)
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if first[0] != ' ' && first[0] != '\n' && first[0] != '\t' && first[0] != '\r' {
			if first[0] == '{' {
				return readJSON(ctx, in, run, options)
			}
			if options.Overwrite {
				return 0, fault.New(fault.InvalidClause, "a script of statements overwrites nothing but what it says itself; only JSON is imported with overwrite")
			}
			return readStatements(ctx, in, run, options)
		}
		_, _ = in.ReadByte() // It was peeked at.
	}
}

// maxPiece bounds a line and a statement: what a node takes as one request is
// less, by default.
const maxPiece = 64 << 20

// readStatements runs statements as they end, a whole BEGIN … COMMIT at once.
func readStatements(ctx context.Context, in *bufio.Reader, run Run, options ReadOptions) (done int, err error) {
	stopped := func(cause error) error { return &Stopped{Done: done, What: "statement", cause: cause} }
	var rest, unit strings.Builder
	seen := 0
	for {
		line, readErr := in.ReadString('\n')
		atEnd := errors.Is(readErr, io.EOF)
		rest.WriteString(line)
		switch {
		case readErr != nil && !atEnd:
			return done, stopped(readErr)
		case rest.Len()+unit.Len() > maxPiece:
			return done, stopped(fault.New(fault.TooLarge, "a statement, or a transaction, has more than %d bytes", maxPiece))
		case !atEnd && !strings.Contains(line, ";"):
			// It ends nothing, and all that came before it would be looked at again.
			continue
		}
		statements, unended := lang.Split(rest.String())
		rest.Reset()
		rest.WriteString(unended)
		if atEnd && unended != "" {
			statements = append(statements, unended)
		}
		for _, statement := range statements {
			seen++
			uses, defines := namesDatabase(statement)
			if seen <= options.Skip && !uses || options.Into && (uses || defines) {
				done = seen
				continue
			}
			unit.WriteString(statement)
			if isTransactionOpen(unit.String()) {
				continue
			}
			if _, err := run(ctx, unit.String(), nil); err != nil {
				return done, stopped(err)
			}
			unit.Reset()
			done = seen
			if options.Tell != nil {
				options.Tell(done)
			}
		}
		if !atEnd {
			continue
		}
		if unit.Len() > 0 {
			return done, stopped(fault.New(fault.TransactionFailed, "the script ends within a transaction"))
		}
		return done, nil
	}
}

// beginWord is in every transaction.
var beginWord = regexp.MustCompile(`(?i)\bBEGIN\b`)

// isTransactionOpen reports whether statements leave a transaction open.
func isTransactionOpen(statements string) bool {
	if !beginWord.MatchString(statements) {
		return false
	}
	script, err := lang.Parse(statements)
	if err != nil {
		return false // Running it says what is wrong.
	}
	open := false
	for _, statement := range script.Statements {
		switch statement.(type) {
		case *lang.Begin:
			open = true
		case *lang.Commit, *lang.Cancel:
			open = false
		}
	}
	return open
}

// placeWord is in every statement that namesDatabase looks for.
var placeWord = regexp.MustCompile(`(?i)\b(NAMESPACE|DATABASE)\b`)

// namesDatabase reports whether a statement says which namespace or database
// what follows is of, by USE, which counts also where others are passed over,
// or defines one.
func namesDatabase(statement string) (uses, defines bool) {
	if !placeWord.MatchString(statement) {
		return false, false
	}
	script, err := lang.Parse(statement)
	if err != nil || len(script.Statements) != 1 {
		return false, false
	}
	switch x := script.Statements[0].(type) {
	case *lang.Use:
		return true, false
	case *lang.Define:
		return false, x.Kind == lang.Namespace || x.Kind == lang.Database
	}
	return false, false
}

// readLine reads a line, without its end.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxPiece:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fault.New(fault.TooLarge, "a line has more than %d bytes", maxPiece)
		case errors.Is(err, io.EOF) && len(line) > 0:
			return bytes.TrimSpace(line), nil
		}
		return bytes.TrimSpace(line), err
	}
}
