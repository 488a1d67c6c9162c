package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// MaxTransactionBytes bounds what one transaction may write: it is buffered in
// memory until COMMIT, and sealed while no other commit of the database runs.
const MaxTransactionBytes = 64 << 20

// Tx is a transaction of one database. Its reads see one point in the
// database's commit order and its own writes; what it writes is seen by others
// when Commit returns. It is used by one goroutine, and ended by Commit or
// Cancel.
//
// Committing checks, on the newest state, that nothing the transaction wrote
// or read as a consumer was changed since its snapshot; otherwise Commit
// returns fault.Conflict and nothing is written.
type Tx struct {
	db       *Database
	snapshot engine.Snapshot
	// host is the transaction that this one commits in, nil for none; holds says
	// that the host has kept all others from committing since before the snapshot.
	host  Host
	holds bool
	// ctx is that of the call that is running.
	ctx context.Context

	// catalog is the definitions as the transaction sees them.
	catalog        *Catalog
	catalogChanged bool

	// writes are the rows that the transaction changes, by key; base holds the
	// commits that wrote what the snapshot has at those keys, notRead where
	// nobody has had to know yet.
	writes btree.Map[string, write]
	base   map[string]engine.Sequence
	unread [][]byte
	// dropped are ranges that are removed before writes are applied.
	dropped []engine.Range
	// altered are the topics whose bounds changed.
	altered []ObjectID

	appends []txAppend
	// groups are those that the transaction looked at.
	groups map[ObjectID]*txGroup
	// groupOrder are those that it changed, in the order of the first change.
	groupOrder []ObjectID
	size       int
	ended      bool
}

// write is a row to set, or to remove when row is nil.
type write struct{ row []byte }

type txAppend struct {
	table   *Table
	message *newMessage
}

// txGroup is a group as the transaction sees it, and what its commands changed.
type txGroup struct {
	table      *Table
	definition *Group
	group      *topic.Group
	changes    []topic.Change
}

// Begin starts a transaction on the newest durable state.
func (db *Database) Begin(ctx context.Context) (*Tx, error) {
	snapshot, err := db.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	catalog, err := db.catalogOf(ctx, snapshot)
	if err != nil {
		snapshot.Release()
		return nil, err
	}
	return &Tx{db: db, snapshot: snapshot, ctx: ctx, catalog: catalog}, nil
}

// Catalog is the definitions as the transaction sees them.
func (tx *Tx) Catalog() *Catalog { return tx.catalog }

// Now reads the store's clock.
func (tx *Tx) Now(ctx context.Context) (time.Time, error) { return tx.db.Now(ctx) }

// Wrote reports whether the transaction has anything to commit.
func (tx *Tx) Wrote() bool {
	return tx.writes.Len() > 0 || len(tx.appends) > 0 || len(tx.groupOrder) > 0 || len(tx.dropped) > 0
}

// Cancel ends the transaction; nothing of it is written. Cancelling one that
// has ended does nothing.
func (tx *Tx) Cancel() {
	if !tx.ended {
		tx.ended = true
		tx.snapshot.Release()
	}
}

// Appended are the first and last position that a commit gave in a topic.
type Appended struct{ First, Last topic.Position }

// Commit ends the transaction and makes what it wrote durable, whole or not at
// all. It returns the positions of what was appended, by topic, and
// fault.Conflict when another transaction committed first what this one wrote
// or read as a consumer.
func (tx *Tx) Commit(ctx context.Context) (map[string]Appended, error) {
	if tx.ended {
		return nil, fault.New(fault.NoTransaction, "the transaction has ended")
	}
	defer tx.Cancel()
	if !tx.Wrote() {
		return nil, nil
	}
	if tx.host != nil {
		return tx.commitInHost(ctx)
	}
	if len(tx.unread) > 0 && tx.db.newest.Load() > uint64(tx.snapshot.Sequence()) {
		// Here, and not where other commits wait for it.
		if err := tx.readVersions(ctx); err != nil {
			return nil, err
		}
	}
	request := &txRequest{tx: tx, waiter: newWaiter()}
	if err := submit(ctx, tx.db.committer, request, request.waiter); err != nil {
		return nil, err
	}
	return request.appended(), nil
}

// run sets the context of a call.
func (tx *Tx) run(ctx context.Context) error {
	if tx.ended {
		return fault.New(fault.NoTransaction, "the transaction has ended")
	}
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	tx.ctx = ctx
	return nil
}

func (tx *Tx) context() context.Context { return tx.ctx }

// now is the store's clock, or the zero time where it cannot be read; the
// commit then fails for the same reason.
func (tx *Tx) now() time.Time {
	now, _ := tx.db.Now(tx.ctx)
	return now
}

func (tx *Tx) get(key []byte) ([]byte, bool, error) {
	if w, ok := tx.writes.Get(string(key)); ok {
		return w.row, w.row != nil, nil
	}
	if tx.isDropped(key) {
		return nil, false, nil
	}
	entry, err := tx.snapshot.Get(tx.ctx, key)
	return entry.Value, entry.Sequence != 0, err
}

func (tx *Tx) isDropped(key []byte) bool { return inRanges(tx.dropped, key) }

func inRanges(ranges []engine.Range, key []byte) bool {
	return slices.ContainsFunc(ranges, func(r engine.Range) bool {
		return string(key) >= string(r.From) && (r.To == nil || string(key) < string(r.To))
	})
}

// touch reads a key of the snapshot and keeps its version, which the
// transaction must not lose.
func (tx *Tx) touch(key []byte) (engine.Entry, error) {
	entry, err := tx.snapshot.Get(tx.ctx, key)
	if err != nil {
		return entry, err
	}
	tx.keep(key, entry.Sequence)
	return entry, nil
}

func (tx *Tx) keep(key []byte, version engine.Sequence) {
	if tx.base == nil {
		tx.base = map[string]engine.Sequence{}
	}
	tx.base[string(key)] = version
}

// notRead is the version of a key that the transaction has not read: it is
// what the snapshot has, and is read only where another commit came between.
const notRead = engine.Sequence(math.MaxUint64)

// guard keeps a key's version, unless it is kept.
func (tx *Tx) guard(key []byte) {
	if _, known := tx.base[string(key)]; !known {
		tx.keep(key, notRead)
		tx.unread = append(tx.unread, key)
	}
}

// readVersions reads the versions that are kept and were not read.
func (tx *Tx) readVersions(ctx context.Context) error {
	entries, err := tx.snapshot.GetMany(ctx, tx.unread)
	if err != nil {
		return err
	}
	for i, key := range tx.unread {
		if tx.base[string(key)] == notRead {
			tx.base[string(key)] = entries[i].Sequence
		}
	}
	tx.unread = nil
	return nil
}

// put changes a row whose version is kept.
func (tx *Tx) put(key, row []byte) error {
	tx.guard(key)
	tx.size += len(key) + len(row)
	tx.writes.Set(string(key), write{row})
	return tx.checkSize()
}

func (tx *Tx) checkSize() error {
	if tx.size > MaxTransactionBytes {
		return fault.New(fault.TooLarge, "the transaction writes more than %d bytes; commit in smaller steps", MaxTransactionBytes)
	}
	return nil
}

// txState is a transaction as a state that commands of readers and groups run
// on; the first error of a change is kept for the end of the command.
type txState struct {
	*Tx
	failed error
}

func (st *txState) set(key, row []byte) { st.keep(st.put(key, row)) }
func (st *txState) remove(key []byte)   { st.keep(st.put(key, nil)) }

func (st *txState) keep(err error) {
	if st.failed == nil {
		st.failed = err
	}
}

// tail is a topic as the snapshot has it: the transaction's own appends have
// no position and are not in it.
func (tx *Tx) tail(table *Table) (tail, error) {
	if tx.isDropped(objectKey(rowTopicState, table.ID)) {
		return emptyTail(), nil
	}
	return loadTail(tx.ctx, tx.snapshot, table.ID)
}

func (tx *Tx) messages(table *Table, from, to topic.Position) messageCursor {
	return snapshotSource{tx.ctx, tx.snapshot}.messages(table, from, to)
}

func (tx *Tx) messageRow(table *Table, p topic.Position) ([]byte, error) {
	return snapshotSource{tx.ctx, tx.snapshot}.messageRow(table, p)
}

// Read answers the messages of a topic that the snapshot holds. With a
// consumer's name it reads as that reader or group, in this transaction.
func (tx *Tx) Read(ctx context.Context, table *Table, options ReadOptions) (Page, error) {
	if err := tx.run(ctx); err != nil {
		return Page{}, err
	}
	if options.Consumer != "" {
		if _, isGroup := table.Groups[options.Consumer]; !isGroup {
			// Also a place that stays is one that nobody else may move.
			tx.guard(objectNameKey(rowReader, table.ID, options.Consumer))
		}
		st := &txState{Tx: tx}
		page, err := readAs(st, table, options)
		if err == nil {
			err = st.failed
		}
		return page, err
	}
	t, err := tx.tail(table)
	if err != nil {
		return Page{}, err
	}
	return readPlain(tx, table, t, options)
}

// Append adds a message to a topic when the transaction commits; its position
// is given then. A none key stands for an identity that is generated here.
// appended is false when deduplication keeps the message out.
func (tx *Tx) Append(ctx context.Context, table *Table, key, v value.Value) (message Message, appended bool, err error) {
	if err := tx.run(ctx); err != nil {
		return Message{}, false, err
	}
	prepared, err := prepareMessage(table, NewMessage{Key: key, Value: v}, 0)
	if err != nil {
		return Message{}, false, err
	}
	m := &prepared
	m.headers = headersOf(ctx)
	published, err := tx.published(table, m)
	if err != nil || published {
		return Message{}, false, err
	}
	if m.namedKey == nil {
		if m.key, err = generatedIdentity(); err != nil {
			return Message{}, false, err
		}
		if m.namedKey, err = value.AppendKey(nil, m.key); err != nil {
			return Message{}, false, err
		}
	} else if err := tx.claimIdentity(table, m); err != nil {
		return Message{}, false, err
	}
	var own uint64
	for _, a := range tx.appends {
		if a.table.ID == table.ID {
			own += uint64(len(a.message.encoded))
		}
	}
	if err := topic.CheckRetainBytes(table.Name, table.Topic, own+uint64(len(m.encoded))); err != nil {
		return Message{}, false, err
	}
	tx.appends = append(tx.appends, txAppend{table, m})
	tx.size += len(m.encoded) + len(m.headers) + messageHeadBytes
	return m.message(table), true, tx.checkSize()
}

// published reports whether deduplication keeps a message out, for what the
// snapshot holds and what the transaction itself appends. What others append
// meanwhile is looked at when the transaction is sealed.
func (tx *Tx) published(table *Table, m *newMessage) (bool, error) {
	if m.deduplication == nil {
		return false, nil
	}
	for _, a := range tx.appends {
		if a.table.ID == table.ID && string(a.message.deduplication) == string(m.deduplication) {
			return true, nil
		}
	}
	row, found, err := tx.get(objectSuffixKey(rowDeduplication, table.ID, m.deduplication))
	if err != nil || !found {
		return false, err
	}
	return table.Topic.Deduplicate.Holds(decodeTime(row), tx.now()), nil
}

// claimIdentity refuses a named identity that is taken.
func (tx *Tx) claimIdentity(table *Table, m *newMessage) error {
	for _, a := range tx.appends {
		if a.table.ID == table.ID && string(a.message.namedKey) == string(m.namedKey) {
			return recordExists(table.Name, m.key)
		}
	}
	t, err := tx.tail(table)
	if err != nil {
		return err
	}
	taken, err := identityTaken(tx, table, t, m.key, m.namedKey)
	if err == nil && taken {
		err = recordExists(table.Name, m.key)
	}
	return err
}

// txRequest is a transaction that waits to be sealed.
type txRequest struct {
	waiter
	tx *Tx
	// sealed is what the commit appended, in the order of the positions.
	sealed []topicAppends
}

func (r *txRequest) bytes() int  { return r.tx.size }
func (r *txRequest) alone() bool { return len(r.tx.dropped) > 0 }

// seal validates the transaction against the newest state and applies it.
func (r *txRequest) seal(s *sealing) error {
	tx := r.tx
	if s.catalog.version != tx.catalog.version {
		return fault.New(fault.Conflict, "a definition of database %s was changed since the transaction began; run it again", tx.db.Name)
	}
	if s.wrote || s.commit.Sequence() != tx.snapshot.Sequence() {
		if err := tx.checkVersions(s); err != nil {
			return err
		}
	}
	// A transaction that drops rows is alone in its commit.
	s.dropped = tx.dropped
	for _, id := range tx.groupOrder {
		if tx.definedGroup(id) {
			// Nobody else knows it yet.
			continue
		}
		g := tx.groups[id]
		if err := s.checkGroup(g.table, g.definition, g.changes); err != nil {
			return err
		}
	}
	topics := tx.appendsByTopic()
	for _, a := range topics {
		if err := s.admit(a.table, a.messages); err != nil {
			if fault.Of(err).Kind == fault.RecordExists {
				return fault.New(fault.Conflict, "another commit took an identity that the transaction gave: %s; run it again", fault.Of(err).Message)
			}
			return err
		}
	}
	return r.apply(s, topics)
}

// checkVersions returns fault.Conflict where another commit came between: where
// a key whose version is kept has another one in the newest state.
func (tx *Tx) checkVersions(s *sealing) error {
	if err := tx.readVersions(s.ctx); err != nil {
		return s.fail(err)
	}
	keys := slices.Sorted(maps.Keys(tx.base))
	entries, err := s.entries(keys)
	if err != nil {
		return err
	}
	for i, key := range keys {
		if entries[i].Sequence != tx.base[key] {
			return fault.New(fault.Conflict, "%s was changed by another commit since the transaction began; run it again", tx.describe(key))
		}
	}
	return nil
}

// definedGroup reports whether the transaction itself defines a group. Its head
// is not in the newest state before the transaction is applied.
func (tx *Tx) definedGroup(id ObjectID) bool {
	_, defined := tx.writes.Get(string(objectKey(rowGroupHead, id)))
	return defined
}

// apply changes the newest state; nothing can refuse it any more but the
// engine.
func (r *txRequest) apply(s *sealing, topics []topicAppends) error {
	tx := r.tx
	for _, dropped := range tx.dropped {
		s.commit.DeleteRange(dropped)
		s.wrote = true
	}
	tx.writes.Scan(func(key string, w write) bool {
		if w.row == nil {
			s.remove([]byte(key))
		} else {
			s.set([]byte(key), w.row)
		}
		return true
	})
	if tx.catalogChanged {
		s.changedCatalog = tx.catalog.changed(func(c *Catalog) { c.version = s.next() })
		s.catalog = s.changedCatalog
	}
	for _, id := range tx.groupOrder {
		g := tx.groups[id]
		for _, change := range g.changes {
			if err := s.change(g.table, g.definition, change); err != nil {
				return s.fail(err)
			}
		}
	}
	for _, a := range topics {
		if err := s.append(a.table, a.messages); err != nil {
			return err
		}
	}
	r.sealed = slices.Concat(s.letters, topics)
	for _, table := range s.catalog.tables {
		if slices.Contains(tx.altered, table.ID) {
			t, err := s.topic(table)
			if err != nil {
				return err
			}
			if err := s.trim(t); err != nil {
				return err
			}
		}
	}
	return nil
}

type topicAppends struct {
	table    *Table
	messages []*newMessage
}

// appendsByTopic groups what the transaction appends, in order.
func (tx *Tx) appendsByTopic() []topicAppends {
	var topics []topicAppends
	for _, a := range tx.appends {
		i := slices.IndexFunc(topics, func(t topicAppends) bool { return t.table.ID == a.table.ID })
		if i < 0 {
			i = len(topics)
			topics = append(topics, topicAppends{table: a.table})
		}
		topics[i].messages = append(topics[i].messages, a.message)
	}
	return topics
}

// appended are the positions that sealing gave.
func (r *txRequest) appended() map[string]Appended {
	var result map[string]Appended
	for _, a := range r.sealed {
		for _, m := range a.messages {
			if m.keptOut {
				continue
			}
			if result == nil {
				result = map[string]Appended{}
			}
			positions, ok := result[a.table.Name]
			if !ok {
				positions.First = m.position
			}
			positions.Last = m.position
			result[a.table.Name] = positions
		}
	}
	return result
}

// describe names what a key is of, for people.
func (tx *Tx) describe(key string) string {
	if len(key) < 5 {
		return "a definition"
	}
	id := ObjectID(uint32(key[1])<<24 | uint32(key[2])<<16 | uint32(key[3])<<8 | uint32(key[4]))
	name := "a table"
	for _, table := range tx.catalog.tables {
		if table.ID == id {
			name = table.Name
		}
	}
	switch key[0] {
	case rowRecord, rowIdentity:
		if v, _, err := value.DecodeKey([]byte(key[5:])); err == nil {
			return value.RecordID{Table: name, Key: v}.String()
		}
		return "a record of " + name
	case rowReader:
		return fmt.Sprintf("the place of consumer '%s' on topic %s", key[5:], name)
	case rowTable, rowGroup, rowConsumer:
		return "definition " + strings.ToValidUTF8(key[1:], "?")
	}
	return "what the transaction wrote in " + name
}
