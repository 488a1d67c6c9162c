package tidemark

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// Group is a group of a topic, as one of its workers uses it. It is looked up
// when it is used: fault.NotAGroup says that it does not exist. DEFINE GROUP
// declares one.
type Group struct {
	topic *Topic
	name  string
}

// Group returns a group of the topic by its name.
func (t *Topic) Group(name string) *Group { return &Group{topic: t, name: name} }

// Read hands out messages to this worker: first those that are due again, then
// new ones, up to limit (100 when 0) and to what the group's IN FLIGHT leaves
// free. Each is held until it is settled or the group's ACK DEADLINE passes.
// Where there is nothing it waits for the first one.
func (g *Group) Read(ctx context.Context, limit int, wait time.Duration) (Page, error) {
	if err := checkLimit(limit); err != nil {
		return Page{}, err
	}
	options := store.ReadOptions{Consumer: g.name, Limit: limit}
	page, err := g.topic.db.database.Read(ctx, g.topic.name, options, wait)
	return Page{Messages: messagesOf(page.Messages), Lapsed: page.Lapsed}, err
}

// Ack says that messages are done: they are never handed out to the group
// again. Like all that settles, it names which hand-out of a message is meant,
// so that a worker that was too late does not settle what another now holds,
// and it returns how many messages were in flight.
func (g *Group) Ack(ctx context.Context, messages ...Message) (int, error) {
	return g.settle(ctx, store.Settlement{Kind: store.Acknowledge}, messages)
}

// Nack hands messages back, to be handed out again after the group's BACKOFF.
func (g *Group) Nack(ctx context.Context, messages ...Message) (int, error) {
	return g.settle(ctx, store.Settlement{Kind: store.Return}, messages)
}

// NackAfter hands messages back, to be handed out again after a delay.
func (g *Group) NackAfter(ctx context.Context, delay time.Duration, messages ...Message) (int, error) {
	if err := topic.CheckDelay("a delay", delay); err != nil {
		return 0, err
	}
	return g.settle(ctx, store.Settlement{Kind: store.Return, Delay: &delay}, messages)
}

// Extend gives messages a new deadline from now, for work that takes longer
// than the group's; 0 is the group's own.
func (g *Group) Extend(ctx context.Context, by time.Duration, messages ...Message) (int, error) {
	if err := topic.CheckDelay("an extension", by); err != nil {
		return 0, err
	}
	return g.settle(ctx, store.Settlement{Kind: store.Extend, By: by}, messages)
}

// Reject gives messages up now; where the group has a dead letter topic they
// go there, with the reason.
func (g *Group) Reject(ctx context.Context, reason string, messages ...Message) (int, error) {
	return g.settle(ctx, store.Settlement{Kind: store.Reject, Reason: reason}, messages)
}

// Release hands messages back at once without counting the hand-out against
// DELIVERIES, for a worker that shuts down.
func (g *Group) Release(ctx context.Context, messages ...Message) (int, error) {
	return g.settle(ctx, store.Settlement{Kind: store.Release}, messages)
}

func (g *Group) settle(ctx context.Context, settlement store.Settlement, messages []Message) (int, error) {
	settlement.At = make([]topic.Settle, len(messages))
	for i, m := range messages {
		settlement.At[i] = topic.Settle{Position: m.message.Position, Delivery: m.message.Deliveries}
	}
	return g.topic.db.database.Settle(ctx, g.topic.name, g.name, settlement)
}
