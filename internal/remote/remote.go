// Package remote runs scripts on a node as package session runs them in a
// process: a caller of either has the same answers. It knows the wire by
// client/go alone.
package remote

import (
	"context"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// Session is a session on a node. It is used by one goroutine at a time.
type Session struct {
	session *client.Session
	// inTransaction says that a transaction was begun and not ended.
	inTransaction bool
}

// Dial opens a session on the node at a URL.
func Dial(ctx context.Context, url string, options client.Options) (*Session, error) {
	session, err := client.Dial(ctx, url, options)
	if err != nil {
		return nil, err
	}
	return &Session{session: session}, nil
}

// Close ends the session.
func (s *Session) Close() { _ = s.session.Close() }

// Lost is why the session has ended, nil while it has not.
func (s *Session) Lost() error { return s.session.Ended() }

// RunScript runs a script as session.RunScript does. Each statement is a request
// of its own, so that its answer is told when it is known, but a transaction
// that stands whole in the script, which the node may so run again. A FOLLOW it
// refuses, as a process without a WebSocket does.
func (s *Session) RunScript(ctx context.Context, script *lang.Script, params map[string]value.Value, tell func(lang.Statement, session.Answer)) {
	statements := script.Statements
	for len(statements) > 0 {
		unit := statements[:session.Unit(statements, s.inTransaction)]
		statements = statements[len(unit):]
		if _, follows := unit[0].(*lang.Follow); follows && !s.inTransaction {
			// The node would push to nobody.
			tell(unit[0], session.Answer{Err: fault.Of(session.ErrFollowAlone)})
			continue
		}
		text := script.Source[unit[0].Span().Start:unit[len(unit)-1].Span().End]
		answers, err := s.session.Run(ctx, text, params)
		for i, statement := range unit {
			switch {
			case err != nil:
				tell(statement, session.Answer{Err: fault.Of(err)})
			case i < len(answers):
				s.note(statement, answers[i].Err == nil)
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
func (s *Session) note(statement lang.Statement, ok bool) {
	switch statement.(type) {
	case *lang.Begin:
		s.inTransaction = s.inTransaction || ok
	case *lang.Commit, *lang.Cancel:
		s.inTransaction = false
	}
}
