package client

import (
	"context"
	"time"
)

// Group is a group of a topic, as one of its workers uses it. It is looked up
// when it is used: fault.NotAGroup says that it does not exist. DEFINE GROUP
// declares one.
//
// Work is all that most workers need.
type Group struct {
	topic *Topic
	name  string
	// tx is the transaction that it is used in, nil for none.
	tx *Tx
}

// Group returns a group of the topic by its name.
func (t *Topic) Group(name string) *Group { return &Group{topic: t, name: name} }

// In returns the group as used in a transaction: what it reads and settles is
// part of it, and seen by others when the transaction commits.
func (g *Group) In(tx *Tx) *Group { return &Group{topic: g.topic, name: g.name, tx: tx} }

// Read hands out messages to this worker: first those that are due again, then
// new ones, up to limit (100 when 0) and to what the group's IN FLIGHT leaves
// free. Each is held until it is settled or the group's ACK DEADLINE passes.
// Where there is nothing it waits for the first one; in a transaction, only where
// it is the first that the transaction does.
func (g *Group) Read(ctx context.Context, limit int, wait time.Duration) (Page, error) {
	if err := checkLimit(limit); err != nil {
		return Page{}, err
	}
	request := ReadRequest{Consumer: g.name, Limit: limit, Wait: wait}
	if g.tx != nil {
		return g.tx.backend.Read(ctx, g.topic.name, request)
	}
	return g.topic.db.backend.Read(ctx, g.topic.name, request)
}

// Ack says that messages are done: they are never handed out to the group
// again. Like all that settles, it names which hand-out of a message is meant,
// so that a worker that was too late does not settle what another now holds,
// and it returns how many messages were in flight. (Fewer, where it was sent
// again to another node and had been heard by the one that was lost.)
func (g *Group) Ack(ctx context.Context, messages ...Message) (int, error) {
	return g.settle(ctx, Settlement{Verb: VerbAck, Messages: messages})
}

// Nack hands messages back, to be handed out again after the group's BACKOFF.
func (g *Group) Nack(ctx context.Context, messages ...Message) (int, error) {
	return g.settle(ctx, Settlement{Verb: VerbNack, Messages: messages})
}

// NackAfter hands messages back, to be handed out again after a delay.
func (g *Group) NackAfter(ctx context.Context, delay time.Duration, messages ...Message) (int, error) {
	return g.settle(ctx, Settlement{Verb: VerbNack, Delay: &delay, Messages: messages})
}

// Extend gives messages a new deadline from now, for work that takes longer
// than the group's; 0 is the group's own.
func (g *Group) Extend(ctx context.Context, by time.Duration, messages ...Message) (int, error) {
	return g.settle(ctx, Settlement{Verb: VerbExtend, By: by, Messages: messages})
}

// Reject gives messages up now; where the group has a dead letter topic they
// go there, with the reason.
func (g *Group) Reject(ctx context.Context, reason string, messages ...Message) (int, error) {
	return g.settle(ctx, Settlement{Verb: VerbReject, Reason: reason, Messages: messages})
}

// Release hands messages back at once without counting the hand-out against
// DELIVERIES, for a worker that shuts down.
func (g *Group) Release(ctx context.Context, messages ...Message) (int, error) {
	return g.settle(ctx, Settlement{Verb: VerbRelease, Messages: messages})
}

func (g *Group) settle(ctx context.Context, settlement Settlement) (int, error) {
	if len(settlement.Messages) == 0 {
		return 0, nil
	}
	if g.tx != nil {
		return g.tx.backend.Settle(ctx, g.topic.name, g.name, settlement)
	}
	return g.topic.db.backend.Settle(ctx, g.topic.name, g.name, settlement)
}
