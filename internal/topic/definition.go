package topic

import (
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// MaxDuration bounds every duration of a definition or a command: ten years.
// With it no time that is computed leaves what can be stored.
const MaxDuration = 10 * 365 * 24 * time.Hour

// TopicDefinition is the bounds of a topic. A bound that is zero is not there.
type TopicDefinition struct {
	// Retain is how long a message is kept after it was appended.
	Retain time.Duration
	// RetainBytes is how many bytes of encoded values are kept.
	RetainBytes int64
	// MaxBytes is how large the encoded value of one message may be.
	MaxBytes int64
	// Deduplicate is nil for a topic that publishes everything.
	Deduplicate *Deduplication
	// Public is nil for a topic that only those who are signed in append to.
	Public *Public
}

// Public lets callers that have not signed in append Rate messages per Per.
type Public struct {
	Rate int64
	Per  time.Duration
}

// Check returns fault.InvalidClause, naming clause and value, for bounds that
// are out of theirs or do not fit together.
func (d TopicDefinition) Check() error {
	if d.Retain != 0 {
		if err := CheckDuration("RETAIN", d.Retain); err != nil {
			return err
		}
	}
	if d.RetainBytes != 0 {
		if err := CheckCount("RETAIN BYTES", d.RetainBytes); err != nil {
			return err
		}
	}
	if d.MaxBytes != 0 {
		if err := CheckCount("MAX BYTES", d.MaxBytes); err != nil {
			return err
		}
	}
	if d.Deduplicate != nil {
		if err := d.Deduplicate.check(); err != nil {
			return err
		}
	}
	if d.Public == nil {
		return nil
	}
	if err := CheckCount("PUBLIC RATE", d.Public.Rate); err != nil {
		return err
	}
	if err := CheckDuration("PUBLIC RATE … PER", d.Public.Per); err != nil {
		return err
	}
	if d.MaxBytes == 0 {
		return fault.New(fault.InvalidClause, "PUBLIC needs MAX BYTES: without it anybody could fill the store with one message")
	}
	if d.Deduplicate != nil {
		return fault.New(fault.InvalidClause, "PUBLIC and DEDUPLICATE exclude each other: the answer would tell strangers which keys were published")
	}
	return nil
}

// CheckCount checks a number that was given for a clause: at least 1. In a
// definition zero stands for a clause that was not given, so a zero that was
// given must be refused before.
func CheckCount(clause string, n int64) error {
	if n < 1 {
		return fault.New(fault.InvalidClause, "%s is %d; it must be at least 1", clause, n)
	}
	return nil
}

// CheckDuration checks a duration that was given for a clause: more than
// nothing, at most MaxDuration.
func CheckDuration(clause string, d time.Duration) error {
	if d <= 0 {
		return fault.New(fault.InvalidClause, "%s is %s; it must be longer than 0s", clause, d)
	}
	return checkLongest(clause, d)
}

// CheckDelay checks a duration that may be nothing, as that of DELAY and
// BACKOFF: from 0s to MaxDuration.
func CheckDelay(clause string, d time.Duration) error {
	if d < 0 {
		return fault.New(fault.InvalidClause, "%s is %s; it must not be negative", clause, d)
	}
	return checkLongest(clause, d)
}

func checkLongest(clause string, d time.Duration) error {
	if d > MaxDuration {
		return fault.New(fault.InvalidClause, "%s is %s; it must be at most %s", clause, d, MaxDuration)
	}
	return nil
}

// The bounds of a group.
const (
	// DefaultInFlight keeps the topic's order.
	DefaultInFlight = 1
	// MaxInFlight bounds what a group keeps in memory and reads when it is
	// opened.
	MaxInFlight = 10_000
	// MaxDeliveries bounds DELIVERIES.
	MaxDeliveries = 1_000_000_000
	// MaxBackoff is how many durations BACKOFF may list.
	MaxBackoff = 100
)

// GroupDefinition is what DEFINE GROUP and ALTER GROUP say of a group.
type GroupDefinition struct {
	// AckDeadline is how long a worker may hold a message.
	AckDeadline time.Duration
	// Deliveries is how often a message is handed out before it is given up
	// on, 0 for no limit.
	Deliveries int
	// InFlight is how many messages may be handed out and not settled, 1 to
	// MaxInFlight.
	InFlight int
	// KeyedBy is the path whose values are kept in order, "" for a group
	// without keys. It never changes.
	KeyedBy string
	// Backoff is how long a message waits when it is handed back for the
	// first, second, … time; the last repeats. Empty for no wait.
	Backoff []time.Duration
	// DeadLetter is the topic that takes what is given up on, "" for none.
	DeadLetter string
	// Paused says that nothing is handed out and nothing given up on.
	Paused bool
}

// Check returns fault.InvalidClause or fault.DeadLetterIsTheTopic, naming
// clause, value and limit, for a definition that a group on the topic cannot
// have.
func (d GroupDefinition) Check(topicName string) error {
	if err := CheckDuration("ACK DEADLINE", d.AckDeadline); err != nil {
		return err
	}
	if d.InFlight < 1 || d.InFlight > MaxInFlight {
		return fault.New(fault.InvalidClause, "IN FLIGHT is %d; it must be from 1 to %d", d.InFlight, MaxInFlight)
	}
	if d.Deliveries < 0 || d.Deliveries > MaxDeliveries {
		return fault.New(fault.InvalidClause, "DELIVERIES is %d; it must be from 1 to %d", d.Deliveries, MaxDeliveries)
	}
	if len(d.Backoff) > MaxBackoff {
		return fault.New(fault.InvalidClause, "BACKOFF lists %d durations; it may list %d", len(d.Backoff), MaxBackoff)
	}
	for _, wait := range d.Backoff {
		if err := CheckDelay("BACKOFF", wait); err != nil {
			return err
		}
	}
	if d.DeadLetter == "" {
		return nil
	}
	if d.DeadLetter == topicName {
		return fault.New(fault.DeadLetterIsTheTopic, "a group on topic %s cannot have %s as its dead letter; name another topic", topicName, d.DeadLetter)
	}
	if d.Deliveries == 0 {
		return fault.New(fault.InvalidClause, "DEAD LETTER TO %s needs DELIVERIES: without it nothing would ever go there", d.DeadLetter)
	}
	return nil
}

// backoff is how long a message waits that was handed back for the nth time.
func (d *GroupDefinition) backoff(nth Deliveries) time.Duration {
	if len(d.Backoff) == 0 || nth == 0 {
		return 0
	}
	return d.Backoff[min(int(nth), len(d.Backoff))-1]
}

// exhausted reports whether a message that is due is given up on instead of
// being handed out once more.
func (d *GroupDefinition) exhausted(e Entry) bool {
	return d.Deliveries > 0 && int64(e.counted()) >= int64(d.Deliveries)
}
