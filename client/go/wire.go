package client

import "github.com/tidemarkdb/tidemark/value"

// outgoing are encoded requests that wait to be sent.
type outgoing struct {
	encoded []byte
	// ends are where each request ends in encoded; begin is where the first
	// begins.
	ends  []int
	begin int
}

// add encodes a request.
func (o *outgoing) add(fields value.Object) error {
	encoded, err := value.Fields(fields).AppendCBOR(o.encoded)
	return o.added(encoded, err)
}

// request is a script to run.
type request struct {
	sql    string
	params map[string]value.Value
	// headers go with every message that it appends.
	headers value.Object
	// brief asks for the answer without the values of the messages appended.
	brief bool
	// page says that the answers are pages of messages; see Answer.page.
	page bool
}

// addRequest encodes a request without making an object of it. The names are
// in the order of deterministic CBOR.
func (o *outgoing) addRequest(id int64, r request) error {
	fields := 2
	for _, more := range []bool{r.brief, len(r.params) > 0, len(r.headers) > 0} {
		if more {
			fields++
		}
	}
	encoded := value.AppendName(value.AppendObjectHead(o.encoded, fields), "id")
	encoded, err := value.Int(id).AppendCBOR(encoded)
	if err == nil {
		encoded, err = value.String(r.sql).AppendCBOR(value.AppendName(encoded, "sql"))
	}
	if err == nil && r.brief {
		encoded, err = value.Bool(true).AppendCBOR(value.AppendName(encoded, "brief"))
	}
	if err == nil && len(r.params) > 0 {
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

func (o *outgoing) empty() bool { return len(o.ends) == 0 }

// nextFrame takes the first requests as a frame.
func (o *outgoing) nextFrame() []byte {
	count := 1
	for count < len(o.ends) && count < maxFrameRequests && o.ends[count]-o.begin <= maxFrameBytes {
		count++
	}
	end := o.ends[count-1]
	frame := value.AppendArrayHead(make([]byte, 0, end-o.begin+5), count)
	frame = append(frame, o.encoded[o.begin:end]...)
	o.ends, o.begin = o.ends[count:], end
	return frame
}

// reply is the answers to one request.
type reply struct {
	id      int64
	answers []Answer
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
	id, err := reader.Value()
	if err != nil {
		return false
	}
	var ok bool
	if r.id, ok = id.AsInt(); !ok || !isNext(reader, "answers") {
		return false
	}
	n, ok := reader.Array()
	if !ok {
		return false
	}
	page := isPage(r.id)
	r.answers = make([]Answer, n)
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
