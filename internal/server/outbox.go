package server

import (
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// outbox holds what a connection is to send: the replies to its requests, in
// the order of the requests, and what its FOLLOWs push.
//
// A reply's place is reserved before its request runs. Requests may be finished
// in any order (appends that share a commit are finished by the committer);
// they are taken in order, as many as are ready. So the committer never waits
// for a client, and a client is not sent a frame a message.
type outbox struct {
	mu sync.Mutex
	// The following are protected by mu.

	// replies are those not taken yet, in order; the first unfinished one
	// holds back those after it.
	replies []*reply
	// unfinished is how many requests run.
	unfinished int
	// unsent is about how many bytes those finished replies take that are not
	// sent.
	unsent int
	pushes []*push
	// ended says that nothing more is sent, closing that nothing more comes.
	ended, closing bool
	// changed is signalled when room, idleness or ended may have changed.
	changed sync.Cond

	// ready holds a token when there may be something to take.
	ready chan struct{}

	maxReplies, maxBytes int
	// all are the unsent bytes of all connections, of which there may be maxAll.
	all    *atomic.Int64
	maxAll int64
}

// reply is the answer to one request, or its place until there is one.
type reply struct {
	id       value.Value
	finished bool
	// bytes is what it counts as in unsent.
	bytes int
	// answers are the answers as they are sent; nil where answer makes the only
	// one.
	answers *list
	answer  func() session.Answer
}

// push is a frame of a FOLLOW.
type push struct {
	frame []byte
	// sent is closed when the frame was written, or never will be.
	sent chan struct{}
}

func newOutbox(limits Limits, all *atomic.Int64) *outbox {
	o := &outbox{
		ready: make(chan struct{}, 1), maxReplies: limits.Pipelined, maxBytes: int(limits.AnswerBytes),
		all: all, maxAll: limits.AnswerMemoryBytes,
	}
	o.changed.L = &o.mu
	return o
}

// reserve adds a reply's place. It waits while the client has too much not
// taken, and returns nil when nothing is sent any more.
func (o *outbox) reserve(id value.Value) *reply {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.ended && o.isFull() {
		o.changed.Wait()
	}
	if o.ended {
		return nil
	}
	r := &reply{id: id}
	o.replies = append(o.replies, r)
	o.unfinished++
	return r
}

// isFull reports whether the client has too much not taken, by itself or, where
// it has anything, because all of them have.
func (o *outbox) isFull() bool {
	return len(o.replies) >= o.maxReplies || o.unsent >= o.maxBytes || o.unsent > 0 && o.all.Load() >= o.maxAll
}

// addUnsent is called with mu held.
func (o *outbox) addUnsent(bytes int) {
	if !o.ended {
		o.unsent += bytes
		o.all.Add(int64(bytes))
	}
}

// finish gives a reply its answers.
func (o *outbox) finish(r *reply, answers *list) {
	o.mu.Lock()
	r.answers = answers
	o.finishLocked(r, len(answers.elements))
	o.mu.Unlock()
}

// finishLater gives a reply its only answer, which is made when it is sent, of what
// takes about so many bytes until then.
func (o *outbox) finishLater(r *reply, bytes int, answer func() session.Answer) {
	o.mu.Lock()
	r.answer = answer
	o.finishLocked(r, bytes)
	o.mu.Unlock()
}

func (o *outbox) finishLocked(r *reply, bytes int) {
	r.finished, r.bytes = true, bytes
	o.addUnsent(bytes)
	o.unfinished--
	if o.unfinished <= 1 {
		o.changed.Broadcast()
	}
	if len(o.replies) > 0 && o.replies[0] == r {
		o.announce()
	}
}

func (o *outbox) announce() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// isFinished reports whether a reply has its answers.
func (o *outbox) isFinished(r *reply) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return r.finished
}

// isAlone reports whether no request runs but one that has no answer yet.
func (o *outbox) isAlone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unfinished == 1
}

// awaitAlone waits until no request runs but one that has no answer yet.
func (o *outbox) awaitAlone() { o.awaitUnfinished(1) }

// awaitIdle waits until no request runs.
func (o *outbox) awaitIdle() { o.awaitUnfinished(0) }

func (o *outbox) awaitUnfinished(most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.unfinished > most {
		o.changed.Wait()
	}
}

// push adds a frame of a FOLLOW. What was finished before is sent before it.
func (o *outbox) push(frame []byte) (sent <-chan struct{}) {
	p := &push{frame: frame, sent: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		close(p.sent)
		return p.sent
	}
	o.pushes = append(o.pushes, p)
	o.announce()
	return p.sent
}

// take takes the replies that are ready, at most most of them, and the frames
// that are pushed. done says that nothing more will come.
func (o *outbox) take(most int) (replies []*reply, pushes []*push, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for n < len(o.replies) && n < most && o.replies[n].finished {
		n++
	}
	replies = o.replies[:n:n]
	if o.replies = o.replies[n:]; len(o.replies) == 0 {
		o.replies = nil
	}
	pushes, o.pushes = o.pushes, nil
	if n > 0 {
		o.changed.Broadcast()
	}
	return replies, pushes, o.closing && len(replies) == 0 && len(pushes) == 0 && len(o.replies) == 0
}

// sent says how many bytes of replies were sent.
func (o *outbox) sent(bytes int) {
	o.mu.Lock()
	o.addUnsent(-bytes)
	o.changed.Broadcast()
	o.mu.Unlock()
}

// close says that nothing more comes: once what is there was taken, take is
// done.
func (o *outbox) close() {
	o.mu.Lock()
	o.closing = true
	o.announce()
	o.mu.Unlock()
}

// end says that nothing more is sent. Whoever waits goes on.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addUnsent(-o.unsent)
	o.ended = true
	for _, p := range o.pushes {
		close(p.sent)
	}
	o.pushes = nil
	o.changed.Broadcast()
}
