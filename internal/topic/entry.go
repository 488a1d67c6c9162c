package topic

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidemarkdb/tidemark/fault"
)

// State says where a message of a group is.
type State uint8

const (
	// Settled is the state of a message without an entry: never to be handed
	// out again, or not yet looked at.
	Settled State = iota
	// Passed is a message of a keyed group that was passed over, because an
	// earlier one of its key is not settled. It was never handed out.
	Passed
	// Out is a message that a worker holds, until the time in Due.
	Out
	// Returned is a message that was handed back and is due at the time in
	// Due.
	Returned
)

// Entry is what a group keeps of one message that is not settled, at or below
// the group's position. The zero Entry is that of a message without one.
//
// Entries are compared with ==; their times carry no monotonic clock and are
// in UTC.
type Entry struct {
	State State
	// Deliveries counts the hand-outs, Released those of them that do not
	// count against DELIVERIES and BACKOFF.
	Deliveries, Released Deliveries
	// Due is the deadline of a message that is out, and when one that was
	// returned may be handed out again.
	Due time.Time
	// Key is the identity of the message's key, "" for a message without one.
	Key string
}

// InFlight reports whether the message was handed out and is not settled.
func (e Entry) InFlight() bool { return e.State == Out || e.State == Returned }

// counted is how many hand-outs count against DELIVERIES.
func (e Entry) counted() Deliveries { return e.Deliveries - e.Released }

// entryHeadBytes is the size of an entry's row before its key: state,
// deliveries, released, due in nanoseconds since 1970.
const entryHeadBytes = 1 + 4 + 4 + 8

// Append encodes the entry. Equal entries have equal encodings.
func (e Entry) Append(dst []byte) []byte {
	dst = append(dst, byte(e.State))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Deliveries))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Released))
	var due int64
	if e.InFlight() {
		due = e.Due.UnixNano()
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(due))
	return append(dst, e.Key...)
}

// DecodeEntry decodes what Append encoded. Anything else is fault.Internal.
func DecodeEntry(row []byte) (Entry, error) {
	if len(row) < entryHeadBytes {
		return Entry{}, fault.New(fault.Internal, "a group's entry has %d bytes, fewer than %d", len(row), entryHeadBytes)
	}
	e := Entry{
		State:      State(row[0]),
		Deliveries: Deliveries(binary.BigEndian.Uint32(row[1:])),
		Released:   Deliveries(binary.BigEndian.Uint32(row[5:])),
		Key:        string(row[entryHeadBytes:]),
	}
	if due := int64(binary.BigEndian.Uint64(row[9:])); e.InFlight() {
		e.Due = time.Unix(0, due).UTC()
	} else if due != 0 {
		return Entry{}, fault.New(fault.Internal, "a group's entry of state %d has a time", e.State)
	}
	return e, e.check()
}

func (e Entry) check() error {
	switch {
	case e.State != Passed && !e.InFlight():
		return fault.New(fault.Internal, "a group's entry has state %d", e.State)
	case e.Released > e.Deliveries:
		return fault.New(fault.Internal, "a group's entry was released %d times of %d", e.Released, e.Deliveries)
	case e.InFlight() != (e.Deliveries > 0):
		return fault.New(fault.Internal, "a group's entry of state %d was handed out %d times", e.State, e.Deliveries)
	case e.State == Passed && e.Key == "":
		return fault.New(fault.Internal, "a group's entry waits for an earlier one of no key")
	}
	return nil
}

// Head is what a group keeps as a whole. The counters are of messages, never
// go back, and count on over START AT:
//
//	HandedOut − (Acknowledged + DeadLettered + Removed + Forgotten) = in flight
type Head struct {
	// Epoch counts how often START AT forgot what was in flight.
	Epoch uint64
	// Position is the highest that was handed out, or that START AT or the
	// reader before the group left, or that a read was told had lapsed.
	Position Position

	// HandedOut counts first hand-outs, Redelivered all later ones.
	HandedOut, Redelivered uint64
	// Acknowledged, DeadLettered (given up on), Removed (by retention, while
	// in flight) and Forgotten (by START AT) count how messages were settled.
	Acknowledged, DeadLettered, Removed, Forgotten uint64
	// Lapsed counts messages that retention removed before they were handed
	// out, as far as a read was told of them.
	Lapsed uint64

	// DeadLetterRefused counts the messages given up on that the dead letter
	// topic did not take, DeadLetterReason says why it did not take the last.
	DeadLetterRefused uint64
	DeadLetterReason  string
}

// InFlight is how many messages are in flight, those that retention removed and
// that nobody has looked at since among them.
func (h Head) InFlight() uint64 {
	return h.HandedOut - (h.Acknowledged + h.DeadLettered + h.Removed + h.Forgotten)
}

// numbers are the fields that are numbers, in the order in which they are
// encoded.
func (h *Head) numbers() [10]*uint64 {
	return [...]*uint64{
		&h.Epoch, (*uint64)(&h.Position), &h.HandedOut, &h.Redelivered, &h.Acknowledged,
		&h.DeadLettered, &h.Removed, &h.Forgotten, &h.Lapsed, &h.DeadLetterRefused,
	}
}

// headVersion begins the encoding of a head.
const headVersion = 1

// Append encodes the head. Equal heads have equal encodings.
func (h Head) Append(dst []byte) []byte {
	dst = append(dst, headVersion)
	for _, n := range h.numbers() {
		dst = binary.AppendUvarint(dst, *n)
	}
	return append(dst, h.DeadLetterReason...)
}

// DecodeHead decodes what Append encoded. Anything else is fault.Internal.
func DecodeHead(row []byte) (Head, error) {
	var h Head
	if len(row) == 0 || row[0] != headVersion {
		return h, fault.New(fault.Internal, "a group's head does not begin with version %d", headVersion)
	}
	rest := row[1:]
	for _, n := range h.numbers() {
		number, size := binary.Uvarint(rest)
		if size <= 0 {
			return Head{}, fault.New(fault.Internal, "a group's head ends within its numbers")
		}
		*n, rest = number, rest[size:]
	}
	h.DeadLetterReason = string(rest)
	if h.Position > MaxPosition || !bytes.Equal(h.Append(nil), row) {
		return Head{}, fault.New(fault.Internal, "a group's head is not as it was written")
	}
	return h, nil
}

// MaxReasonBytes bounds the reason that a group keeps for a refused dead
// letter; what is longer is cut.
const MaxReasonBytes = 1024

func cutReason(reason string) string {
	if len(reason) > MaxReasonBytes {
		cut := MaxReasonBytes
		for cut > 0 && !utf8.RuneStart(reason[cut]) {
			cut--
		}
		reason = reason[:cut]
	}
	return strings.Clone(reason)
}

// add counts one more hand-out, as far as can be counted.
func (d Deliveries) add() Deliveries {
	if d == math.MaxUint32 {
		return d
	}
	return d + 1
}
