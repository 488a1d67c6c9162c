package server

import (
	"maps"
	"math"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// format is how requests and answers are written.
type format int

const (
	formatJSON format = iota
	formatCBOR
)

// The media types and subprotocols of the formats.
const (
	mediaJSON       = "application/json"
	mediaCBOR       = "application/cbor"
	subprotocolJSON = "tidemark.json"
	subprotocolCBOR = "tidemark.cbor"
)

func (f format) mediaType() string {
	if f == formatCBOR {
		return mediaCBOR
	}
	return mediaJSON
}

// request is one request of a frame: a script, or a word on a FOLLOW.
type request struct {
	// id is what the client named the request by, null where it did not.
	id     value.Value
	sql    string
	params map[string]value.Value
	// passed is a parameter that is not among params yet.
	passed session.Passed
	// headers are those of every message that the script appends.
	headers store.Headers
	// brief says that a lone append is answered without its value.
	brief bool
	// times says that messages tell when they were appended; see
	// session.TellTimes.
	times bool
	// credit is how many messages a FOLLOW may push, more than before.
	credit int64
	// follow is the id of a FOLLOW that the request is a word on, none for a
	// script; cancel ends it.
	follow value.Value
	cancel bool
	// refused is why the request is none; the other fields but id are unset.
	refused error
}

// maxFrameRequests is how many requests a frame may hold: a request takes much
// more memory than the two bytes that an empty one is sent as.
const maxFrameRequests = 16_384

// decodeFrame takes a frame apart. many says that it is an array. A request
// that is none is among the requests, to be answered in its turn; an error is
// that of a frame which is nothing at all.
func decodeFrame(f format, frame []byte, kept texts) (requests []request, many bool, err error) {
	if f == formatCBOR {
		if requests, many, ok := readScripts(frame, kept); ok {
			return requests, many, nil
		}
	}
	v, err := decode(f, frame)
	if err != nil {
		return nil, false, err
	}
	elements, many := v.AsArray()
	if !many {
		return []request{requestOf(v)}, false, nil
	}
	if len(elements) > maxFrameRequests {
		return nil, true, fault.New(fault.TooLarge, "the frame holds %d requests, and %d are the limit; send them in several, none of them ran", len(elements), maxFrameRequests)
	}
	requests = make([]request, len(elements))
	for i, element := range elements {
		requests[i] = requestOf(element)
	}
	return requests, true, nil
}

// decode decodes a body or frame. What cannot be is fault.Syntax.
func decode(f format, body []byte) (value.Value, error) {
	var v value.Value
	var err error
	if f == formatCBOR {
		v, err = value.DecodeCBOR(body)
	} else {
		v, err = value.ParseJSON(body)
	}
	if err != nil {
		return v, fault.New(fault.Syntax, "the request cannot be decoded: %s", fault.Of(err).Message)
	}
	return v, nil
}

// requestOf reads a request, of which it refuses what it does not know: a
// misspelt field would be lost otherwise.
func requestOf(v value.Value) request {
	r := request{id: value.Null()}
	fields, ok := v.AsObject()
	if !ok {
		r.refused = fault.New(fault.Syntax, `a request is an object {"id":1,"sql":"…","params":{…}}, not %s %s`, article(v.Kind()), v.Kind())
		return r
	}
	if id, given := fields["id"]; given {
		r.id = id
	}
	if err := r.read(fields); err != nil {
		return request{id: r.id, refused: err}
	}
	return r
}

func (r *request) read(fields value.Object) error {
	isScript := false
	for name, field := range fields {
		var ok bool
		switch name {
		case "id":
			ok = isName(field)
		case "sql":
			isScript = true
			r.sql, ok = field.AsString()
		case "params":
			r.params, ok = field.AsObject()
		case "brief":
			r.brief, ok = field.AsBool()
		case "times":
			r.times, ok = field.AsBool()
		case "headers":
			r.headers, ok = headersOf(field)
		case "credit":
			r.credit, ok = field.AsInt()
			ok = ok && r.credit >= 0 && r.credit <= maxCredit
		case "follow":
			r.follow, ok = field, isName(field)
		case "cancel":
			r.cancel, ok = field.AsBool()
		default:
			return fault.New(fault.Syntax, "a request has no field %s; its fields are id, sql, params, headers, brief, times and credit, or follow and credit or cancel", value.QuoteIdentifier(name))
		}
		if !ok {
			return fault.New(fault.Syntax, "the field %s of a request cannot be %s", name, excerpt(field))
		}
	}
	if isScript == !r.follow.IsNone() {
		return fault.New(fault.Syntax, "a request has either sql, to run statements, or follow, to give a FOLLOW credit or to cancel it")
	}
	return nil
}

// requestFootprint is what a request takes in memory by itself, and fieldFootprint
// what a field takes beside its name and its value.
const (
	requestFootprint = 256
	fieldFootprint   = 48
)

// footprint is about how many bytes a request takes in memory, which may be many
// times what it took on the wire: an empty one, or a number of an array, is two
// bytes there.
func (r *request) footprint() int {
	bytes := requestFootprint + len(r.sql) + len(r.passed.Encoded)
	for name, v := range r.params {
		bytes += fieldFootprint + len(name) + valueFootprint(v)
	}
	for name, text := range r.headers {
		bytes += fieldFootprint + len(name) + len(text)
	}
	return bytes
}

func valueFootprint(v value.Value) int {
	const slot, boxed = 16, 16
	if elements, ok := v.AsArray(); ok {
		bytes := slot + boxed
		for _, element := range elements {
			bytes += valueFootprint(element)
		}
		return bytes
	}
	if fields, ok := v.AsObject(); ok {
		bytes := slot + boxed
		for name, field := range fields {
			bytes += fieldFootprint + len(name) + valueFootprint(field)
		}
		return bytes
	}
	if text, ok := v.AsString(); ok {
		return slot + boxed + len(text)
	}
	if content, ok := v.AsBytes(); ok {
		return slot + boxed + len(content)
	}
	return slot + boxed
}

// values are the parameters, all of them decoded.
func (r *request) values() (map[string]value.Value, error) {
	if r.passed.Encoded == nil {
		return r.params, nil
	}
	v, err := value.DecodeCBOR(r.passed.Encoded)
	if err != nil {
		return nil, err
	}
	values := maps.Clone(r.params)
	if values == nil {
		values = map[string]value.Value{}
	}
	values[r.passed.Name] = v
	return values, nil
}

// maxCredit is how far a subscriber may be ahead; what is pushed at once is
// bounded apart from it.
const maxCredit = math.MaxInt32

// isName reports whether a value can name a request.
func isName(v value.Value) bool {
	switch v.Kind() {
	case value.KindInt:
		return true
	case value.KindString:
		s, _ := v.AsString()
		return len(s) <= maxNameBytes
	}
	return false
}

// maxNameBytes bounds the name of a request, which every answer repeats.
const maxNameBytes = 256

func article(k value.Kind) string {
	switch k {
	case value.KindInt, value.KindArray, value.KindObject:
		return "an"
	}
	return "a"
}

// excerpt is a value for a message: short.
func excerpt(v value.Value) string {
	const most = 60
	text := []rune(v.String())
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}

// appendAnswer appends an answer. One that cannot be encoded is told so.
func appendAnswer(f format, dst []byte, answer session.Answer) []byte {
	encoded, err := encodeAnswer(f, dst, answer)
	if err == nil {
		return encoded
	}
	if encoded, err = encodeAnswer(f, dst, session.FailedAnswer(err)); err == nil {
		return encoded
	}
	// Only a message that is no text gets here.
	encoded, _ = encodeAnswer(f, dst, session.FailedAnswer(fault.Internal))
	return encoded
}

func encodeAnswer(f format, dst []byte, answer session.Answer) ([]byte, error) {
	if f == formatJSON {
		return answer.AppendJSON(dst)
	}
	return answer.AppendCBOR(dst)
}

// list is an array that is written element by element before its length is
// known.
type list struct {
	format format
	count  int
	// elements are the elements as they are written.
	elements []byte
}

// next makes room for one more element, which is then appended to elements.
func (l *list) next() {
	if l.format == formatJSON && l.count > 0 {
		l.elements = append(l.elements, ',')
	}
	l.count++
}

// appendTo appends the whole array.
func (l *list) appendTo(dst []byte) []byte {
	if l.format == formatCBOR {
		return append(value.AppendArrayHead(dst, l.count), l.elements...)
	}
	dst = append(dst, '[')
	dst = append(dst, l.elements...)
	return append(dst, ']')
}

// listRoom is what enclosed needs before the elements.
const listRoom = 9

// enclosed is the whole array of a list whose elements begin at listRoom, in its
// memory.
func (l *list) enclosed() []byte {
	var room [listRoom]byte
	head := append(room[:0], '[')
	if l.format == formatCBOR {
		head = value.AppendArrayHead(room[:0], l.count)
	} else {
		l.elements = append(l.elements, ']')
	}
	begin := listRoom - len(head)
	copy(l.elements[begin:], head)
	return l.elements[begin:]
}

// append appends the reply.
func (r *reply) append(f format, dst []byte) []byte {
	if r.answers != nil {
		return appendReply(f, dst, r.id, r.answers.count, func(dst []byte) []byte { return append(dst, r.answers.elements...) })
	}
	return appendReply(f, dst, r.id, 1, func(dst []byte) []byte { return appendAnswer(f, dst, r.answer()) })
}

// appendReply appends {"id":…,"answers":[…]}, of so many answers, which appends
// appends. The names are in the order of deterministic CBOR, the shorter first.
func appendReply(f format, dst []byte, id value.Value, count int, appends func(dst []byte) []byte) []byte {
	if f == formatCBOR {
		dst = value.AppendName(value.AppendObjectHead(dst, 2), "id")
		dst = value.AppendName(appendValue(f, dst, id), "answers")
		return appends(value.AppendArrayHead(dst, count))
	}
	dst = appendValue(f, append(dst, `{"id":`...), id)
	return append(appends(append(dst, `,"answers":[`...)), "]}"...)
}

// appendValue appends a value that was decoded from the wire, so that it can be
// encoded.
func appendValue(f format, dst []byte, v value.Value) []byte {
	var encoded []byte
	var err error
	if f == formatCBOR {
		encoded, err = v.AppendCBOR(dst)
	} else {
		encoded, err = v.AppendJSON(dst)
	}
	if err != nil {
		return appendValue(f, dst, value.Null())
	}
	return encoded
}
