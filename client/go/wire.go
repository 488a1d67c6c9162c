package client

import (
	"unicode/utf8"

	"github.com/tidemarkdb/tidemark/value"
)

// outgoing are encoded requests that wait to be sent.
type outgoing struct {
	// encoded are the requests, one behind the other, after room for the head of
	// a frame.
	encoded []byte
	// ends are where each request ends in encoded. The first that was not sent is
	// that of ends[next], and begins at begin.
	ends        []int
	next, begin int
}

// frameHeadBytes is room for the head of an array.
const frameHeadBytes = 9

// emptied is nothing to send, with the memory of what was sent.
func (o *outgoing) emptied() outgoing {
	if cap(o.encoded) > maxKeptBytes {
		return outgoing{}
	}
	return outgoing{encoded: o.encoded[:0], ends: o.ends[:0]}
}

// buffer is where the next request is appended to.
func (o *outgoing) buffer() []byte {
	if len(o.encoded) == 0 {
		o.encoded = append(o.encoded, make([]byte, frameHeadBytes)...)
		o.begin = frameHeadBytes
	}
	return o.encoded
}

// add encodes a request.
func (o *outgoing) add(fields value.Object) error {
	encoded, err := value.Fields(fields).AppendCBOR(o.buffer())
	return o.added(encoded, err)
}

// request is a script to run.
type request struct {
	sql    string
	params map[string]value.Value
	// encoded are the params, where they were encoded already.
	encoded []byte
	// headers go with every message that it appends.
	headers value.Object
	// brief asks for the answer without the values of the messages appended.
	brief bool
	// page says that the answers are pages of messages, and what it takes to
	// make a Message of each; see Answer.page.
	page bool
}

// addRequest encodes a request without making an object of it. The names are
// in the order of deterministic CBOR.
func (o *outgoing) addRequest(id int64, r request) error {
	fields := 2
	for _, more := range [...]bool{r.brief, r.page, len(r.params)+len(r.encoded) > 0, len(r.headers) > 0} {
		if more {
			fields++
		}
	}
	encoded := value.AppendName(value.AppendObjectHead(o.buffer(), fields), "id")
	encoded = value.AppendName(value.AppendInt(encoded, id), "sql")
	var err error
	if utf8.ValidString(r.sql) {
		encoded = value.AppendName(encoded, r.sql)
	} else {
		_, err = value.String(r.sql).AppendCBOR(nil)
	}
	if err == nil && r.brief {
		encoded, err = value.Bool(true).AppendCBOR(value.AppendName(encoded, "brief"))
	}
	if err == nil && r.page {
		encoded, err = value.Bool(true).AppendCBOR(value.AppendName(encoded, "times"))
	}
	switch {
	case err != nil:
	case r.encoded != nil:
		encoded = append(value.AppendName(encoded, "params"), r.encoded...)
	case len(r.params) > 0:
		encoded, err = value.Fields(r.params).AppendCBOR(value.AppendName(encoded, "params"))
	}
	if err == nil && len(r.headers) > 0 {
		encoded, err = value.Fields(r.headers).AppendCBOR(value.AppendName(encoded, "headers"))
	}
	return o.added(encoded, err)
}

// added keeps a request that was encoded behind the others, or none of it.
func (o *outgoing) added(encoded []byte, err error) error {
	if err != nil {
		return err
	}
	o.encoded = encoded
	o.ends = append(o.ends, len(encoded))
	return nil
}

func (o *outgoing) empty() bool { return o.next == len(o.ends) }

// nextFrame takes the first requests as a frame, which lasts until the next.
func (o *outgoing) nextFrame() []byte {
	waiting := o.ends[o.next:]
	count := 1
	for count < len(waiting) && count < maxFrameRequests && waiting[count]-o.begin <= maxFrameBytes {
		count++
	}
	// The head goes where what was sent before has its end.
	var room [frameHeadBytes]byte
	head := value.AppendArrayHead(room[:0], count)
	begin, end := o.begin-len(head), waiting[count-1]
	copy(o.encoded[begin:], head)
	o.next, o.begin = o.next+count, end
	return o.encoded[begin:end]
}

// reply is the answers to one request.
type reply struct {
	id      int64
	answers []Answer
	// only is the memory of the answers where there is one.
	only [1]Answer
}

// readReplies takes a frame of replies apart piece by piece: what most frames
// are. isPage reports whether a request asked for pages. ok is false for every
// other frame, which is then looked at whole.
func readReplies(frame []byte, isPage func(id int64) bool) (replies []reply, ok bool) {
	reader := value.ReadCBOR(frame)
	n, ok := reader.Array()
	if !ok {
		return nil, false
	}
	replies = make([]reply, n)
	for i := range replies {
		if !replies[i].read(reader, isPage) {
			return nil, false
		}
	}
	return replies, reader.Done()
}

// read reads {"id":…,"answers":[…]}, in this order, in which nodes write it.
func (r *reply) read(reader *value.CBORReader, isPage func(id int64) bool) bool {
	if n, ok := reader.Object(); !ok || n != 2 || !isNext(reader, "id") {
		return false
	}
	var ok bool
	if r.id, ok = reader.Int(); !ok || !isNext(reader, "answers") {
		return false
	}
	n, ok := reader.Array()
	if !ok {
		return false
	}
	page := isPage(r.id)
	if r.answers = r.only[:]; n != 1 {
		r.answers = make([]Answer, n)
	}
	for i := range r.answers {
		if !r.answers[i].read(reader, page) {
			return false
		}
	}
	return true
}

// read reads {"ok":true,"answer":…,"lapsed":…} or {"ok":false,"error":…}.
func (a *Answer) read(reader *value.CBORReader, page bool) bool {
	fields, ok := reader.Object()
	if !ok {
		return false
	}
	for range fields {
		name, err := reader.Name()
		if err != nil {
			return false
		}
		if page && string(name) == "answer" {
			if a.messages, ok = readMessages(reader); !ok {
				return false
			}
			continue
		}
		field := string(name)
		v, err := reader.Value()
		if err != nil {
			return false
		}
		switch field {
		case "answer":
			a.Value = v
		case "lapsed":
			lapsed, _ := v.AsInt()
			a.Lapsed = uint64(lapsed)
		case "error":
			a.Err = errorOf(value.Object{"error": v})
		}
	}
	return true
}

// isNext reads a name and reports whether it is this one.
func isNext(reader *value.CBORReader, name string) bool {
	read, err := reader.Name()
	return err == nil && string(read) == name
}

// readPush reads {"follow":…,"lapsed":…,"messages":[…]}, in this order, in which
// nodes write it; ok is false for every other frame.
func readPush(frame []byte) (follow int64, pushed Page, ok bool) {
	reader := value.ReadCBOR(frame)
	fields, ok := reader.Object()
	if !ok || fields < 2 || fields > 3 || !isNext(reader, "follow") {
		return 0, pushed, false
	}
	v, err := reader.Value()
	follow, isInt := v.AsInt()
	if err != nil || !isInt {
		return 0, pushed, false
	}
	if fields == 3 {
		if !isNext(reader, "lapsed") {
			return 0, pushed, false
		}
		v, err := reader.Value()
		lapsed, isInt := v.AsInt()
		if err != nil || !isInt {
			return 0, pushed, false
		}
		pushed.Lapsed = uint64(lapsed)
	}
	if !isNext(reader, "messages") {
		return 0, pushed, false
	}
	pushed.Messages, ok = readMessages(reader)
	return follow, pushed, ok && reader.Done()
}
