package topic

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// Deduplication keeps a message out of a topic whose field holds what another
// message's held that was appended less than the window ago.
type Deduplication struct {
	Window time.Duration
	// Field is the name of a field of the message itself, not a path.
	Field string
}

func (d *Deduplication) check() error {
	if d.Field == "" {
		return fault.New(fault.InvalidClause, "DEDUPLICATE names no field")
	}
	return CheckDuration("DEDUPLICATE", d.Window)
}

// maxPlainKeyBytes is how long a key is kept as it is; of a longer one the
// SHA-256 is kept, so that rows stay small whatever is published.
const maxPlainKeyBytes = 64

// Key is the message's deduplication key, encoded so that keys are equal when
// the values are and of the same kind (the int 7 is not the string '7'). It is
// at most 65 bytes long, and nil for a message without the field, which is
// always appended. A value that is not a string, an int, a uuid or bytes is
// fault.DeduplicationKey; null is such a value, since the field is there.
func (d *Deduplication) Key(topicName string, message value.Value) ([]byte, error) {
	fields, _ := message.AsObject()
	field := fields[d.Field]
	if field.IsNone() {
		return nil, nil
	}
	kind := field.Kind()
	switch kind {
	case value.KindString:
		s, _ := field.AsString()
		return shortKey(byte(kind), []byte(s)), nil
	case value.KindBytes:
		b, _ := field.AsBytes()
		return shortKey(byte(kind), b), nil
	case value.KindInt:
		i, _ := field.AsInt()
		return binary.BigEndian.AppendUint64([]byte{byte(kind)}, uint64(i)), nil
	case value.KindUUID:
		id, _ := field.AsUUID()
		return append([]byte{byte(kind)}, id[:]...), nil
	}
	return nil, fault.New(fault.DeduplicationKey,
		"topic %s deduplicates on %s, and the message's %s is not a string, an int, a uuid or bytes", topicName, d.Field, d.Field)
}

// Holds reports whether a message appended at one time keeps out another that
// would be appended now: for less than the window, and no longer at its end.
func (d *Deduplication) Holds(appended, now time.Time) bool {
	return now.Before(appended.Add(d.Window))
}

// hashedKey marks a key of which the SHA-256 is kept.
const hashedKey = 0x80

// shortKey is a key under a tag that is below hashedKey.
func shortKey(tag byte, key []byte) []byte {
	if len(key) > maxPlainKeyBytes {
		sum := sha256.Sum256(key)
		return append([]byte{tag | hashedKey}, sum[:]...)
	}
	return append([]byte{tag}, key...)
}
