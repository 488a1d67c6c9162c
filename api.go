package tidemark

import (
	"context"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
)

// The API is one, wherever the store is: these are the types of package client,
// whose documentation tells what they do.
type (
	// Store is an open store; Store.Database opens a database of it.
	Store = client.Store
	// Database runs statements (Exec, Query) and transactions (Transact, Begin),
	// and has topics.
	Database = client.Database
	// Tx is a transaction.
	Tx = client.Tx
	// Topic appends (Append, AppendAsync), reads (Read, Follow) and consumes with
	// effect and position in one commit (Consume).
	Topic = client.Topic
	// Group shares a topic among workers, a message at a time (Work, or Read and
	// Ack).
	Group = client.Group
	// Message is one message of a topic.
	Message = client.Message
	// Page is a part of a topic.
	Page = client.Page

	// Params are the values of a statement's parameters.
	Params = client.Params
	// Answer is what one statement answered.
	Answer = client.Answer
	// Rows are the rows of an answer, and Row is one of them.
	Rows = client.Rows
	// Row is one row of an answer.
	Row = client.Row
	// Appended are the positions that a commit gave in a topic.
	Appended = client.Appended

	// AppendOption says more about a message: WithKey.
	AppendOption = client.AppendOption
	// ReadOptions say which messages Topic.Read reads.
	ReadOptions = client.ReadOptions
	// FollowOptions say where Topic.Follow begins.
	FollowOptions = client.FollowOptions
	// Handler handles messages in the transaction of Topic.Consume.
	Handler = client.Handler
	// ConsumeOptions are the settings of Topic.Consume.
	ConsumeOptions = client.ConsumeOptions
	// Worker handles one message of Group.Work.
	Worker = client.Worker
	// WorkOptions are the settings of Group.Work.
	WorkOptions = client.WorkOptions
)

// WithKey names the key of the message's identity, an int, a string or a uuid,
// so that appending is idempotent: a second append of the identity is
// fault.RecordExists.
func WithKey(key any) AppendOption { return client.WithKey(key) }

// WithHeaders returns a context under which every message that is appended
// carries headers: a few short words beside its value, for whoever reads it. See
// Message.Headers.
func WithHeaders(ctx context.Context, headers map[string]string) context.Context {
	return client.WithHeaders(ctx, headers)
}

// Nack is what a Worker returns to have its message handed out again after a
// delay, instead of the group's BACKOFF.
func Nack(delay time.Duration) error { return client.Nack(delay) }

// Reject is what a Worker returns to give its message up now, as one that will
// never succeed; the reason goes with it to the dead letters.
func Reject(reason string) error { return client.Reject(reason) }

// IsConflict reports whether an error is that of a transaction that lost to
// another and can be run again.
func IsConflict(err error) bool { return client.IsConflict(err) }
