package server

import (
	"io"
	"slices"

	"golang.org/x/sync/semaphore"

	"github.com/tidemarkdb/tidemark/fault"
)

// smallRequestBytes is what a request may take without asking: every session
// may hold that much.
const smallRequestBytes = 64 << 10

// readLimited reads all of a body or frame. What is past the first 64 KiB is
// taken out of what all requests may hold together, step by step as it arrives,
// so that announcing much costs nobody anything; release gives it back.
//
// It returns fault.TooLarge past the limit, and fault.Unavailable where too
// much is held already.
func readLimited(r io.Reader, limit int64, memory *semaphore.Weighted) (body []byte, release func(), err error) {
	var held int64
	release = func() { memory.Release(held) }
	body = make([]byte, 0, 1024)
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			release()
			return nil, nil, tooLarge(limit)
		case err == io.EOF:
			return body, release, nil
		case err != nil:
			release()
			return nil, nil, err
		}
		if len(body) < cap(body) {
			continue
		}
		if cap(body) >= smallRequestBytes {
			more := int64(cap(body))
			if !memory.TryAcquire(more) {
				release()
				return nil, nil, fault.New(fault.Unavailable, "the requests that this node holds take all the memory they may; try again later")
			}
			held += more
		}
		body = slices.Grow(body, cap(body))
	}
}
