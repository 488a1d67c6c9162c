package main

import (
	"slices"
	"time"
)

// latencies are samples of how long single operations took.
type latencies []time.Duration

// maxSamples bounds how many latencies one measurement keeps.
const maxSamples = 1 << 18

// add keeps a sample while there is room.
func (l *latencies) add(d time.Duration) {
	if len(*l) < maxSamples {
		*l = append(*l, d)
	}
}

// quantile is the latency that a share of the samples did not exceed, "" where
// nothing was sampled.
func (l latencies) quantile(share float64) string {
	if len(l) == 0 {
		return ""
	}
	slices.Sort(l)
	return l[min(len(l)-1, int(share*float64(len(l))))].Round(time.Microsecond).String()
}
