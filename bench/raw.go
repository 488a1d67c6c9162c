package main

import (
	"encoding/binary"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// rawOverheadBytes is what Tidemark stores beside a message's value: its
// commit, time, running size and flags.
const rawOverheadBytes = 25

// maxRawBatchBytes is where the sequencer ends a batch, as Tidemark does.
const maxRawBatchBytes = 1 << 20

// sequencer is the least that could append messages durably: one goroutine
// gives all that waits the next positions and writes it in one synced Pebble
// batch. What Tidemark costs on top of it is transactions, groups, retention,
// identities and a language.
type sequencer struct {
	db      *pebble.DB
	mu      sync.Mutex
	waiting []rawRequest
	work    chan struct{}
	last    uint64
	stopped sync.WaitGroup
}

type rawRequest struct {
	payload []byte
	done    func(error)
}

func openRaw() (*pebble.DB, func(), error) {
	dir, err := os.MkdirTemp("", "raw-bench-")
	if err != nil {
		return nil, nil, err
	}
	db, err := pebble.Open(dir, &pebble.Options{MemTableSize: 64 << 20, Logger: quiet{}})
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}, err
}

// quiet drops what Pebble logs.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) { panic("pebble failed") }

func openSequencer() (*sequencer, func(), error) {
	db, cleanup, err := openRaw()
	if err != nil {
		return nil, nil, err
	}
	s := &sequencer{db: db, work: make(chan struct{}, 1)}
	s.stopped.Go(s.run)
	return s, func() {
		close(s.work)
		s.stopped.Wait()
		cleanup()
	}, nil
}

func (s *sequencer) submit(payload []byte, done func(error)) {
	s.mu.Lock()
	s.waiting = append(s.waiting, rawRequest{payload, done})
	s.mu.Unlock()
	select {
	case s.work <- struct{}{}:
	default:
	}
}

func (s *sequencer) run() {
	for range s.work {
		for {
			taken := s.take()
			if len(taken) == 0 {
				break
			}
			err := s.write(taken)
			for _, r := range taken {
				r.done(err)
			}
		}
	}
}

func (s *sequencer) take() []rawRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, size := 0, 0
	for count < len(s.waiting) && size < maxRawBatchBytes {
		size += len(s.waiting[count].payload)
		count++
	}
	taken := s.waiting[:count:count]
	s.waiting = s.waiting[count:]
	return taken
}

func (s *sequencer) write(requests []rawRequest) error {
	batch := s.db.NewBatch()
	for _, r := range requests {
		s.last++
		if err := batch.Set(rawKey(s.last), r.payload, nil); err != nil {
			return err
		}
	}
	return batch.Commit(pebble.Sync)
}

// rawKey is as long as the key of a message.
func rawKey(position uint64) []byte {
	key := make([]byte, 17)
	binary.BigEndian.PutUint64(key[9:], position)
	return key
}
