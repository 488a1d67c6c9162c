package session

import (
	"context"
	"time"

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

// appendStanding is what the caller may append to, as it was read once for many
// appends: where other processes change users and definitions, every look is a
// round trip to what is shared.
type appendStanding struct {
	// read is when the reading began, zero for never.
	read      time.Time
	authority authority
	// catalog is of the database in use, as new as the authority.
	catalog *store.Catalog
}

// appendStandingAge bounds how long appends that were received together may run
// on one reading, should they be held up.
const appendStandingAge = 100 * time.Millisecond

// holds reports whether it tells of a request that was received at a time: it was
// read since, and a moment ago. So of a caller who was stopped nothing is appended
// that is sent afterwards.
func (a *appendStanding) holds(received time.Time) bool {
	return a.read.After(received) && time.Since(a.read) < appendStandingAge
}

// standForAppends finds out what the caller may append to, unless that is known of
// the time at which the request was received.
func (s *Session) standForAppends(ctx context.Context, received time.Time) error {
	if s.appending.holds(received) {
		return nil
	}
	next := appendStanding{read: time.Now()}
	s.appending = appendStanding{}
	var err error
	if next.authority, err = s.standing(ctx); err != nil || next.authority.isStranger() {
		return err
	}
	if next.authority.all {
		if err := s.see(ctx); err != nil {
			return err
		}
	}
	if next.catalog = next.authority.catalog; next.catalog == nil {
		database, err := s.inDatabase()
		if err != nil {
			return err
		}
		if next.catalog, err = database.NewestCatalog(ctx); err != nil {
			return err
		}
	}
	s.appending = next
	return nil
}

// mayAppend reports whether the caller may run a statement, which writes new rows
// to a table, and that is a topic. Where it reports false the newest definitions
// may say otherwise.
func (a *appendStanding) mayAppend(statement lang.Statement, table string) bool {
	if a.read.IsZero() || a.authority.checkAll(statement) != nil {
		return false
	}
	found, err := a.catalog.Table(table)
	return err == nil && found.Kind == store.Topic
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
//
// received is when the request came. Requests that came together and are begun
// one after another may share one look at what the caller may do, which is not
// older than the request.
func (s *Session) StartAppend(ctx context.Context, received time.Time, script *lang.Script, params map[string]value.Value, passed Passed, done func(Appended)) bool {
	if len(script.Statements) != 1 || s.tx != nil {
		return false
	}
	statement := script.Statements[0]
	table, ok := appendsTo(statement)
	if !ok {
		return false
	}
	if err := s.standForAppends(ctx, received); err != nil || !s.appending.mayAppend(statement, table) {
		return false // Run says why, or goes through the door.
	}
	s.authority = s.appending.authority
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
