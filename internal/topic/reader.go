package topic

import "github.com/tidemarkdb/tidemark/fault"

// Start is where a reader starts that wants the message at position next: at
// the topic's first, where that is later, and then lapsed is how many messages
// it passes over that retention removed.
//
// Of a topic that holds nothing first is one past the last, so a reader is
// told of all that was removed and its place becomes the last position.
func Start(next, first Position) (start Position, lapsed uint64) {
	if next < first {
		return first, uint64(first - next)
	}
	return next, 0
}

// Place is the position that a named reader has after it started somewhere and
// was answered a number of messages: the last of them, or before its start
// when there were none.
func Place(start Position, answered int) Position {
	return start - 1 + Position(answered)
}

// Lag is how many messages lie after a place.
func Lag(place, last Position) uint64 {
	if place >= last {
		return 0
	}
	return uint64(last - place)
}

// CheckAfter returns fault.InvalidClause for a consumer that would be moved
// past the last position of its topic.
func CheckAfter(topicName, consumer string, after, last Position) error {
	if after > last {
		return fault.New(fault.InvalidClause, "AFTER %d would move consumer '%s' past %d, the last position of topic %s", after, consumer, last, topicName)
	}
	return nil
}
