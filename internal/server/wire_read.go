package server

import "github.com/tidemarkdb/tidemark/value"

// readScripts takes a frame of scripts apart piece by piece: what most frames
// are, and where the time goes. ok is false for every other frame, also one
// that is malformed or refused: decodeFrame looks at those anew, and says why.
func readScripts(frame []byte) (requests []request, many, ok bool) {
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
		if !requests[i].readScript(reader) {
			return nil, many, false
		}
	}
	return requests, many, reader.Done()
}

// readScript reads a request of a script by its plainest fields, once each, and
// reports whether it was one.
func (r *request) readScript(reader *value.CBORReader) bool {
	fields, ok := reader.Object()
	if !ok {
		return false
	}
	r.id = value.Null()
	var hasID, hasParams, hasHeaders, hasBrief, isScript bool
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
			r.sql = string(sql)
		case "params":
			seen = &hasParams
			var params value.Value
			params, err = reader.Value()
			r.params, ok = params.AsObject()
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
