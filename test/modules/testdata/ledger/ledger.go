// Package ledger is the module of the end-to-end tests: what is posted is an
// entry, which three subscriptions take, each in its way.
package ledger

import (
	"context"

	"github.com/tidemarkdb/tidemark/ftl"
)

// version is changed by the tests, to make another build.
const version = 1

// Entry is what is posted.
type Entry struct {
	ID int `json:"id"`
}

// Taken is an entry as a subscription has taken it.
type Taken struct {
	ID      int `json:"id"`
	Version int `json:"version"`
}

var (
	entries  = ftl.RegisterTopic[Entry]("entries")
	recorded = ftl.RegisterTopic[Taken]("recorded")
	copied   = ftl.RegisterTopic[Taken]("copied")
	audited  = ftl.RegisterTopic[Taken]("audited")

	recording = ftl.RegisterSubscription(entries, "recording")
	copying   = ftl.RegisterSubscription(entries, "copying")
	auditing  = ftl.RegisterSubscription(entries, "auditing", ftl.Parallel(8))
)

// Post publishes an entry.
//
//ftl:verb
//ftl:ingress POST /entry
func Post(ctx context.Context, entry Entry) (Entry, error) {
	return entry, entries.Publish(ctx, entry)
}

// Record takes entries in order, exactly once, since it publishes in the
// transaction that acknowledges.
//
//ftl:subscribe recording
//ftl:retry 1000 1s 1s
func Record(ctx context.Context, entry Entry) error {
	ftl.Tx(ctx)
	return recorded.Publish(ctx, Taken{entry.ID, version})
}

// Copy maps entries in order, exactly once.
//
//ftl:map copying copied
//ftl:retry 1000 1s 1s
func Copy(_ context.Context, entry Entry) (Taken, error) { return Taken{entry.ID, version}, nil }

// Audit takes entries in any order, at least once.
//
//ftl:subscribe auditing
//ftl:retry 1000 1s 1s
func Audit(ctx context.Context, entry Entry) error {
	return audited.Publish(ctx, Taken{entry.ID, version})
}
