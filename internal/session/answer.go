package session

import (
	"strconv"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// Answer is what one statement answers: a value, or an error.
type Answer struct {
	Value value.Value
	// Lapsed is how many messages retention removed before the first one of
	// the answer; 0 says nothing.
	Lapsed uint64
	Err    *fault.Error

	// messages are what Value would hold, as they lie in the store; see
	// Options.PassOn.
	messages []store.Message
	// brief is as Appended.Brief says.
	brief bool
	// times is as Session.TellTimes says.
	times bool
}

// Decode is the answer with its Value, also where it passed on.
func (a Answer) Decode() (Answer, error) {
	if a.messages == nil {
		return a, nil
	}
	return a.decoded()
}

// decoded is the answer with its Value.
func (a Answer) decoded() (Answer, error) {
	rows := make([]value.Value, len(a.messages))
	for i, m := range a.messages {
		content := value.None()
		if !a.brief {
			var err error
			if content, err = m.Value(); err != nil {
				return Answer{}, err
			}
		}
		rows[i] = messageAnswer(m, content, a.times)
	}
	return Answer{Value: value.Array(rows...), Lapsed: a.Lapsed}, nil
}

// AppendJSON appends the answer in the form that every surface sends.
func (a Answer) AppendJSON(dst []byte) ([]byte, error) {
	if a.Err != nil {
		dst = append(dst, `{"ok":false,"error":`...)
		dst, err := value.Fields(value.Object{
			"kind":    value.String(string(a.Err.Kind)),
			"message": value.String(a.Err.Message),
		}).AppendJSON(dst)
		return append(dst, '}'), err
	}
	a, err := a.Decode()
	if err != nil {
		return dst, err
	}
	dst = append(dst, `{"ok":true,"answer":`...)
	dst, err = a.Value.AppendJSON(dst)
	if err != nil {
		return dst, err
	}
	if a.Lapsed > 0 {
		dst = append(dst, `,"lapsed":`...)
		dst = strconv.AppendUint(dst, a.Lapsed, 10)
	}
	return append(dst, '}'), nil
}

// failed is the answer to a statement that failed.
func failed(err error) Answer { return Answer{Err: fault.Of(err)} }

// AppendCBOR appends the answer as the binary wire has it: the same fields as
// JSON, every value as itself.
func (a Answer) AppendCBOR(dst []byte) ([]byte, error) {
	if a.Err == nil && a.messages != nil {
		return a.appendMessages(dst)
	}
	fields := value.Object{"ok": value.Bool(a.Err == nil)}
	if a.Err != nil {
		fields["error"] = value.Fields(value.Object{
			"kind":    value.String(string(a.Err.Kind)),
			"message": value.String(a.Err.Message),
		})
		return value.Fields(fields).AppendCBOR(dst)
	}
	fields["answer"] = a.Value
	if a.Value.IsNone() {
		// A field that holds none would be left out.
		fields["answer"] = value.Null()
	}
	if a.Lapsed > 0 {
		fields["lapsed"] = value.Int(int64(a.Lapsed))
	}
	return value.Fields(fields).AppendCBOR(dst)
}

// appendMessages appends an answer of messages as AppendCBOR does, without
// decoding them. The names are in the order of deterministic CBOR.
func (a Answer) appendMessages(dst []byte) ([]byte, error) {
	fields := 2
	if a.Lapsed > 0 {
		fields++
	}
	dst = value.AppendName(value.AppendObjectHead(dst, fields), "ok")
	dst, err := value.Bool(true).AppendCBOR(dst)
	if err != nil {
		return dst, err
	}
	dst = value.AppendName(dst, "answer")
	if dst, err = a.AppendMessages(dst); err != nil || a.Lapsed == 0 {
		return dst, err
	}
	return value.AppendInt(value.AppendName(dst, "lapsed"), int64(a.Lapsed)), nil
}

// Bytes is about how much memory the messages take that the answer passes on.
func (a Answer) Bytes() int {
	bytes := 0
	for _, m := range a.messages {
		bytes += messageBytes + len(m.Encoded())
	}
	return bytes
}

// messageBytes is what a message takes beside its value, and about what an answer
// has beside it.
const messageBytes = 128

// AppendMessages appends the array of the messages that the answer passes on.
func (a Answer) AppendMessages(dst []byte) ([]byte, error) {
	dst = value.AppendArrayHead(dst, len(a.messages))
	var err error
	for _, m := range a.messages {
		if dst, err = m.AppendCBOR(dst, a.brief, a.times); err != nil {
			return dst, err
		}
	}
	return dst, nil
}
