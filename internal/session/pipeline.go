package session

import (
	"context"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// StartAppend begins a script that is a single CREATE or INSERT into a topic,
// outside a transaction, and does not wait for its commit: so a caller who has
// more to append shares one sync among all of it. It reports false, and has
// done nothing, for every other script; Run is for those.
//
// done is called once, from any goroutine, with a function that makes the
// answer; it must return soon, since other callers' answers wait for it. What
// one session starts is appended in the order of the calls. Whatever else the
// session is to run waits until all that was started is done, so that it sees
// it.
func (s *Session) StartAppend(ctx context.Context, script *lang.Script, params map[string]value.Value, done func(answer func() Answer)) bool {
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
	e := &environment{ctx: ctx, store: s.store, params: params, limits: s.limits}
	refuse := func(err error) {
		answer := failed(err)
		done(func() Answer { return answer })
	}
	rows, err := e.rowsOf(statement)
	if err != nil {
		refuse(err)
		return true
	}
	// What the session is by then is nobody's to look at.
	passOn := s.passOn
	err = s.database.AppendAsync(ctx, table, func(appended []store.Message, err error) {
		done(func() Answer {
			if err != nil {
				return failed(err)
			}
			answer := Answer{messages: appended}
			if passOn && len(appended) > 0 {
				return answer
			}
			answer, err = answer.decoded()
			if err != nil {
				return failed(err)
			}
			return answer
		})
	}, messagesOf(rows)...)
	if err != nil {
		refuse(err)
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

// rowsOf are the rows that a CREATE or an INSERT writes.
func (e *environment) rowsOf(statement lang.Statement) ([]newRow, error) {
	switch x := statement.(type) {
	case *lang.Create:
		row, err := e.createdRow(x)
		return []newRow{row}, err
	case *lang.Insert:
		return e.insertedRows(x)
	}
	return nil, fault.New(fault.Internal, "not a statement that creates rows: %s", statement)
}
