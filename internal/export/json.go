package export

import (
	"io"

	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// jsonSink writes an export as JSON, an object a line:
//
//	{"define":"DEFINE TOPIC IF NOT EXISTS events;"}
//	{"id":"orders:1001","table":"orders","value":{"total":5}}
//	{"appended":"2026-01-31T10:00:00Z","generated":true,"id":"events:u'…'","position":1,"table":"events","value":…}
//
// Values are as answers have them. An identity that the store made of a
// message's position is marked as generated.
type jsonSink struct {
	to io.Writer
	// line is the memory of lines.
	line []byte
}

func (s *jsonSink) begin(string, string) error { return nil }

func (s *jsonSink) define(definition lang.Statement) error {
	return s.write(value.Object{"define": value.String(definition.String() + ";")})
}

func (s *jsonSink) row(table *store.Table, row store.Row) error {
	content, err := row.Value()
	if err != nil {
		return err
	}
	line := value.Object{"table": value.String(table.Name), "id": value.Record(row.ID), "value": content}
	if row.Position > 0 {
		line["position"] = value.Int(int64(row.Position))
		line["appended"] = value.Datetime(row.Appended)
		if table.Generated(row) {
			line["generated"] = value.Bool(true)
		}
	}
	return s.write(line)
}

func (s *jsonSink) write(line value.Object) error {
	var err error
	if s.line, err = value.Fields(line).AppendJSON(s.line[:0]); err != nil {
		return err
	}
	s.line = append(s.line, '\n')
	_, err = s.to.Write(s.line)
	return err
}

func (s *jsonSink) flush() error { return nil }
