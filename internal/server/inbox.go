package server

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// inbox holds the requests of a connection that were received and not run, up
// to a number of bytes: the client's window. A frame that does not fit waits,
// and with it whoever reads the connection, and with that the client.
//
// A frame whose requests take more than every session may hold, or that comes
// while others wait, takes its memory out of what the requests of all sessions
// may take together.
type inbox struct {
	mu sync.Mutex
	// The following are protected by mu.
	frames []receivedFrame
	bytes  int
	// holding is what of memory is held for requests that wait or run.
	holding int64
	ended   bool

	maxBytes int
	memory   *semaphore.Weighted
	// filled and drained hold a token when there may be a request, or room.
	filled, drained chan struct{}
}

// receivedFrame is what was not taken of the requests of a frame.
type receivedFrame struct {
	requests []request
	received time.Time
	// bytes is about what all of them take, held what of memory is theirs.
	bytes int
	held  int64
}

func newInbox(maxBytes int, memory *semaphore.Weighted) *inbox {
	return &inbox{maxBytes: maxBytes, memory: memory, filled: make(chan struct{}, 1), drained: make(chan struct{}, 1)}
}

// awaitRoom waits until a frame of a size may be decoded: until nothing waits, or
// so little that there is room for it.
func (i *inbox) awaitRoom(size int) {
	for {
		i.mu.Lock()
		room := i.ended || len(i.frames) == 0 || i.bytes+size <= i.maxBytes
		i.mu.Unlock()
		if room {
			return
		}
		<-i.drained
	}
}

// put adds the requests of a frame, of which there is one at least. It waits for
// room, and returns errEnded once the inbox has ended and errRequestMemory where
// the memory is not this connection's to give back.
func (i *inbox) put(requests []request) error {
	bytes := 0
	for n := range requests {
		bytes += requests[n].footprint()
	}
	for {
		i.mu.Lock()
		if i.ended {
			i.mu.Unlock()
			return errEnded
		}
		empty := len(i.frames) == 0
		if empty || i.bytes+bytes <= i.maxBytes {
			held := int64(bytes)
			if empty {
				held = max(0, held-smallRequestBytes)
			}
			if i.memory.TryAcquire(held) {
				i.frames = append(i.frames, receivedFrame{requests, time.Now(), bytes, held})
				i.bytes += bytes
				i.holding += held
				i.mu.Unlock()
				signal(i.filled)
				return nil
			}
			if i.holding == 0 {
				i.mu.Unlock()
				return errRequestMemory
			}
		}
		i.mu.Unlock()
		<-i.drained
	}
}

// errEnded says that an inbox takes no more.
var errEnded = errors.New("the session takes no more requests")

// taken is a request of an inbox.
type taken struct {
	*request
	// received is when its frame was put.
	received time.Time
	// more says that others follow it already.
	more bool
	// held is what of memory ran is to give back.
	held int64
}

// ran gives back what was held for requests that were run.
func (i *inbox) ran(held int64) {
	if held == 0 {
		return
	}
	i.memory.Release(held)
	i.mu.Lock()
	i.holding -= held
	i.mu.Unlock()
	signal(i.drained)
}

// take removes the next request. It waits for one up to idle, where that is not
// 0: then idled is true. ok is false once the inbox has ended and is empty.
func (i *inbox) take(idle time.Duration) (next taken, idled, ok bool) {
	var timeout <-chan time.Time
	for {
		i.mu.Lock()
		if len(i.frames) > 0 {
			next = i.takeLocked()
			i.mu.Unlock()
			return next, false, true
		}
		ended := i.ended
		i.mu.Unlock()
		if ended {
			return next, false, false
		}
		if idle > 0 && timeout == nil {
			timer := time.NewTimer(idle)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-i.filled:
		case <-timeout:
			return next, true, true
		}
	}
}

func (i *inbox) takeLocked() taken {
	first := &i.frames[0]
	next := taken{request: &first.requests[0], received: first.received}
	if first.requests = first.requests[1:]; len(first.requests) == 0 {
		next.held = first.held
		i.bytes -= first.bytes
		*first = receivedFrame{}
		if i.frames = i.frames[1:]; len(i.frames) == 0 {
			i.frames = nil
		}
		signal(i.drained)
	}
	next.more = len(i.frames) > 0
	return next
}

// end ends the inbox: what was put before can still be taken.
func (i *inbox) end() {
	i.mu.Lock()
	i.ended = true
	i.mu.Unlock()
	signal(i.filled)
	signal(i.drained)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
