package client

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// groupDefinition is what a worker must know of its group.
type groupDefinition struct {
	deadline time.Duration
	inFlight int
}

// definition asks the store for the group's definition.
func (g *Group) definition(ctx context.Context) (groupDefinition, error) {
	rows, err := g.topic.db.Query(ctx, "INFO FOR TOPIC "+value.QuoteIdentifier(g.topic.name), nil)
	if err != nil {
		return groupDefinition{}, err
	}
	info, _ := rows.All()[0].Value.AsObject()
	groups, _ := info["groups"].AsObject()
	group, found := groups[g.name].AsObject()
	if !found {
		return groupDefinition{}, fault.New(fault.NotAGroup, "topic %s has no group '%s'; DEFINE GROUP declares one", g.topic.name, g.name)
	}
	deadline, _ := group["ack_deadline"].AsDuration()
	inFlight, _ := group["in_flight_limit"].AsInt()
	return groupDefinition{deadline: deadline, inFlight: max(1, int(inFlight))}, nil
}

// held are the messages that a worker holds. It extends each before its
// deadline, for as long as it is handled.
type held struct {
	group *Group

	mu sync.Mutex
	// The following are protected by mu.
	deadline time.Duration
	messages map[uint64]*holding
}

// holding is one message that is held.
type holding struct {
	message  Message
	extended time.Time
	// lose ends its handler's context.
	lose context.CancelCauseFunc
}

func newHeld(g *Group, deadline time.Duration) *held {
	return &held{group: g, deadline: deadline, messages: map[uint64]*holding{}}
}

// add holds a message, and returns the context of its handler and what to call
// when that has returned.
func (h *held) add(ctx context.Context, message Message) (handling context.Context, done func()) {
	handling, lose := context.WithCancelCause(ctx)
	h.mu.Lock()
	h.messages[message.Position()] = &holding{message: message, extended: time.Now(), lose: lose}
	h.mu.Unlock()
	return handling, func() { lose(nil) }
}

// remove lets go of a message that was settled, unless it was handed out to
// this worker again since.
func (h *held) remove(message Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if holding := h.messages[message.Position()]; holding != nil && holding.message == message {
		delete(h.messages, message.Position())
	}
}

// The times of extending. A third of the deadline leaves time for two failures.
const (
	extensionsPerDeadline = 3
	// lookEvery is how often the group's deadline is looked up, so that a worker
	// learns of an ALTER GROUP.
	lookEvery = 30 * time.Second
	// minimumExtension bounds how often a short deadline is extended.
	minimumExtension = 10 * time.Millisecond
)

// keep extends what is held until ctx ends.
func (h *held) keep(ctx context.Context) {
	looked := time.Now()
	for {
		h.mu.Lock()
		every := max(h.deadline/extensionsPerDeadline, minimumExtension)
		h.mu.Unlock()
		// Looked at twice as often as is extended, so that none is late by more
		// than half of that.
		timer := time.NewTimer(min(every/2, lookEvery))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if time.Since(looked) >= lookEvery {
			looked = time.Now()
			if definition, err := h.group.definition(ctx); err == nil {
				h.mu.Lock()
				h.deadline = definition.deadline
				h.mu.Unlock()
			}
		}
		h.extend(ctx, h.due(every))
	}
}

// due are the messages that were last extended at least that long ago.
func (h *held) due(every time.Duration) []Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []Message
	for _, holding := range h.messages {
		if time.Since(holding.extended) >= every {
			due = append(due, holding.message)
		}
	}
	return due
}

// extend gives messages the group's deadline from now. Where some are no longer
// held it finds which, and tells their handlers.
func (h *held) extend(ctx context.Context, messages []Message) {
	if len(messages) == 0 {
		return
	}
	now := time.Now()
	count, err := h.group.Extend(ctx, 0, messages...)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			h.group.topic.db.log.Warn("messages that are being handled could not be extended",
				"topic", h.group.topic.name, "group", h.group.name, "messages", len(messages), "error", err)
		}
	case count == len(messages):
		h.note(messages, now)
	case len(messages) == 1:
		h.lost(messages[0])
	default:
		for _, message := range messages {
			h.extend(ctx, []Message{message})
		}
	}
}

func (h *held) note(messages []Message, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, message := range messages {
		if holding := h.messages[message.Position()]; holding != nil && holding.message == message {
			holding.extended = at
		}
	}
}

// lost ends the handling of a message that the group no longer holds for this
// worker.
func (h *held) lost(message Message) {
	h.mu.Lock()
	holding := h.messages[message.Position()]
	if holding == nil || holding.message != message {
		h.mu.Unlock()
		return // It was settled meanwhile.
	}
	holding.extended = time.Now()
	h.mu.Unlock()
	holding.lose(fault.New(fault.Timeout, "message %d of topic %s was handed out again: its deadline passed before it could be extended",
		message.Position(), h.group.topic.name))
}
