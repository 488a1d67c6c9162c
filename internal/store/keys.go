package store

import (
	"encoding/binary"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
)

// The keys of a database's space. The first byte says what a row is; numbers
// are big-endian, so that rows lie in the order of what they number.
//
//	V                                 the catalog's version: its sequence is what commits validate
//	I                                 the last object id given
//	T name                            definition of a table, collection, space or topic
//	G topic-id name                   definition of a group
//	C kind name                       declaration of a consumer
//	U name                            a user of the database
//	g table-id user-id                what a user was granted on a table; of table 0, on the database
//	r table-id key                    a record
//	s topic-id                        what a topic remembers of removed messages
//	m topic-id position               a message
//	i topic-id key                    the position of a message whose identity was named
//	d topic-id key                    when a deduplication key was appended
//	e topic-id time key               the same, by time, for forgetting
//	p topic-id name                   a named reader's position
//	h group-id                        a group's head
//	f group-id number                 a few neighbouring messages that a group has not settled
//	q consumer-id number              a message that a consumer parked
//	a consumer-id key                 the newest position a consumer wrote of an identity
//	o consumer-id partition           who reads a partition of another system
const (
	rowCatalogVersion = 'V'
	rowObjectID       = 'I'
	rowTable          = 'T'
	rowGroup          = 'G'
	rowConsumer       = 'C'
	rowRecord         = 'r'
	rowTopicState     = 's'
	rowMessage        = 'm'
	rowIdentity       = 'i'
	rowDeduplication  = 'd'
	rowExpiry         = 'e'
	rowReader         = 'p'
	rowGroupHead      = 'h'
	rowGroupEntry     = 'f'
	rowParked         = 'q'
	rowDatabaseUser   = 'U'
	rowGrant          = 'g'
)

// ObjectID names a table, topic, group or consumer within its database; ids
// are never used again.
type ObjectID uint32

var (
	catalogVersionKey = []byte{rowCatalogVersion}
	objectIDKey       = []byte{rowObjectID}
)

func nameKey(row byte, name string) []byte {
	return append([]byte{row}, name...)
}

func objectKey(row byte, id ObjectID) []byte {
	return binary.BigEndian.AppendUint32([]byte{row}, uint32(id))
}

// objectNameKey is the key of what is named within an object: a group or a
// reader of a topic.
func objectNameKey(row byte, id ObjectID, name string) []byte {
	return append(objectKey(row, id), name...)
}

// objectSuffixKey is the key of what an encoded key names within an object: a
// record, an identity, a deduplication key.
func objectSuffixKey(row byte, id ObjectID, suffix []byte) []byte {
	key := make([]byte, 0, 1+4+len(suffix))
	key = append(key, row)
	key = binary.BigEndian.AppendUint32(key, uint32(id))
	return append(key, suffix...)
}

func appendPositionKey(dst []byte, row byte, id ObjectID, p topic.Position) []byte {
	dst = append(dst, row)
	dst = binary.BigEndian.AppendUint32(dst, uint32(id))
	return binary.BigEndian.AppendUint64(dst, uint64(p))
}

func positionKey(row byte, id ObjectID, p topic.Position) []byte {
	return appendPositionKey(make([]byte, 0, positionKeyBytes), row, id, p)
}

const positionKeyBytes = 1 + 4 + 8

// positionOf is the position at the end of a key.
func positionOf(key []byte) topic.Position {
	return topic.Position(binary.BigEndian.Uint64(key[len(key)-8:]))
}

// positionRange holds the rows of an object from one position to before
// another.
func positionRange(row byte, id ObjectID, from, to topic.Position) engine.Range {
	return engine.Range{From: positionKey(row, id, from), To: positionKey(row, id, to)}
}

func objectRange(row byte, id ObjectID) engine.Range {
	return engine.PrefixRange(objectKey(row, id))
}
