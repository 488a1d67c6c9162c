package pebble

// OldestSnapshot returns Pebble's sequence number of the oldest snapshot open.
func OldestSnapshot(e *Engine) uint64 {
	return uint64(e.db.Metrics().Snapshots.EarliestSeqNum)
}
