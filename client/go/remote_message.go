package client

import (
	"encoding/binary"
	"time"

	"github.com/tidemarkdb/tidemark/value"
)

// remoteMessage is a message as a node answers it.
type remoteMessage struct {
	position   uint64
	deliveries uint32
	appended   time.Time // zero where the identity tells it
	headers    value.Object
	id         value.RecordID
	content    value.Value

	// encodedID and encoded are id and content where they lie in the frame, nil
	// where these are set: they are decoded when they are asked for.
	encodedID, encoded []byte
}

func (m *remoteMessage) Position() uint64           { return m.position }
func (m *remoteMessage) Deliveries() uint32         { return m.deliveries }
func (m *remoteMessage) Headers() map[string]string { return textsOf(m.headers) }

func (m *remoteMessage) ID() value.RecordID {
	if m.encodedID == nil {
		return m.id
	}
	// What does not decode is no identity, and has none.
	v, _ := value.DecodeCBOR(m.encodedID)
	id, _ := v.AsRecord()
	return id
}

func (m *remoteMessage) Value() (value.Value, error) {
	if m.encoded == nil {
		return m.content, nil
	}
	return value.DecodeCBOR(m.encoded)
}

// read reads a message without decoding its identity and its value.
func (m *remoteMessage) read(reader *value.CBORReader) bool {
	fields, ok := reader.Object()
	if !ok {
		return false
	}
	for range fields {
		name, err := reader.Name()
		if err != nil {
			return false
		}
		switch string(name) {
		case "id":
			m.encodedID, err = reader.Raw()
		case "value":
			m.encoded, err = reader.Raw()
		case "position":
			n, isInt := reader.Int()
			m.position, ok = uint64(n), isInt
		case "deliveries":
			n, isInt := reader.Int()
			m.deliveries, ok = uint32(n), isInt
		case "appended":
			var v value.Value
			v, err = reader.Value()
			m.appended, ok = v.AsDatetime()
		case "headers":
			var v value.Value
			v, err = reader.Value()
			m.headers, _ = v.AsObject()
		default:
			_, err = reader.Raw()
		}
		if err != nil || !ok {
			return false
		}
	}
	return true
}

// readMessages reads an array of messages; ok is false where it is none.
func readMessages(reader *value.CBORReader) (messages []Message, ok bool) {
	n, ok := reader.Array()
	if !ok {
		return nil, false
	}
	read, messages := roomFor(n)
	for i := range read {
		if !read[i].read(reader) {
			return nil, false
		}
		messages[i] = Message{&read[i]}
	}
	return messages, true
}

// roomFor is memory for messages; most answers to an append have one.
func roomFor(n int) ([]remoteMessage, []Message) {
	if n != 1 {
		return make([]remoteMessage, n), make([]Message, n)
	}
	var one struct {
		read    [1]remoteMessage
		message [1]Message
	}
	return one.read[:], one.message[:]
}

// Appended reads the time in an identity that the store made at the commit: a
// UUIDv7 with, besides milliseconds, 12 bits of their fraction (RFC 9562,
// section 6.2, method 3) and the message's position. With any other an answer
// carries the time.
func (m *remoteMessage) Appended() time.Time {
	if !m.appended.IsZero() {
		return m.appended
	}
	id, ok := m.ID().Key.AsUUID()
	if !ok || id.Version() != 7 {
		return time.Time{}
	}
	head, tail := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	const positionBits = 1<<48 - 1
	if tail>>14&positionBits != m.position&positionBits {
		return time.Time{} // made before the commit
	}
	fraction := time.Duration(head&(1<<12-1)) * time.Millisecond >> 12
	return time.UnixMilli(int64(head >> 16)).Add(fraction).UTC()
}

func messageOf(element value.Value) Message {
	fields, _ := element.AsObject()
	m := &remoteMessage{content: fields["value"]}
	m.id, _ = fields["id"].AsRecord()
	position, _ := fields["position"].AsInt()
	deliveries, _ := fields["deliveries"].AsInt()
	m.headers, _ = fields["headers"].AsObject()
	m.appended, _ = fields["appended"].AsDatetime()
	m.position, m.deliveries = uint64(position), uint32(deliveries)
	return Message{m}
}

// messagesOf are the messages of an answer that was decoded whole.
func messagesOf(elements []value.Value) []Message {
	messages := make([]Message, len(elements))
	for i, element := range elements {
		messages[i] = messageOf(element)
	}
	return messages
}

// page is an answer of messages.
func (a Answer) page() Page {
	if a.messages != nil {
		return Page{Messages: a.messages, Lapsed: a.Lapsed}
	}
	elements, _ := a.Value.AsArray()
	return Page{Messages: messagesOf(elements), Lapsed: a.Lapsed}
}
