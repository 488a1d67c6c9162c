package ingest

import "time"

// rateSeconds is how many whole seconds a rate looks back: long enough that
// batches do not show as waves, short enough to follow a change.
const rateSeconds = 10

// rate counts by the second of the process's clock what was applied lately.
// The zero value has counted nothing.
type rate struct {
	// counted[s mod n] is what second s counted, for the newest n seconds up
	// to newest.
	counted [rateSeconds + 1]int64
	newest  int64
}

// add counts n more at a time.
func (r *rate) add(at time.Time, n int64) {
	r.advance(at.Unix())
	r.counted[r.newest%int64(len(r.counted))] += n
}

// perSecond is the average of the last ten whole seconds.
func (r *rate) perSecond(at time.Time) float64 {
	r.advance(at.Unix())
	var sum int64
	for i, n := range r.counted {
		if int64(i) != r.newest%int64(len(r.counted)) {
			sum += n
		}
	}
	return float64(sum) / rateSeconds
}

// advance clears the seconds that have passed since the newest. A clock that
// went back counts to the second it has come to.
func (r *rate) advance(second int64) {
	for s := max(r.newest+1, second-rateSeconds); s <= second; s++ {
		r.counted[s%int64(len(r.counted))] = 0
	}
	r.newest = max(r.newest, second)
}
