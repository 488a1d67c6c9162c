package main

import (
	"context"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// caller runs scripts: a session of a store opened here, or one on a node.
type caller interface {
	RunScript(ctx context.Context, script *lang.Script, params map[string]value.Value, tell func(lang.Statement, session.Answer))
	Close()
}

// remote runs scripts on a node.
type remote struct {
	session *client.Session
	// inTransaction says that a transaction was begun and not ended.
	inTransaction bool
}

// dial opens a session on the node at a URL.
func dial(ctx context.Context, url string, options client.Options) (*remote, error) {
	session, err := client.Dial(ctx, url, options)
	if err != nil {
		return nil, err
	}
	return &remote{session: session}, nil
}

// Close ends the session.
func (r *remote) Close() { _ = r.session.Close() }

// RunScript runs a script as session.RunScript does. Each statement is a request
// of its own, so that its answer is told when it is known, but a transaction
// that stands whole in the script, which the node may so run again.
func (r *remote) RunScript(ctx context.Context, script *lang.Script, params map[string]value.Value, tell func(lang.Statement, session.Answer)) {
	statements := script.Statements
	for len(statements) > 0 {
		unit := statements[:session.Unit(statements, r.inTransaction)]
		statements = statements[len(unit):]
		text := script.Source[unit[0].Span().Start:unit[len(unit)-1].Span().End]
		answers, err := r.session.Run(ctx, text, params)
		for i, statement := range unit {
			switch {
			case err != nil:
				tell(statement, session.Answer{Err: fault.Of(err)})
			case i < len(answers):
				r.note(statement, answers[i].Err == nil)
				tell(statement, answerOf(answers[i]))
			case len(answers) == 1:
				// The request was refused as a whole.
				tell(statement, answerOf(answers[0]))
			default:
				tell(statement, session.Answer{Err: fault.Of(fault.New(fault.Internal, "the node gave %d answers to %d statements", len(answers), len(unit)))})
			}
		}
	}
}

// answerOf is an answer of a node.
func answerOf(a client.Answer) session.Answer {
	return session.Answer{Value: a.Value, Lapsed: a.Lapsed, Err: a.Err}
}

// note keeps whether a transaction is open.
func (r *remote) note(statement lang.Statement, ok bool) {
	switch statement.(type) {
	case *lang.Begin:
		r.inTransaction = r.inTransaction || ok
	case *lang.Commit, *lang.Cancel:
		r.inTransaction = false
	}
}

// Lost is why the session has ended, nil while it has not.
func (r *remote) Lost() error { return r.session.Ended() }
