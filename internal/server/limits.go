package server

import (
	"reflect"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// Limits bound what callers may take of a node. Each is a setting of tidemark
// serve, whose name, default and reason stand in the tags; a zero field is the
// default.
type Limits struct {
	RequestBytes       int64 `name:"request-bytes" default:"8388608" help:"Largest request, in bytes: the body of POST /sql, or a WebSocket frame. A larger one is refused with 413 or closes the session with 1009. Raise it to append larger messages."`
	RequestMemoryBytes int64 `name:"request-memory-bytes" default:"268435456" help:"What all requests that are held in memory may take together, in bytes, as they arrive and as they are parsed, which may be many times as much. Past it a client's next ones wait for its own, and others are refused with 503."`
	Statements         int   `name:"statements" default:"10000" help:"Statements a request may hold. Their answers are held until the last is known."`
	AnswerRows         int   `name:"answer-rows" default:"100000" help:"Rows that one statement may answer: those that a SELECT finds, and those that an INSERT, UPDATE or DELETE writes. An answer is held in memory; ask for more in pages, write more in parts."`
	AnswerBytes        int64 `name:"answer-bytes" default:"67108864" help:"Bytes that one statement, and all statements of a request together, may answer."`
	AnswerMemoryBytes  int64 `name:"answer-memory-bytes" default:"536870912" help:"What the answers of all sessions that are not sent yet may take together, in bytes. Past it a session runs nothing more while its client takes no answers."`

	StatementTime   time.Duration `name:"statement-time" default:"90s" help:"How long one statement may run before it answers Timeout. Longer than the longest WAIT, which is 60s."`
	TransactionIdle time.Duration `name:"transaction-idle" default:"60s" help:"How long an open transaction may be left alone before it is rolled back. It keeps old rows on the disk."`
	ReadTime        time.Duration `name:"read-time" default:"20s" help:"How long a client may take to send a request's headers, and its body or frame. Slower ones are cut off."`
	WriteTime       time.Duration `name:"write-time" default:"30s" help:"How long a client may take to take an answer. Slower ones are cut off; their answers are held in memory."`
	IdleTime        time.Duration `name:"idle-time" default:"2m" help:"How long an HTTP connection may stay open between two requests."`
	PingEvery       time.Duration `name:"ping-every" default:"30s" help:"How often a silent WebSocket is asked whether its client is still there. One that does not answer before the next is closed."`

	Sessions           int `name:"sessions" default:"4096" help:"Sessions at once: WebSockets, and HTTP requests while they run. Each takes about 50 KiB."`
	SessionsPerAddress int `name:"sessions-per-address" default:"1024" help:"Sessions at once of one address (of one /64 network in IPv6), so that one client leaves room for others. Raise it where all clients come through one proxy."`
	WaitingReads       int `name:"waiting-reads" default:"8192" help:"Reads that wait at once, of all sessions: READ ... WAIT and FOLLOW."`
	Follows            int `name:"follows" default:"64" help:"FOLLOWs that one session may have open. Each holds a page of messages while its client takes none."`
	Pipelined          int `name:"pipelined" default:"8192" help:"Requests of one session that may be on their way at once. A client past it waits until answers are taken."`
}

// DefaultLimits are the limits of a node that was told nothing else.
func DefaultLimits() Limits {
	return Limits{
		RequestBytes:       8 << 20,
		RequestMemoryBytes: 256 << 20,
		Statements:         10_000,
		AnswerRows:         100_000,
		AnswerBytes:        64 << 20,
		AnswerMemoryBytes:  512 << 20,
		StatementTime:      90 * time.Second,
		TransactionIdle:    60 * time.Second,
		ReadTime:           20 * time.Second,
		WriteTime:          30 * time.Second,
		IdleTime:           2 * time.Minute,
		PingEvery:          30 * time.Second,
		Sessions:           4096,
		SessionsPerAddress: 1024,
		WaitingReads:       8192,
		Follows:            64,
		Pipelined:          8192,
	}
}

// Check returns fault.InvalidClause for limits that allow nothing, which names the
// setting.
func (l Limits) Check() error {
	fields := reflect.ValueOf(l)
	for i := range fields.NumField() {
		if fields.Field(i).Int() <= 0 {
			tag := fields.Type().Field(i).Tag
			return fault.New(fault.InvalidClause, "%s takes more than 0, not %v; left out, it is %s",
				tag.Get("name"), fields.Field(i), tag.Get("default"))
		}
	}
	return nil
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	l.RequestBytes = orDefault(l.RequestBytes, d.RequestBytes)
	l.RequestMemoryBytes = max(orDefault(l.RequestMemoryBytes, d.RequestMemoryBytes), l.RequestBytes)
	l.Statements = orDefault(l.Statements, d.Statements)
	l.AnswerRows = orDefault(l.AnswerRows, d.AnswerRows)
	l.AnswerBytes = orDefault(l.AnswerBytes, d.AnswerBytes)
	l.AnswerMemoryBytes = orDefault(l.AnswerMemoryBytes, d.AnswerMemoryBytes)
	l.StatementTime = orDefault(l.StatementTime, d.StatementTime)
	l.TransactionIdle = orDefault(l.TransactionIdle, d.TransactionIdle)
	l.ReadTime = orDefault(l.ReadTime, d.ReadTime)
	l.WriteTime = orDefault(l.WriteTime, d.WriteTime)
	l.IdleTime = orDefault(l.IdleTime, d.IdleTime)
	l.PingEvery = orDefault(l.PingEvery, d.PingEvery)
	l.Sessions = orDefault(l.Sessions, d.Sessions)
	l.SessionsPerAddress = orDefault(l.SessionsPerAddress, d.SessionsPerAddress)
	l.WaitingReads = orDefault(l.WaitingReads, d.WaitingReads)
	l.Follows = orDefault(l.Follows, d.Follows)
	l.Pipelined = orDefault(l.Pipelined, d.Pipelined)
	return l
}

func orDefault[T int | int64 | time.Duration](given, otherwise T) T {
	if given <= 0 {
		return otherwise
	}
	return given
}
