package export

import (
	"fmt"
	"io"

	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// statementSink writes an export as a script.
type statementSink struct {
	to    io.Writer
	table string
	rows  []newRow
	bytes int
}

func (s *statementSink) begin(namespace, database string) error {
	n, d := value.QuoteIdentifier(namespace), value.QuoteIdentifier(database)
	_, err := fmt.Fprintf(s.to, "DEFINE NAMESPACE IF NOT EXISTS %s;\nUSE NAMESPACE %s;\nDEFINE DATABASE IF NOT EXISTS %s;\nUSE DATABASE %s;\n\n", n, n, d, d)
	return err
}

func (s *statementSink) define(definition lang.Statement) error {
	_, err := fmt.Fprintf(s.to, "%s;\n", definition)
	return err
}

func (s *statementSink) row(table *store.Table, row store.Row) error {
	content, err := row.Value()
	if err != nil {
		return err
	}
	key := row.ID.Key
	if table.Generated(row) {
		key = value.None()
	}
	s.table = table.Name
	s.rows = append(s.rows, newRow{key, content})
	s.bytes += len(row.Encoded())
	if len(s.rows) >= batchRows || s.bytes >= batchBytes {
		return s.flush()
	}
	return nil
}

func (s *statementSink) flush() error {
	if len(s.rows) == 0 {
		return nil
	}
	b := batch{literal: true}
	b.text.WriteByte('\n')
	b.write(create, s.table, s.rows)
	s.rows, s.bytes = s.rows[:0], 0
	_, err := io.WriteString(s.to, b.text.String())
	return err
}
