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
	requests []received
	bytes    int
	ended    bool

	maxBytes int
	// filled and drained hold a token when there may be a request, or room.
	filled, drained chan struct{}
}

// received is a request, and what is to be done when it was run.
type received struct {
	request
	bytes   int
	release func()
}

func newInbox(maxBytes int) *inbox {
	return &inbox{maxBytes: maxBytes, filled: make(chan struct{}, 1), drained: make(chan struct{}, 1)}
}

// put adds the requests of a frame, whose bytes and release go with the last of
// them. It waits for room, and returns false once the inbox has ended.
func (i *inbox) put(requests []request, bytes int, release func()) bool {
	for {
		i.mu.Lock()
		if i.ended {
			i.mu.Unlock()
			release()
			return false
		}
		if len(i.requests) == 0 || i.bytes+bytes <= i.maxBytes {
			break
		}
		i.mu.Unlock()
		<-i.drained
	}
	for n, r := range requests {
		item := received{request: r}
		if n == len(requests)-1 {
			item.bytes, item.release = bytes, release
		}
		i.requests = append(i.requests, item)
	}
	i.bytes += bytes
	i.mu.Unlock()
	signal(i.filled)
	return true
}

// take removes the next request. more says that others follow it already. It
// waits for one up to idle, where that is not 0: then idled is true. ok is
// false once the inbox has ended and is empty.
func (i *inbox) take(idle time.Duration) (r received, more, idled, ok bool) {
	var timeout <-chan time.Time
	for {
		i.mu.Lock()
		if len(i.requests) > 0 {
			r = i.requests[0]
			i.requests[0] = received{}
			if i.requests = i.requests[1:]; len(i.requests) == 0 {
				i.requests = nil
			}
			i.bytes -= r.bytes
			more = len(i.requests) > 0
			i.mu.Unlock()
			signal(i.drained)
			return r, more, false, true
		}
		ended := i.ended
		i.mu.Unlock()
		if ended {
			return r, false, false, false
		}
		if idle > 0 && timeout == nil {
			timer := time.NewTimer(idle)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-i.filled:
		case <-timeout:
			return r, false, true, true
		}
	}
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
