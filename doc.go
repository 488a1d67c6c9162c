// Package tidemark is a transactional store whose topics do the job of a
// message broker, for a program that would rather not run one.
//
// A topic keeps every message, in the order in which the messages were
// committed, at positions 1, 2, 3 with no gap. A reader's position and the
// effect it writes commit together: an effect written into the store happens
// exactly once a message.
//
// [Connect] opens the store that a URL names: in memory, in a folder, on a
// PostgreSQL that many processes share, or on nodes that others run. [Open],
// [OpenMemory] and [OpenPostgres] open each of those of this process. The rest is
// one API, that of package client
// (github.com/tidemarkdb/tidemark/client/go), whose types stand here under the
// same names:
//
//	Store.Database       a database of a namespace
//	Database.Exec, Query statements
//	Database.Transact    a transaction
//	Database.Topic       Append, AppendAsync, Read, Follow
//	Topic.Consume        a reader whose effects and position commit together
//	Topic.Group          Work: a message at a time, shared among workers
//
// A program that only ever speaks to nodes imports package client alone, and
// with it nothing of storage.
//
// Errors have a kind that a program switches on:
//
//	if errors.Is(err, fault.RecordExists) { … }
//
// See package fault for all of them, and docs/reference.md for the statements.
package tidemark
