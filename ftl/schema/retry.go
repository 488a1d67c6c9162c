package schema

import (
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// The bounds of a retry policy.
const (
	// MaxRetries is far more than anybody waits for: at a second each, eleven
	// days.
	MaxRetries = 1_000_000
	// MinBackoff and MaxBackoff bound how long an event waits for its next
	// attempt.
	MinBackoff = time.Second
	MaxBackoff = 24 * time.Hour
)

// DefaultRetry is the policy of a sink or mapper that declares none, and what a
// declaration leaves out.
var DefaultRetry = Retry{Retries: 10, MinBackoff: time.Second, MaxBackoff: time.Hour}

// Retry is what becomes of an event whose sink or mapper failed.
type Retry struct {
	// Retries is how often it is tried again: n retries are n + 1 attempts.
	Retries int
	// MinBackoff is the wait before the first retry; it doubles up to
	// MaxBackoff.
	MinBackoff, MaxBackoff time.Duration
	// Catch is the verb that gets the event after the last attempt, again and
	// again at MaxBackoff until it succeeds; the zero Ref for none.
	Catch Ref
}

// Attempts is how often an event is tried before it is given up on or caught.
func (r Retry) Attempts() int { return r.Retries + 1 }

// Backoff is how long an event waits after its attempt of the given number,
// counted from 1.
func (r Retry) Backoff(attempt int) time.Duration {
	wait := r.MinBackoff
	for range attempt - 1 {
		if wait > math.MaxInt64/2 || wait >= r.MaxBackoff {
			break
		}
		wait *= 2
	}
	return min(wait, r.MaxBackoff)
}

// Check returns fault.InvalidClause, naming the value and its limits, for a
// policy that is out of bounds.
func (r Retry) Check() error {
	if r.Retries < 0 || r.Retries > MaxRetries {
		return fault.New(fault.InvalidClause, "%d retries are declared; it may be from 0 to %d", r.Retries, MaxRetries)
	}
	for _, backoff := range []time.Duration{r.MinBackoff, r.MaxBackoff} {
		if backoff < MinBackoff || backoff > MaxBackoff {
			return fault.New(fault.InvalidClause, "a backoff of %s is declared; it may be from %s to %s", FormatDuration(backoff), FormatDuration(MinBackoff), FormatDuration(MaxBackoff))
		}
	}
	if r.MinBackoff > r.MaxBackoff {
		return fault.New(fault.InvalidClause, "the shortest backoff, %s, is longer than the longest, %s; write the shorter first", FormatDuration(r.MinBackoff), FormatDuration(r.MaxBackoff))
	}
	return nil
}

// ParseRetry reads a policy from its words, as they stand after //ftl:retry and
// +retry:
//
//	[retries] minBackoff [maxBackoff] ["catch" verb]
//
// Retries are 10 when left out and the longest backoff is 1h, or the shortest
// if that is longer. With 0 retries the backoff may be left out, and must be
// unless there is a catch verb, since nothing else waits. A catch verb without
// its module is the given one's. The error, a fault.InvalidClause, says what
// would have been accepted.
func ParseRetry(words []string, module string) (Retry, error) {
	r := DefaultRetry
	rest := words
	counted := false
	if len(rest) > 0 && isDigits(rest[0]) {
		n, ok := parseCount(rest[0], MaxRetries)
		if !ok {
			return Retry{}, fault.New(fault.InvalidClause, "%s retries are declared; it may be from 0 to %d", rest[0], MaxRetries)
		}
		r.Retries, counted, rest = n, true, rest[1:]
	}
	var backoffs []time.Duration
	for len(rest) > 0 && rest[0] != "catch" {
		if len(backoffs) == 2 {
			return Retry{}, fault.New(fault.InvalidClause, "%q stands after both backoffs; only catch and a verb may follow", rest[0])
		}
		d, err := ParseDuration(rest[0])
		if err != nil {
			return Retry{}, err
		}
		backoffs, rest = append(backoffs, d), rest[1:]
	}
	if len(rest) > 0 {
		if len(rest) != 2 {
			return Retry{}, fault.New(fault.InvalidClause, "catch takes the name of one verb and stands last; write catch recoverPayin")
		}
		catch, ok := parseRef(rest[1], module)
		if !ok {
			return Retry{}, fault.New(fault.InvalidClause, "%q is no name of a verb; write it as recoverPayin", rest[1])
		}
		r.Catch = catch
	}
	switch len(backoffs) {
	case 0:
		if !counted || r.Retries > 0 {
			return Retry{}, fault.New(fault.InvalidClause, "a retry needs the shortest backoff: [retries] minBackoff [maxBackoff] [catch verb], as in 5 1s 1m")
		}
	case 1:
		r.MinBackoff, r.MaxBackoff = backoffs[0], max(r.MaxBackoff, backoffs[0])
	case 2:
		r.MinBackoff, r.MaxBackoff = backoffs[0], backoffs[1]
	}
	if r.Retries == 0 && len(backoffs) > 0 && r.Catch == (Ref{}) {
		return Retry{}, fault.New(fault.InvalidClause, "0 retries have no backoff unless there is a catch verb; leave the backoff out, or add catch and a verb")
	}
	return r, r.Check()
}

// String returns the policy's words, so that ParseRetry reads the same back.
func (r Retry) String() string {
	if r.Retries == 0 && r.Catch == (Ref{}) {
		return "0"
	}
	text := formatCount(r.Retries) + " " + FormatDuration(r.MinBackoff) + " " + FormatDuration(r.MaxBackoff)
	if r.Catch != (Ref{}) {
		text += " catch " + r.Catch.String()
	}
	return text
}
