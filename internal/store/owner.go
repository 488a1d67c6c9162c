package store

import "context"

// Owner is a member that owns a partition of another system: what it commits
// of the partition stands only while it does.
type Owner [16]byte

// rowOwner is who owns a partition that a consumer reads:
//
//	o consumer-id partition -> owner
//
// Each commit of a batch checks and touches it, so that a member which the
// broker has given up on cannot write after the one that took its place.
const rowOwner = 'o'

// Own makes an owner that of a partition.
func (tx *Tx) Own(ctx context.Context, consumer ObjectID, partition int32, owner Owner) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	return tx.put(ownerKey(consumer, partition), owner[:])
}

// Owns reports whether a partition is an owner's, and makes the commit fail
// with fault.Conflict when it is not any more.
func (tx *Tx) Owns(ctx context.Context, consumer ObjectID, partition int32, owner Owner) (bool, error) {
	if err := tx.run(ctx); err != nil {
		return false, err
	}
	entry, err := tx.touch(ownerKey(consumer, partition))
	return string(entry.Value) == string(owner[:]), err
}

func ownerKey(consumer ObjectID, partition int32) []byte {
	return append(objectKey(rowOwner, consumer), byte(partition>>24), byte(partition>>16), byte(partition>>8), byte(partition))
}
