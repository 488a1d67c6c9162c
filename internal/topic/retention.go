package topic

import (
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// CheckMaxBytes returns fault.TopicMessageTooLarge for a message whose encoded
// value is larger than the topic allows.
func CheckMaxBytes(topicName string, d TopicDefinition, sizeBytes int) error {
	if d.MaxBytes > 0 && int64(sizeBytes) > d.MaxBytes {
		return fault.New(fault.TopicMessageTooLarge, "the message's value takes %d bytes; topic %s takes %d (MAX BYTES)", sizeBytes, topicName, d.MaxBytes)
	}
	return nil
}

// CheckRetainBytes returns fault.TopicRetainExceeded for a commit whose own
// messages to the topic add up to more than it retains. Retention removes the
// oldest, so with it no commit loses messages of its own.
func CheckRetainBytes(topicName string, d TopicDefinition, ownBytes uint64) error {
	if d.RetainBytes > 0 && ownBytes > uint64(d.RetainBytes) {
		return fault.New(fault.TopicRetainExceeded, "the commit's messages take %d bytes; topic %s retains %d (RETAIN BYTES): append fewer at once", ownBytes, topicName, d.RetainBytes)
	}
	return nil
}

// FirstWithinBytes is the lowest position from which all up to last take at
// most limitBytes, of a topic whose messages from first take more. through is
// the size of all values that the topic was ever given, up to and with a
// position from first to last. The result is last + 1 when the last message
// alone is too large, which CheckRetainBytes prevents.
func FirstWithinBytes(first, last Position, limitBytes uint64, through func(Position) (uint64, error)) (Position, error) {
	if first > last {
		return first, nil
	}
	total, err := through(last)
	if err != nil {
		return 0, err
	}
	// The newest message to go is the lowest after which no more than the
	// limit follows.
	newestToGo, err := Search(first, last, func(p Position) (bool, error) {
		size, err := through(p)
		return total-size <= limitBytes, err
	})
	return newestToGo + 1, err
}

// FirstWithinAge is the lowest position whose message is kept at a time: one
// is kept for retain after it was appended, and no longer at its end.
// appended is the time of a message from first to last.
func FirstWithinAge(first, last Position, retain time.Duration, now time.Time, appended func(Position) (time.Time, error)) (Position, error) {
	return FirstSince(first, last, now.Add(-retain).Add(1), appended)
}

// FirstSince is the lowest position from first to last whose message was
// appended at a time or after it, last + 1 when there is none. A message's
// time never runs backwards within its topic, so it is found by search.
func FirstSince(first, last Position, since time.Time, appended func(Position) (time.Time, error)) (Position, error) {
	return Search(first, last+1, func(p Position) (bool, error) {
		at, err := appended(p)
		return !at.Before(since), err
	})
}

// Search is the lowest position from low to before high at which reached
// becomes true, high when it does nowhere. It looks near low first, since what
// is searched for usually lies there, and looks at no position twice.
func Search(low, high Position, reached func(Position) (bool, error)) (Position, error) {
	for step := Position(1); low < high && step < high-low; step *= 2 {
		probe := low + step - 1
		ok, err := reached(probe)
		if err != nil {
			return 0, err
		}
		if ok {
			high = probe
			break
		}
		low = probe + 1
	}
	for low < high {
		middle := low + (high-low)/2
		ok, err := reached(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low, nil
}
