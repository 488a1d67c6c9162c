package server

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// texts are statements that came before, by themselves: clients send few, and
// each again and again.
type texts map[string]string

func (t texts) of(text []byte) string {
	if known, ok := t[string(text)]; ok {
		return known
	}
	if len(text) > maxKeptScriptBytes {
		return string(text)
	}
	if len(t) >= maxKeptScripts {
		clear(t)
	}
	known := string(text)
	t[known] = known
	return known
}

// readScripts takes a frame of scripts apart piece by piece: what most frames
// are, and where the time goes. ok is false for every other frame, also one
// that is malformed or refused: decodeFrame looks at those anew, and says why.
func readScripts(frame []byte, kept texts) (requests []request, many, ok bool) {
	reader := value.ReadCBOR(frame)
	n, many := reader.Array()
	if !many {
		n = 1
	}
	if n > maxFrameRequests {
		return nil, many, false
	}
	requests = make([]request, n)
	for i := range requests {
		if !requests[i].readScript(reader, kept) {
			return nil, many, false
		}
	}
	return requests, many, reader.Done()
}

// readScript reads a request of a script by its plainest fields, once each, and
// reports whether it was one.
func (r *request) readScript(reader *value.CBORReader, kept texts) bool {
	fields, ok := reader.Object()
	if !ok {
		return false
	}
	r.id = value.Null()
	var hasID, hasParams, hasHeaders, hasBrief, hasTimes, isScript bool
	for range fields {
		name, err := reader.Name()
		if err != nil {
			return false
		}
		var seen *bool
		switch string(name) {
		case "id":
			seen = &hasID
			r.id, err = reader.Value()
			ok = isName(r.id)
		case "sql":
			seen = &isScript
			var sql []byte
			sql, err = reader.Name()
			r.sql = kept.of(sql)
		case "params":
			seen = &hasParams
			ok = r.readParams(reader, kept)
		case "headers":
			seen = &hasHeaders
			var headers value.Value
			headers, err = reader.Value()
			r.headers, ok = headersOf(headers)
		case "brief":
			seen = &hasBrief
			var brief value.Value
			brief, err = reader.Value()
			r.brief, ok = brief.AsBool()
		case "times":
			seen = &hasTimes
			var times value.Value
			times, err = reader.Value()
			r.times, ok = times.AsBool()
		default:
			return false
		}
		if err != nil || !ok || *seen {
			return false
		}
		*seen = true
	}
	return isScript
}

// readParams reads the parameters. Of a request that asks for a brief answer the
// last is left as it is: it may be a message, which is stored as it came.
func (r *request) readParams(reader *value.CBORReader, kept texts) bool {
	fields, ok := reader.Object()
	if !ok {
		return false
	}
	for i := range fields {
		name, err := reader.Name()
		if err != nil {
			return false
		}
		if _, twice := r.params[string(name)]; twice {
			return false
		}
		if r.brief && i == fields-1 {
			if encoded, ok := reader.Stored(0); ok {
				// A copy: the frame is not to stay until this is committed.
				r.passed = session.Passed{Name: kept.of(name), Encoded: bytes.Clone(encoded)}
				break
			}
		}
		v, err := reader.Value()
		if err != nil || v.IsNone() {
			return false
		}
		if r.params == nil {
			r.params = make(map[string]value.Value, min(fields, typicalParams))
		}
		r.params[string(name)] = v
	}
	return true
}

// typicalParams bounds the room that is made for parameters before they are
// read.
const typicalParams = 8
