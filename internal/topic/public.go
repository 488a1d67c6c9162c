package topic

import (
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// Bucket is how many messages a PUBLIC topic takes just now. The zero Bucket is
// that of a quiet topic, which takes Rate messages at once; then it takes one
// every Per / Rate.
type Bucket struct {
	// full is when the topic is quiet again: each message that is taken moves
	// it on by the time that one takes.
	full time.Time
}

// each is the time after which one more message is taken.
func (p Public) each() time.Duration { return max(1, p.Per/time.Duration(p.Rate)) }

// Take takes n messages, all or none: those that are more than is left are
// fault.TopicRateExceeded.
func (b *Bucket) Take(topic string, p Public, n int, now time.Time) error {
	full := b.full
	if full.Before(now) {
		full = now
	}
	// Compared in messages, which cannot overflow as times could.
	owed := int64((full.Sub(now) + p.each() - 1) / p.each())
	if int64(n) > p.Rate {
		return fault.New(fault.TopicRateExceeded, "topic %s takes at most %d messages at once of callers who have not signed in, not %d; send them in parts, or sign in", topic, p.Rate, n)
	}
	if owed+int64(n) > p.Rate {
		return fault.New(fault.TopicRateExceeded, "topic %s takes %d messages per %s of callers who have not signed in, on this node, and %d more would be too many; try again in %s, or sign in",
			topic, p.Rate, p.Per, n, p.each())
	}
	b.full = full.Add(time.Duration(n) * p.each())
	return nil
}

// GiveBack gives back what messages took that were not appended.
func (b *Bucket) GiveBack(p Public, n int) { b.full = b.full.Add(-time.Duration(n) * p.each()) }

// IsQuiet reports whether the bucket is as the zero one is.
func (b *Bucket) IsQuiet(now time.Time) bool { return !b.full.After(now) }
