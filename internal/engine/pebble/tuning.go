package pebble

import (
	"bytes"
	"time"

	crdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// The settings of Pebble that are not the user's, for a load of commits of up
// to a mebibyte with mostly ascending keys, and long scans of them.
const (
	// formatVersion is pinned, so that a new Pebble does not make the folders
	// unreadable to the one before it. This one has checksums over all of a
	// table, and logs whose records say how much was synced before them, so
	// that damage there is told from the tail that a crash leaves.
	formatVersion = crdb.FormatTableFormatV6

	// maxOpenFiles leaves half of the usual limit of 1,024 to connections.
	maxOpenFiles = 512

	// blockBytes is larger than Pebble's 4 KiB, as most reads are scans of
	// topics. Measured with values of 128 B: a scan takes 194 ns a key with
	// 4 KiB, 135 with 16 and 126 with 32; a point read outside the cache 10 µs,
	// 13 and 19.
	blockBytes = 16 << 10

	// bloomBitsPerKey gives one false alarm in a hundred. Many reads are of
	// keys that are not there: identities and deduplication keys not yet used.
	bloomBitsPerKey = 10

	// stopWritesMemTables times MemTableBytes may be unwritten before commits
	// wait: one that fills and two that are written out, so that a flush which
	// takes a while is not felt at once.
	stopWritesMemTables = 3

	// The thresholds of level 0, in files on top of each other: merged from 4
	// on, and commits wait only at 24, because waiting in the middle of a burst
	// shows as a latency of seconds where slower reads do not show.
	mergeFromFiles   = 4
	stopWritesAtFile = 24

	// fileBytes is the size of the files of level 0; deeper ones are larger.
	// Large, as few files make a small manifest and few open files.
	fileBytes = 8 << 20

	// baseLevelBytes is the size of the first level below level 0: about that
	// of what one flush brings, times four.
	baseLevelBytes = 256 << 20

	// flushRangeDeletesAfter is when the space of what was removed by a range
	// begins to be given back at the latest.
	flushRangeDeletesAfter = 10 * time.Second
)

func pebbleOptions(o Options, fence *fence, failure *failure) *crdb.Options {
	options := &crdb.Options{
		FS:                          fence,
		Logger:                      pebbleLogger{failure},
		EventListener:               failure.listener(),
		FormatMajorVersion:          formatVersion,
		CacheSize:                   o.CacheBytes,
		MemTableSize:                uint64(o.MemTableBytes),
		MemTableStopWritesThreshold: stopWritesMemTables,
		L0CompactionThreshold:       mergeFromFiles,
		L0StopWritesThreshold:       stopWritesAtFile,
		LBaseMaxBytes:               baseLevelBytes,
		MaxOpenFiles:                maxOpenFiles,
		FlushDelayDeleteRange:       flushRangeDeletesAfter,
		// Two compactions at most: the machine has other work for its cores.
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		// WALBytesPerSync stays 0: every commit syncs the log, so there is
		// never much in it that the disk has not been told of.
		// DisableAutomaticCompactions stays false.
	}
	options.TargetFileSizes[0] = fileBytes
	for i := range options.Levels {
		options.Levels[i].BlockSize = blockBytes
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
		options.Levels[i].FilterType = crdb.TableFilter
	}
	// Value separation stays off: it was measured to save nothing at our sizes
	// of values and to cost 10 to 15 % of throughput.
	options.Experimental.ValueSeparationPolicy = func() crdb.ValueSeparationPolicy {
		return crdb.ValueSeparationPolicy{Enabled: false}
	}
	// Files end where the rows of the spaces begin: see layout.go.
	options.Experimental.SpanPolicyFunc = func(start []byte) (crdb.SpanPolicy, []byte, error) {
		if bytes.Compare(start, rowsPrefix) < 0 {
			return crdb.SpanPolicy{}, rowsPrefix, nil
		}
		return crdb.SpanPolicy{}, nil, nil
	}
	return options
}
