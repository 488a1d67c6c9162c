package server

import (
	"context"
	"io"
	"slices"

	"golang.org/x/sync/semaphore"

	"github.com/tidemarkdb/tidemark/fault"
)

// smallRequestBytes is what a request may take without asking: every session
// may hold that much.
const smallRequestBytes = 64 << 10

// errRequestMemory is the refusal of what finds no memory.
var errRequestMemory = fault.New(fault.Unavailable, "the requests that this node holds take all the memory they may; try again later")

// decodingBytes is how many bytes of requests are decoded at once, beside those
// that are small: decoding takes, for a moment, many times what it is given.
const decodingBytes = 16 << 20

// awaitDecoding waits until a body of a size may be decoded; done is to be called
// when it was. It returns ctx's error where that ends first.
func (s *Server) awaitDecoding(ctx context.Context, size int) (done func(), err error) {
	if size <= smallRequestBytes {
		return func() {}, nil
	}
	share := min(int64(size), decodingBytes)
	if err := s.decoding.Acquire(ctx, share); err != nil {
		return nil, err
	}
	return func() { s.decoding.Release(share) }, nil
}

// maxExpectedBytes bounds the memory for a frame that is taken before it arrives.
const maxExpectedBytes = 256 << 10

// readLimited reads all of a body or frame. What is past the first 64 KiB is
// taken out of what all requests may hold together, step by step as it arrives,
// so that announcing much costs nobody anything; release gives it back. Only
// what was as large before is expected to be so again.
//
// It returns fault.TooLarge past the limit, and fault.Unavailable where too
// much is held already.
func readLimited(r io.Reader, limit int64, memory *semaphore.Weighted, expected int) (body []byte, release func(), err error) {
	var held int64
	release = func() { memory.Release(held) }
	room := min(max(expected, 1024), maxExpectedBytes)
	if more := int64(room); more > smallRequestBytes {
		if memory.TryAcquire(more) {
			held = more
		} else {
			room = smallRequestBytes
		}
	}
	body = make([]byte, 0, room)
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
				return nil, nil, errRequestMemory
			}
			held += more
		}
		body = slices.Grow(body, cap(body))
	}
}
