package session

import (
	"context"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// Passed is a parameter of a script as the client encoded it: a topic takes it
// without its being decoded. The zero value is none.
type Passed struct {
	Name string
	// Encoded is as value.CBORReader.Stored reads it.
	Encoded []byte
}

func (p Passed) is(name string) bool { return p.Encoded != nil && p.Name == name }

// Appended is what became of a script that StartAppend began.
type Appended struct {
	messages             []store.Message
	err                  error
	passOn, times, brief bool
}

// Brief is the same without the values of the messages, for an appender who
// knows them: they are not kept until the answer is sent.
func (a Appended) Brief() Appended {
	for i, m := range a.messages {
		a.messages[i] = m.WithoutValue()
	}
	a.brief = true
	return a
}

// Bytes is about how much memory it takes.
func (a Appended) Bytes() int { return Answer{messages: a.messages}.Bytes() }

// Answer is the answer to the script's statement.
func (a Appended) Answer() Answer {
	if a.err != nil {
		return failed(a.err)
	}
	answer := Answer{messages: a.messages, times: a.times, brief: a.brief}
	if a.passOn && len(a.messages) > 0 {
		return answer
	}
	answer, err := answer.decoded()
	if err != nil {
		return failed(err)
	}
	return answer
}

// StartAppend begins a script that is a single CREATE or INSERT into a topic,
// outside a transaction, and does not wait for its commit: so a caller who has
// more to append shares one sync among all of it. It reports false, and has
// done nothing, for every other script; Run is for those.
//
// done is called once, from any goroutine; it must return soon, since other
// callers' answers wait for it. What one session starts is appended in the order
// of the calls. Whatever else the session is to run waits until all that was
// started is done, so that it sees it.
func (s *Session) StartAppend(ctx context.Context, script *lang.Script, params map[string]value.Value, passed Passed, done func(Appended)) bool {
	if len(script.Statements) != 1 || s.tx != nil {
		return false
	}
	statement := script.Statements[0]
	table, ok := appendsTo(statement)
	if !ok {
		return false
	}
	s.params = params
	if err := s.authorize(ctx, statement); err != nil || s.authority.isStranger() {
		return false // Run says why, or goes through the door.
	}
	if isTopic, err := s.isTopic(ctx, table); err != nil || !isTopic {
		return false
	}
	e := &environment{ctx: ctx, store: s.store, params: params, passed: passed, limits: s.limits}
	messages, err := e.messagesOf(statement)
	if err != nil {
		done(Appended{err: err})
		return true
	}
	// What the session is by then is nobody's to look at.
	passOn, times := s.passOn, s.times
	err = s.database.AppendAsync(ctx, table, func(appended []store.Message, err error) {
		done(Appended{messages: appended, err: err, passOn: passOn, times: times})
	}, messages...)
	if err != nil {
		done(Appended{err: err})
	}
	return true
}

// appendsTo is the table that a statement writes new rows to.
func appendsTo(statement lang.Statement) (table string, ok bool) {
	switch x := statement.(type) {
	case *lang.Create:
		return x.Target.Table, true
	case *lang.Insert:
		return x.Table, true
	}
	return "", false
}

// messagesOf are the messages that a CREATE or an INSERT appends.
func (e *environment) messagesOf(statement lang.Statement) ([]store.NewMessage, error) {
	switch x := statement.(type) {
	case *lang.Create:
		row, err := e.createdRow(x)
		return []store.NewMessage{row.message()}, err
	case *lang.Insert:
		rows, err := e.insertedRows(x)
		return messagesOf(rows), err
	}
	return nil, fault.New(fault.Internal, "not a statement that creates rows: %s", statement)
}
