// Package topic is the rules of topics: what a reader is given next, what a
// group of workers hands out and what becomes of it, what retention lets go,
// what deduplication keeps out.
//
// It is pure: a rule takes a state, a command and the time, and returns what
// changes and what is answered. It reads no clock and no storage and knows no
// text; where a rule must look at messages it is given a function that does.
//
// Three ideas:
//
//   - A message is settled or it is not, and of a group only what is not
//     settled is kept, one Entry a message. So an acknowledgement changes one
//     row, however many messages are in flight and in whatever order they are
//     acknowledged. All figures are derived from the Head and the entries.
//   - A command computes a Change and does not change the group; Apply does.
//     Between the two lies a commit: a transaction computes its changes on a
//     Clone as of its snapshot and applies them to the newest state, which
//     conflicts only where both touched the same message, or both took new
//     ones.
//   - What retention removed is settled from that moment on, without anybody
//     writing to the group: every rule looks at the topic's first position.
package topic

import "time"

// Position numbers the messages of a topic: 1, 2, 3, without a gap. Position 0
// is before the first.
type Position uint64

// MaxPosition is above every position that a topic will give.
const MaxPosition Position = 1<<63 - 1

// Deliveries counts how often a group handed one message out.
type Deliveries uint32

// View is a topic as a group sees it at one moment. The views that one Group is
// given never go back: neither First, nor Last, nor Now, as a topic's own do
// not.
type View struct {
	// First and Last are the positions that the topic holds; First is Last + 1
	// when it holds none.
	First, Last Position
	// Now is the time on the store's clock.
	Now time.Time
	// Key returns the encoded value at the group's KEYED BY path, and false for
	// a message that has none there. It is called for messages that are held,
	// once each while the group stays in memory, and only by keyed groups. Nil
	// stands for no message having one. The group keeps what it was told, so
	// one whose Key could not read a message must be loaded anew.
	Key func(Position) (key []byte, ok bool)
	// Fits reports whether the answer has room for a message. It is called in
	// the order of the answer for all but its first message; false ends the
	// answer. Nil stands for room without end.
	Fits func(Position) bool
	// FitsDeadLetter is the same for messages that are given up on, each of
	// which may be copied to a dead letter topic in the same commit. False ends
	// the hand-out; the next one goes on from there.
	FitsDeadLetter func(Position) bool
}
