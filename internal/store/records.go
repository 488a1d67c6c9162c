package store

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// Row is a record, or a message of a topic that is read as a table.
type Row struct {
	ID value.RecordID
	// Position and Appended are a message's, zero for a record.
	Position topic.Position
	Appended time.Time
	// Headers are a message's, nil for none.
	Headers Headers

	encoded []byte
}

// Value decodes what the row holds.
func (r Row) Value() (value.Value, error) { return value.DecodeCBOR(r.encoded) }

// Encoded is what the row holds in deterministic CBOR; it is shared.
func (r Row) Encoded() []byte { return r.encoded }

func rowOf(m Message) Row {
	return Row{ID: m.ID(), Position: m.Position, Appended: m.Appended(), Headers: m.Headers(), encoded: m.encoded}
}

// Get returns the record or message of an identity, without scanning.
func (tx *Tx) Get(ctx context.Context, table *Table, key value.Value) (row Row, found bool, err error) {
	if err := tx.run(ctx); err != nil {
		return Row{}, false, err
	}
	encodedKey, err := value.AppendKey(nil, key)
	if err != nil {
		return Row{}, false, err
	}
	if table.Kind == Topic {
		return tx.getMessage(table, key, encodedKey)
	}
	encoded, found, err := tx.get(objectSuffixKey(rowRecord, table.ID, encodedKey))
	return Row{ID: value.RecordID{Table: table.Name, Key: key}, encoded: encoded}, found, err
}

func (tx *Tx) getMessage(table *Table, key value.Value, encodedKey []byte) (Row, bool, error) {
	t, err := tx.tail(table)
	if err != nil {
		return Row{}, false, err
	}
	p, err := findIdentity(tx, table, t, key, encodedKey)
	if err != nil || p == 0 {
		return Row{}, false, err
	}
	row, err := tx.messageRow(table, p)
	if err != nil {
		return Row{}, false, err
	}
	message, err := messageOf(table, p, row)
	return rowOf(message), true, err
}

// Create writes a record that does not exist yet, or returns
// fault.RecordExists. A none key stands for an identity that is generated.
func (tx *Tx) Create(ctx context.Context, table *Table, key, v value.Value) (Row, error) {
	return tx.write(ctx, table, key, v, true)
}

// Put writes a record, whether or not it exists.
func (tx *Tx) Put(ctx context.Context, table *Table, key, v value.Value) (Row, error) {
	return tx.write(ctx, table, key, v, false)
}

func (tx *Tx) write(ctx context.Context, table *Table, key, v value.Value, mustBeNew bool) (Row, error) {
	if err := tx.run(ctx); err != nil {
		return Row{}, err
	}
	if table.Kind == Topic {
		return Row{}, AppendOnly(table.Name)
	}
	checked, err := table.CheckFields(v)
	if err != nil {
		return Row{}, err
	}
	if key.IsNone() {
		if key, err = generatedIdentity(); err != nil {
			return Row{}, err
		}
	}
	if err := CheckKey(table.Name, key); err != nil {
		return Row{}, err
	}
	encodedKey, err := value.AppendKey(nil, key)
	if err != nil {
		return Row{}, err
	}
	encoded, err := checked.AppendStored(make([]byte, 0, 64), 0)
	if err != nil {
		return Row{}, err
	}
	row := objectSuffixKey(rowRecord, table.ID, encodedKey)
	if mustBeNew {
		_, found, err := tx.get(row)
		if err != nil {
			return Row{}, err
		}
		if found {
			return Row{}, recordExists(table.Name, key)
		}
	}
	if err := tx.put(row, encoded); err != nil {
		return Row{}, err
	}
	return Row{ID: value.RecordID{Table: table.Name, Key: key}, encoded: encoded}, nil
}

// Delete removes a record. Removing one that is not there does nothing.
func (tx *Tx) Delete(ctx context.Context, table *Table, key value.Value) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	if table.Kind == Topic {
		return AppendOnly(table.Name)
	}
	encodedKey, err := value.AppendKey(nil, key)
	if err != nil {
		return err
	}
	return tx.put(objectSuffixKey(rowRecord, table.ID, encodedKey), nil)
}

// AppendOnly is the refusal to change or delete a message of a topic.
func AppendOnly(name string) error {
	return fault.New(fault.TopicIsAppendOnly,
		"%s is a topic: a message is never changed or deleted; append a correction instead", name)
}

// Rows iterates over the rows of a table, records in the order of their
// identities and messages in the order of their positions. It must be closed.
type Rows struct {
	tx    *Tx
	table *Table
	err   error
	row   Row
	chunk rowChunk

	// A topic is read through messages; a table merges what the snapshot has
	// with what the transaction wrote.
	messages messageCursor
	stored   engine.Iterator
	// storedAhead says that stored stands at a record not answered yet.
	storedAhead bool
	written     []writtenRow
}

type writtenRow struct {
	key string
	row []byte
}

// ScanOptions narrow a Scan.
type ScanOptions struct {
	// From and To are the first and last position of a topic to read; 0 for
	// To is the topic's last.
	From, To topic.Position
	// Limit is a hint of how many rows will be read, 0 for unknown.
	Limit int
}

// Scan iterates over a table.
func (tx *Tx) Scan(ctx context.Context, table *Table, options ScanOptions) *Rows {
	rows := &Rows{tx: tx, table: table}
	if rows.err = tx.run(ctx); rows.err != nil {
		return rows
	}
	if table.Kind == Topic {
		rows.err = rows.openMessages(options)
		return rows
	}
	records := objectRange(rowRecord, table.ID)
	tx.writes.Ascend(string(records.From), func(key string, w write) bool {
		if key >= string(records.To) {
			return false
		}
		rows.written = append(rows.written, writtenRow{key, w.row})
		return true
	})
	if !tx.isDropped(records.From) {
		rows.stored = tx.snapshot.Scan(ctx, records, false, options.Limit)
		rows.storedAhead = rows.stored.Next()
	}
	return rows
}

// openMessages opens the messages of the topic that the options ask for.
func (r *Rows) openMessages(options ScanOptions) error {
	t, err := r.tx.tail(r.table)
	if err != nil {
		return err
	}
	from, to := max(options.From, t.first), t.last
	if options.To != 0 {
		to = min(to, options.To)
	}
	if from <= to {
		r.messages = r.tx.messages(r.table, from, to)
	}
	return nil
}

// Next moves to the next row and reports whether there is one.
func (r *Rows) Next() bool {
	if r.err != nil {
		return false
	}
	if r.table.Kind == Topic {
		if r.messages == nil || !r.messages.next() {
			return false
		}
		var message Message
		message, r.err = messageOf(r.table, r.messages.position(), r.chunk.copy(r.messages.row()))
		r.row = rowOf(message)
		return r.err == nil
	}
	for {
		key, encoded, ok := r.nextRecord()
		if !ok {
			return false
		}
		if encoded == nil {
			continue
		}
		v, _, err := value.DecodeKey(key[5:])
		if err != nil {
			r.err = fault.New(fault.Internal, "a record of %s cannot be read: %w", r.table.Name, err)
			return false
		}
		r.row = Row{ID: value.RecordID{Table: r.table.Name, Key: v}, encoded: encoded}
		return true
	}
}

// nextRecord merges the two sources by key; what the transaction wrote wins.
// A nil row is one that it removed.
func (r *Rows) nextRecord() (key, encoded []byte, ok bool) {
	switch {
	case !r.storedAhead && len(r.written) == 0:
		return nil, nil, false
	case len(r.written) > 0 && (!r.storedAhead || r.written[0].key <= string(r.stored.Key())):
		written := r.written[0]
		r.written = r.written[1:]
		if r.storedAhead && written.key == string(r.stored.Key()) {
			r.storedAhead = r.stored.Next()
		}
		return []byte(written.key), written.row, true
	}
	key = r.chunk.copy(r.stored.Key())
	encoded = r.chunk.copy(r.stored.Value())
	r.storedAhead = r.stored.Next()
	return key, encoded, true
}

// Row is the row that Next moved to. It stays valid.
func (r *Rows) Row() Row { return r.row }

// Close releases the iteration and returns the first error it met.
func (r *Rows) Close() error {
	var err error
	if r.messages != nil {
		err = r.messages.close()
	}
	if r.stored != nil {
		err = r.stored.Close()
	}
	if r.err != nil {
		return r.err
	}
	return err
}
