package postgres

import (
	"bytes"
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tidemarkdb/tidemark/internal/engine"
)

// source is a transaction that statements are sent to.
type source interface {
	// query runs a statement and calls row, if there is one, for each row of its
	// answer. What scan fills is the caller's, but for pgtype.DriverBytes, which
	// is valid during the call. errEnough from row drops the rest.
	query(ctx context.Context, sql string, arguments []any, row func(scan scanner) error) error
	// explain gives an error of query's the kind that callers know.
	explain(doing string, err error) error
	statements() *statements
}

// scanner decodes the columns of a row.
type scanner = func(into ...any) error

var errEnough = errors.New("no more rows are wanted")

// reader reads one state of a space, in the transaction that shows it.
type reader struct {
	from     source
	space    engine.SpaceID
	sequence engine.Sequence
	// enter is asked before each read, and leave told after it.
	enter func() error
	leave func()
}

func (r *reader) Sequence() engine.Sequence { return r.sequence }

// query uses the transaction for one read.
func (r *reader) query(ctx context.Context, sql string, arguments []any, row func(scan scanner) error) error {
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	if err := r.from.query(ctx, sql, arguments, row); err != nil {
		return r.from.explain("read", err)
	}
	return nil
}

func (r *reader) Get(ctx context.Context, key []byte) (engine.Entry, error) {
	var entry engine.Entry
	err := r.query(ctx, r.sql().get, []any{int32(r.space), present(key)}, func(scan scanner) error {
		var sequence int64
		if err := scan(&sequence, &entry.Value); err != nil {
			return err
		}
		entry.Sequence = engine.Sequence(sequence)
		return nil
	})
	return entry, err
}

func (r *reader) sql() *statements { return r.from.statements() }

func (r *reader) GetMany(ctx context.Context, keys [][]byte) ([]engine.Entry, error) {
	entries := make([]engine.Entry, len(keys))
	if len(keys) == 0 {
		return entries, nil
	}
	asked := make([][]byte, len(keys))
	for i, key := range keys {
		asked[i] = present(key)
	}
	err := r.query(ctx, r.sql().getMany, []any{int32(r.space), asked}, func(scan scanner) error {
		var place, sequence int64
		var value []byte
		if err := scan(&place, &sequence, &value); err != nil {
			return err
		}
		entries[place-1] = engine.Entry{Value: value, Sequence: engine.Sequence(sequence)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// present is a key that is not NULL to PostgreSQL.
func present(key []byte) []byte {
	if key == nil {
		return []byte{}
	}
	return key
}

// The bounds of a page, which is what a scan reads at once. A scan holds the
// connection for a page only, and a page in memory.
const (
	maxPageRows   = 1000
	firstPageRows = 64
	maxPageBytes  = 4 << 20
)

func (r *reader) Scan(ctx context.Context, scanned engine.Range, reverse bool, limit int) engine.Iterator {
	it := &iterator{reader: r, ctx: ctx, from: bytes.Clone(present(scanned.From)), to: bytes.Clone(scanned.To), reverse: reverse}
	it.rows = firstPageRows
	if limit > 0 {
		it.rows = min(limit, maxPageRows)
	}
	if err := ctx.Err(); err != nil {
		it.err = cancelled(err)
	}
	it.last = empty(scanned)
	return it
}

func empty(r engine.Range) bool { return r.To != nil && bytes.Compare(r.From, r.To) >= 0 }

// iterator walks a range page by page: each begins where the one before ended.
type iterator struct {
	reader   *reader
	ctx      context.Context
	from, to []byte
	reverse  bool
	// rows is how many the next page is asked for.
	rows int
	page []pageRow
	// memory holds the keys and values of the page.
	memory []byte
	// next is the index in the page of the next entry.
	next int
	// last says that there is no page after this one.
	last bool
	err  error
}

// pageRow says where an entry lies in the memory of its page.
type pageRow struct {
	keyBegin, keyEnd, valueEnd int
	sequence                   engine.Sequence
}

func (it *iterator) Next() bool {
	if it.err != nil {
		return false
	}
	if it.next == len(it.page) {
		if it.last {
			return false
		}
		if it.err = it.read(); it.err != nil || len(it.page) == 0 {
			return false
		}
	}
	it.next++
	return true
}

// read reads the next page.
func (it *iterator) read() error {
	it.page, it.memory, it.next = it.page[:0], it.memory[:0], 0
	whole := true
	arguments := []any{int32(it.reader.space), it.from, it.rows}
	if it.to != nil {
		arguments = append(arguments, it.to)
	}
	err := it.reader.query(it.ctx, it.statement(), arguments, func(scan scanner) error {
		if len(it.memory) > maxPageBytes {
			whole = false
			return errEnough
		}
		var key, value pgtype.DriverBytes
		var sequence int64
		if err := scan(&key, &sequence, &value); err != nil {
			return err
		}
		row := pageRow{keyBegin: len(it.memory), sequence: engine.Sequence(sequence)}
		it.memory = append(it.memory, key...)
		row.keyEnd = len(it.memory)
		it.memory = append(it.memory, value...)
		row.valueEnd = len(it.memory)
		it.page = append(it.page, row)
		return nil
	})
	if err != nil {
		return err
	}
	it.last = whole && len(it.page) < it.rows
	it.advance()
	return nil
}

// advance moves the range past the page, and fits the size of the next one to
// the size of its rows.
func (it *iterator) advance() {
	if len(it.page) == 0 {
		return
	}
	end := it.page[len(it.page)-1]
	key := it.memory[end.keyBegin:end.keyEnd]
	if it.reverse {
		it.to = bytes.Clone(key)
	} else {
		it.from = append(bytes.Clone(key), 0) // The key after it.
	}
	it.rows = max(1, min(maxPageRows, maxPageBytes/(1+len(it.memory)/len(it.page))))
}

func (it *iterator) statement() string {
	sql := it.reader.sql()
	switch {
	case it.reverse && it.to != nil:
		return sql.scanBackTo
	case it.reverse:
		return sql.scanBack
	case it.to != nil:
		return sql.scanTo
	default:
		return sql.scan
	}
}

func (it *iterator) current() pageRow { return it.page[it.next-1] }

func (it *iterator) Key() []byte {
	row := it.current()
	return it.memory[row.keyBegin:row.keyEnd:row.keyEnd]
}

func (it *iterator) Value() []byte {
	row := it.current()
	return it.memory[row.keyEnd:row.valueEnd:row.valueEnd]
}

func (it *iterator) Sequence() engine.Sequence { return it.current().sequence }

func (it *iterator) Close() error {
	it.page, it.memory, it.next, it.last = nil, nil, 0, true
	return it.err
}
