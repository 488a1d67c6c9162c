package server

import (
	"sync"
	"time"
)

// inbox holds the requests of a connection that were received and not run, up
// to a number of bytes: the client's window. A frame that does not fit waits,
// and with it whoever reads the connection, and with that the client.
type inbox struct {
	mu sync.Mutex
	// The following are protected by mu.
	frames []receivedFrame
	bytes  int
	ended  bool

	maxBytes int
	// filled and drained hold a token when there may be a request, or room.
	filled, drained chan struct{}
}

// receivedFrame is what was not taken of the requests of a frame, and what is to
// be done when they were run.
type receivedFrame struct {
	requests []request
	bytes    int
	release  func()
}

func newInbox(maxBytes int) *inbox {
	return &inbox{maxBytes: maxBytes, filled: make(chan struct{}, 1), drained: make(chan struct{}, 1)}
}

// put adds the requests of a frame. release is called once they were run, or
// none will be. It waits for room, and returns false once the inbox has ended.
func (i *inbox) put(requests []request, bytes int, release func()) bool {
	for {
		i.mu.Lock()
		if i.ended {
			i.mu.Unlock()
			release()
			return false
		}
		if len(i.frames) == 0 || i.bytes+bytes <= i.maxBytes {
			break
		}
		i.mu.Unlock()
		<-i.drained
	}
	i.frames = append(i.frames, receivedFrame{requests, bytes, release})
	i.bytes += bytes
	i.mu.Unlock()
	signal(i.filled)
	return true
}

// taken is a request of an inbox.
type taken struct {
	*request
	// more says that others follow it already.
	more bool
	// release, where it is not nil, is to be called when the request was run.
	release func()
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
	next := taken{request: &first.requests[0]}
	if first.requests = first.requests[1:]; len(first.requests) == 0 {
		next.release = first.release
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
