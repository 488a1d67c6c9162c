package ingest

import (
	"errors"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// maxPayloadBytes bounds a payload that is read: decoded, it takes several
// times as much memory.
const maxPayloadBytes = 16 << 20

// readPayload reads a Kafka message's JSON. Every error is the message's fault.
//
// A number that no int or float of 64 bits holds is a fault where it is mapped,
// and nothing where it is not: a producer may add what this consumer never
// looks at.
func readPayload(declared *store.Consumer, payload []byte) (value.Value, error) {
	switch {
	case payload == nil:
		return value.None(), fault.New(fault.TypeMismatch, "the message has no value (it is a tombstone), so there is no record to write")
	case len(payload) > maxPayloadBytes:
		return value.None(), fault.New(fault.TooLarge, "the message has %d bytes; %d are the limit", len(payload), maxPayloadBytes)
	}
	content, err := value.ParseJSON(payload)
	if err == nil {
		return content, nil
	}
	masked, any := maskLargeNumbers(payload)
	if !any {
		return value.None(), err
	}
	if content, err = value.ParseJSON(masked); err != nil {
		return value.None(), err
	}
	paths := []value.Path{declared.Identity}
	for _, m := range declared.Map {
		paths = append(paths, m.From)
	}
	for _, path := range paths {
		if number, found := largeNumber(path.Of(content)); found {
			return value.None(), fault.New(fault.TypeMismatch, "the number %s in %s is outside what 64 bits hold", number, path)
		}
	}
	return content, nil
}

// largeNumberMark begins the string that stands for a number which is too
// large, while the message is read. No producer can know it.
var largeNumberMark = "\x00" + uuid.NewString() + " "

// maskLargeNumbers replaces the numbers of a JSON text that 64 bits do not hold
// with marked strings, and reports whether there were any.
func maskLargeNumbers(text []byte) (masked []byte, any bool) {
	const inNumber = "+-.0123456789eE"
	copied := 0
	for at := 0; at < len(text); {
		switch b := text[at]; {
		case b == '"':
			at = endOfString(text, at)
		case b == '-' || '0' <= b && b <= '9':
			start := at
			for at < len(text) && strings.IndexByte(inNumber, text[at]) >= 0 {
				at++
			}
			number := string(text[start:at])
			if fitsIn64Bits(number) {
				continue
			}
			any = true
			masked = append(masked, text[copied:start]...)
			masked = append(masked, `"\u0000`+largeNumberMark[1:]+number+`"`...)
			copied = at
		default:
			at++
		}
	}
	return append(masked, text[copied:]...), any
}

// endOfString is where the string that begins at a quote ends.
func endOfString(text []byte, at int) int {
	for at++; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(text)
}

func fitsIn64Bits(number string) bool {
	var err error
	if strings.ContainsAny(number, ".eE") {
		_, err = strconv.ParseFloat(number, 64)
	} else {
		_, err = strconv.ParseInt(number, 10, 64)
	}
	return !errors.Is(err, strconv.ErrRange)
}

// largeNumber finds a number in a value that was too large to be read.
func largeNumber(v value.Value) (number string, found bool) {
	if text, ok := v.AsString(); ok {
		return strings.CutPrefix(text, largeNumberMark)
	}
	if elements, ok := v.AsArray(); ok {
		for _, element := range elements {
			if number, found = largeNumber(element); found {
				return number, true
			}
		}
	}
	if fields, ok := v.AsObject(); ok {
		for _, field := range fields {
			if number, found = largeNumber(field); found {
				return number, true
			}
		}
	}
	return "", false
}
