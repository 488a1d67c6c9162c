package client

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/value"
)

// Backend is what carries the API to a store: the wire, behind Connect, or the
// store that a process has opened itself, behind package tidemark. Programs use
// neither; they use a Store.
type Backend interface {
	// Database opens a database of a namespace, both created where missing.
	Database(ctx context.Context, namespace, name string) (BackendDatabase, error)
	// Close lets go of the store.
	Close() error
}

// BackendDatabase carries a database. Its methods are safe for concurrent use.
type BackendDatabase interface {
	// Run runs a script in a session of its own, one answer a statement.
	Run(ctx context.Context, script string, params map[string]value.Value) ([]Answer, error)
	// Begin starts a transaction.
	Begin(ctx context.Context) (BackendTx, error)
	// Append appends in a commit of its own; appended is false for a message
	// that deduplication kept out.
	Append(ctx context.Context, topic string, message NewMessage) (m Message, appended bool, err error)
	// AppendAsync appends in the order of the calls, and calls done once.
	AppendAsync(ctx context.Context, topic string, message NewMessage, done func(m Message, appended bool, err error)) error
	// Read reads, for a group where the request names one.
	Read(ctx context.Context, topic string, request ReadRequest) (Page, error)
	// Follow pushes pages until handle fails or ctx ends. after is nil to begin
	// with the next message that commits.
	Follow(ctx context.Context, topic string, after *uint64, handle func(Page) error) error
	// Settle settles messages that a group has in flight.
	Settle(ctx context.Context, topic, group string, settlement Settlement) (int, error)
}

// BackendTx carries a transaction. It is used by one goroutine at a time.
type BackendTx interface {
	Run(ctx context.Context, script string, params map[string]value.Value) ([]Answer, error)
	Append(ctx context.Context, topic string, message NewMessage) error
	Put(ctx context.Context, table string, key, record value.Value) error
	// Read reads for a consumer. It waits, as long as the request says, only
	// where it is the first that the transaction does.
	Read(ctx context.Context, topic string, request ReadRequest) (Page, error)
	// Settle settles messages that a group has in flight.
	Settle(ctx context.Context, topic, group string, settlement Settlement) (int, error)
	Commit(ctx context.Context) (map[string]Appended, error)
	// Cancel ends the transaction, also one that has ended.
	Cancel()
}

// BackendMessage is a message that was read or appended.
type BackendMessage interface {
	Position() uint64
	ID() value.RecordID
	Appended() time.Time
	Deliveries() uint32
	Headers() map[string]string
	Value() (value.Value, error)
}

// NewMessage is a message to append.
type NewMessage struct {
	// Key is that of its identity, none for one that the store generates.
	Key   value.Value
	Value value.Value
}

// ReadRequest says which messages a backend reads.
type ReadRequest struct {
	// Consumer is the reader or group that reads, empty for a read without a
	// name; After is only such a read's.
	Consumer string
	After    uint64
	// Limit is 0 for the default.
	Limit int
	Wait  time.Duration
}

// Verb is what a worker says of messages that it holds.
type Verb string

// What a worker says of messages that it holds.
const (
	VerbAck     Verb = "ACK"
	VerbNack    Verb = "NACK"
	VerbExtend  Verb = "EXTEND"
	VerbReject  Verb = "REJECT"
	VerbRelease Verb = "RELEASE"
)

// Settlement is what a worker says of messages, each named by its position and
// which hand-out of it is meant.
type Settlement struct {
	Verb     Verb
	Messages []Message
	// Delay of a NACK, nil for the group's BACKOFF.
	Delay *time.Duration
	// By of an EXTEND, 0 for the group's own deadline.
	By time.Duration
	// Reason of a REJECT.
	Reason string
}
