package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// Message is one message of a topic, as a reader is given it. Its parts are
// decoded when they are asked for.
type Message struct {
	// Position is 0 inside the transaction that appends the message: it is
	// given at commit.
	Position topic.Position
	// Deliveries counts how often a group handed the message out, this time
	// included; 0 for a message that was read without a group. Released of them
	// were handed back by RELEASE.
	Deliveries, Released topic.Deliveries

	table *Table
	// appended is the time of the commit, in nanoseconds since 1970.
	appended int64
	// namedKey is the encoded key of an identity that was given before the
	// message was sealed, nil for one that sealing made.
	namedKey []byte
	headers  encodedHeaders
	encoded  []byte
}

// Topic is the topic's name.
func (m Message) Topic() string { return m.table.Name }

// Appended is the time of the commit that appended the message, on the store's
// clock. It never runs backwards within a topic.
func (m Message) Appended() time.Time { return time.Unix(0, m.appended).UTC() }

// TellsTime reports whether Appended tells what the identity does not: of an
// identity that was given, once there is a commit.
func (m Message) TellsTime() bool { return m.namedKey != nil && m.appended != 0 }

// Key is the key of the message's identity.
func (m Message) Key() value.Value {
	if m.namedKey == nil {
		return value.UUID(sealedIdentity(m.table.ID, m.Position, m.Appended()))
	}
	key, _, err := value.DecodeKey(m.namedKey)
	if err != nil {
		// The key was checked when the message was appended, and what the
		// engine gives back is what it was given.
		panic(fmt.Sprintf("message %d of topic %s has a key that does not decode: %v", m.Position, m.Topic(), err))
	}
	return key
}

// ID is the message's identity.
func (m Message) ID() value.RecordID { return value.RecordID{Table: m.Topic(), Key: m.Key()} }

// Headers travel beside the message's value; nil for none.
func (m Message) Headers() Headers { return m.headers.decode() }

// EncodedHeaders are the headers in CBOR, nil for none. They are shared: do not
// change them.
func (m Message) EncodedHeaders() []byte { return m.headers }

// Encoded is the message's value in deterministic CBOR. It is shared: do not
// change it.
func (m Message) Encoded() []byte { return m.encoded }

// Value decodes the message's value.
func (m Message) Value() (value.Value, error) { return value.DecodeCBOR(m.encoded) }

// WithoutValue is the message with nothing in it.
func (m Message) WithoutValue() Message {
	m.encoded = nil
	return m
}

// AppendCBOR appends the message as answers have it, without decoding its
// value: an object of id, value, headers, position and deliveries, of those
// that there are. brief leaves the value out; times adds the time it was appended
// where it TellsTime.
func (m Message) AppendCBOR(dst []byte, brief, times bool) ([]byte, error) {
	brief = brief || len(m.encoded) == 1 && m.encoded[0] == cborUndefined
	times = times && m.TellsTime()
	fields := 1
	for _, has := range [...]bool{!brief, m.headers != nil, times, m.Position != 0, m.Deliveries != 0} {
		if has {
			fields++
		}
	}
	dst = value.AppendName(value.AppendObjectHead(dst, fields), "id")
	if m.namedKey == nil {
		dst = value.AppendRecordUUID(dst, m.Topic(), sealedIdentity(m.table.ID, m.Position, m.Appended()))
	} else {
		var err error
		if dst, err = value.Record(m.ID()).AppendCBOR(dst); err != nil {
			return dst, err
		}
	}
	if !brief {
		dst = append(value.AppendName(dst, "value"), m.encoded...)
	}
	if m.headers != nil {
		dst = append(value.AppendName(dst, "headers"), m.headers...)
	}
	if times {
		var err error
		if dst, err = value.Datetime(m.Appended()).AppendCBOR(value.AppendName(dst, "appended")); err != nil {
			return dst, err
		}
	}
	if m.Position != 0 {
		dst = value.AppendInt(value.AppendName(dst, "position"), int64(m.Position))
	}
	if m.Deliveries != 0 {
		dst = value.AppendInt(value.AppendName(dst, "deliveries"), int64(m.Deliveries))
	}
	return dst, nil
}

// cborUndefined is the encoding of none, which is no field of an object.
const cborUndefined = 0xf7

// A message's row is a fixed head, the key of a named identity, the headers, and
// the value:
//
//	flags      1 byte
//	appended   8 bytes, nanoseconds since 1970
//	bytes      8 bytes, the size of the topic's values up to and with this one
//	key        only when flags say so: a length (2 bytes) and the encoded key
//	headers    only when flags say so: a length (2 bytes) and an object in CBOR
//	value      the rest
//
// The running size makes the bytes between two positions a subtraction.
const (
	messageHeadBytes = 1 + 8 + 8
	flagNamed        = 1 << 0
	flagHeaders      = 1 << 1
)

// messageHead is what sealing adds to a value to make a message of it.
type messageHead struct {
	appended   time.Time
	totalBytes uint64
	// namedKey is the encoded key of an identity that was given before the
	// message was sealed, nil for one that sealing generates.
	namedKey []byte
	headers  encodedHeaders
}

func appendMessageRow(dst []byte, head messageHead, encoded []byte) []byte {
	var flags byte
	if head.namedKey != nil {
		flags |= flagNamed
	}
	if head.headers != nil {
		flags |= flagHeaders
	}
	dst = append(dst, flags)
	dst = binary.BigEndian.AppendUint64(dst, uint64(head.appended.UnixNano()))
	dst = binary.BigEndian.AppendUint64(dst, head.totalBytes)
	if head.namedKey != nil {
		dst = appendSized(dst, head.namedKey)
	}
	if head.headers != nil {
		dst = appendSized(dst, head.headers)
	}
	return append(dst, encoded...)
}

// appendSized appends bytes of which there are at most 64 KiB, after their
// number.
func appendSized(dst, part []byte) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(part))), part...)
}

// cutSized splits what appendSized appended from what follows it.
func cutSized(row []byte) (part, rest []byte, err error) {
	if len(row) < 2 {
		return nil, nil, errShortRow
	}
	size := int(binary.BigEndian.Uint16(row))
	if len(row) < 2+size {
		return nil, nil, errShortRow
	}
	return row[2 : 2+size], row[2+size:], nil
}

var errShortRow = errors.New("a message's row ends within its key or headers")

// decodeMessageRow splits a row. The results share its memory.
func decodeMessageRow(row []byte) (head messageHead, encoded []byte, err error) {
	if len(row) < messageHeadBytes {
		return head, nil, fmt.Errorf("a message's row of %d bytes is shorter than its head", len(row))
	}
	head.appended = time.Unix(0, int64(binary.BigEndian.Uint64(row[1:]))).UTC()
	head.totalBytes = binary.BigEndian.Uint64(row[9:])
	rest := row[messageHeadBytes:]
	if row[0]&flagNamed != 0 {
		if head.namedKey, rest, err = cutSized(rest); err != nil {
			return head, nil, err
		}
	}
	if row[0]&flagHeaders != 0 {
		if head.headers, rest, err = cutSized(rest); err != nil {
			return head, nil, err
		}
	}
	return head, rest, nil
}

// messageOf makes a Message of a row, whose memory it shares.
func messageOf(t *Table, p topic.Position, row []byte) (Message, error) {
	head, encoded, err := decodeMessageRow(row)
	if err != nil {
		return Message{}, corrupt(t.Name, p, err)
	}
	return Message{
		table: t, Position: p,
		appended: head.appended.UnixNano(), namedKey: head.namedKey, headers: head.headers, encoded: encoded,
	}, nil
}

// A sealed identity is a UUIDv7 (RFC 9562, section 5.7, with the sub-millisecond
// clock of section 6.2, method 3) that holds the message's position, so that
// it grows with the position, is not stored and needs no index: the message
// is found at the position that its identity names.
//
//	48 bits   milliseconds since 1970
//	 4 bits   version 7
//	12 bits   fraction of the millisecond
//	 2 bits   variant
//	48 bits   position
//	14 bits   the topic's id
const (
	sealedPositionBits = 48
	sealedTopicBits    = 14
)

func sealedIdentity(id ObjectID, p topic.Position, appended time.Time) uuid.UUID {
	nanoseconds := uint64(appended.UnixNano())
	milliseconds := nanoseconds / uint64(time.Millisecond)
	fraction := (nanoseconds % uint64(time.Millisecond)) << 12 / uint64(time.Millisecond)
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], milliseconds<<16|7<<12|fraction)
	binary.BigEndian.PutUint64(u[8:], 2<<62|uint64(p)&(1<<sealedPositionBits-1)<<sealedTopicBits|uint64(id)&(1<<sealedTopicBits-1))
	return u
}

// sealedPosition is the position that an identity names, if sealing made it.
func sealedPosition(u uuid.UUID) topic.Position {
	return topic.Position(binary.BigEndian.Uint64(u[8:]) >> sealedTopicBits & (1<<sealedPositionBits - 1))
}

// generatedIdentity is a new identity for a record, and for a message that a
// transaction appends before its position exists.
func generatedIdentity() (value.Value, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return value.None(), fmt.Errorf("generate an identity: %w", err)
	}
	return value.UUID(id), nil
}
