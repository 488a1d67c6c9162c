// Package client is the Go client of Tidemark, and the API that it shares with
// a store which a program opens itself.
//
// Connect connects to the nodes of a store, with nothing but a WebSocket
// library behind it; package tidemark opens a folder, memory or a PostgreSQL
// under the same API, and takes every kind of URL:
//
//	Store ─► Database ─► Exec, Query        statements
//	             │       Transact ─► Tx     transactions
//	             └─────► Topic              Append, AppendAsync, Read, Follow
//	                       │                Consume: effect and position commit together
//	                       └─► Group        Work: a message at a time, shared among workers
//
// Errors have a kind that a program switches on, those of package fault:
//
//	if errors.Is(err, fault.RecordExists) { … }
//
// A node that dies is replaced by the next of those that Connect was told of;
// what that means for a request on its way is said there.
//
// Below that lies Session, one connection: namespace, database and transaction
// in use are its own, and its requests run in the order in which they were sent.
// Requests may be sent while others are on their way (Start); what is sent close
// together shares a frame, and appends among it share a commit.
//
// The package knows the wire and nothing of storage: values are those of package
// value, errors those of package fault.
package client
