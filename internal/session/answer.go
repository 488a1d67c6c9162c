package session

import (
	"strconv"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/value"
)

// Answer is what one statement answers: a value, or an error.
type Answer struct {
	Value value.Value
	// Lapsed is how many messages retention removed before the first one of
	// the answer; 0 says nothing.
	Lapsed uint64
	Err    *fault.Error
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
	dst = append(dst, `{"ok":true,"answer":`...)
	dst, err := a.Value.AppendJSON(dst)
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
