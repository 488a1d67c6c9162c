// Package tidemark is a transactional store whose topics do the job of a
// message broker, for a program that would rather not run one.
//
// A topic keeps every message, in the order in which the messages were
// committed, at positions 1, 2, 3 with no gap. A reader's position and the
// effect it writes commit together: an effect written into the store happens
// exactly once a message.
//
// [Open] opens a store in a folder, [OpenMemory] one that ends with the
// process. Everything else is done on a [Database]: statements with
// [Database.Exec] and [Database.Query], transactions with
// [Database.Transact], messages with [Database.Topic], and readers with
// [Topic.Consume].
//
// Errors have a kind that a program switches on:
//
//	if errors.Is(err, fault.RecordExists) { … }
//
// See package fault for all of them, and docs/reference.md for the statements.
package tidemark
