package store

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// sealing is one engine commit being formed out of the requests that were
// waiting for it. They run one after the other, each on the state that the
// ones before it left: the engine's latest state, and over it what this commit
// writes. A request checks all that could refuse it before it changes
// anything, so that a loser drops out and leaves no trace.
//
// An error of the engine while reading fails the whole commit: it is kept in
// failed, and nothing is written.
type sealing struct {
	ctx    context.Context
	commit engine.Commit
	*sealed

	failed error
	// rows holds what this commit wrote, but for messages and groups, which
	// are read from what sealed knows of them.
	rows map[string]engine.Entry
	// dropped are the ranges that the transaction being sealed removes.
	dropped []engine.Range
	// touched are the topics whose readers, and the groups whose members, may
	// have something new after this commit.
	touchedTopics map[ObjectID]*sealedTopic
	touchedGroups map[ObjectID]struct{}
	wrote         bool
	// appended counts the messages that this commit appends.
	appended int
	// own is what the request that is being sealed appends, by topic in bytes,
	// and letters are the dead letters among it.
	own     map[ObjectID]uint64
	letters []topicAppends
	// changedCatalog is the definitions that this commit leaves, nil where it
	// does not change them.
	changedCatalog *Catalog
}

// sealed is what the committer knows of the newest state, kept from one commit
// to the next as long as nobody else commits.
type sealed struct {
	sequence engine.Sequence
	catalog  *Catalog
	topics   map[ObjectID]*sealedTopic
	groups   map[ObjectID]*sealedGroup
	// arena holds the rows of messages while their commit is formed.
	arena []byte
}

// maxArenaBytes is how much memory is kept for the rows of the next commit.
const maxArenaBytes = 4 * maxCommitBytes

// forming is the sequence of what is known while a commit is being formed, so
// that a form which failed or is run again starts from what the engine has.
const forming = engine.Sequence(math.MaxUint64)

func (k *sealed) reload(ctx context.Context, r engine.Reader) error {
	version, err := r.Get(ctx, catalogVersionKey)
	if err != nil {
		return err
	}
	if k.sequence == forming || k.catalog == nil || k.catalog.version != version.Sequence {
		if k.catalog, err = loadCatalog(ctx, r, version.Sequence); err != nil {
			return err
		}
	}
	k.topics = map[ObjectID]*sealedTopic{}
	k.groups = map[ObjectID]*sealedGroup{}
	return nil
}

// The bounds of what the committer keeps: past them it forgets and reads again.
const (
	maxSealedTopics = 10_000
	maxSealedGroups = 1_000
)

type sealedTopic struct {
	tail
	table *Table
	// pending are the rows of the messages that this commit appends, after
	// position pendingAfter.
	pending      [][]byte
	pendingAfter topic.Position
	stateChanged bool
}

type sealedGroup struct {
	definition *Group
	group      *topic.Group
}

// beginSealing starts a commit on the engine's latest state.
func beginSealing(ctx context.Context, commit engine.Commit, known *sealed) (*sealing, error) {
	if known.sequence != commit.Sequence() || len(known.topics) > maxSealedTopics || len(known.groups) > maxSealedGroups {
		if err := known.reload(ctx, commit); err != nil {
			return nil, err
		}
	}
	known.sequence = forming
	known.arena = known.arena[:0]
	if cap(known.arena) > maxArenaBytes {
		known.arena = nil
	}
	return &sealing{
		ctx: ctx, commit: commit, sealed: known,
		rows:          map[string]engine.Entry{},
		touchedTopics: map[ObjectID]*sealedTopic{},
		touchedGroups: map[ObjectID]struct{}{},
	}, nil
}

// request runs one request.
func (s *sealing) request(r request) error {
	if len(s.own) > 0 {
		clear(s.own)
	}
	s.letters = nil
	return r.seal(s)
}

// next is the sequence of the commit being formed.
func (s *sealing) next() engine.Sequence { return s.commit.Sequence() + 1 }

func (s *sealing) now() time.Time { return s.commit.Now() }

func (s *sealing) context() context.Context { return s.ctx }

// fail keeps the first error of the engine and returns it.
func (s *sealing) fail(err error) error {
	if err != nil && s.failed == nil {
		s.failed = err
	}
	return err
}

func (s *sealing) entry(key []byte) (engine.Entry, error) {
	if entry, ok := s.rows[string(key)]; ok {
		return entry, nil
	}
	if inRanges(s.dropped, key) {
		return engine.Entry{}, nil
	}
	entry, err := s.commit.Get(s.ctx, key)
	return entry, s.fail(err)
}

// entries are the entries of keys, which the engine is asked for at once.
func (s *sealing) entries(keys []string) ([]engine.Entry, error) {
	entries := make([]engine.Entry, len(keys))
	var asked [][]byte
	var places []int
	for i, key := range keys {
		if entry, ok := s.rows[key]; ok {
			entries[i] = entry
		} else if !inRanges(s.dropped, []byte(key)) {
			asked, places = append(asked, []byte(key)), append(places, i)
		}
	}
	stored, err := s.commit.GetMany(s.ctx, asked)
	if err != nil {
		return nil, s.fail(err)
	}
	for i, entry := range stored {
		entries[places[i]] = entry
	}
	return entries, nil
}

func (s *sealing) get(key []byte) ([]byte, bool, error) {
	entry, err := s.entry(key)
	return entry.Value, entry.Sequence != 0, err
}

func (s *sealing) set(key, row []byte) {
	s.rows[string(key)] = engine.Entry{Value: row, Sequence: s.next()}
	s.commit.Set(key, row)
	s.wrote = true
}

func (s *sealing) remove(key []byte) {
	s.rows[string(key)] = engine.Entry{}
	s.commit.Delete(key)
	s.wrote = true
}

// topic is the newest state of a topic.
func (s *sealing) topic(table *Table) (*sealedTopic, error) {
	known, ok := s.topics[table.ID]
	if !ok {
		loaded, err := loadTail(s.ctx, s.commit, table.ID)
		if err != nil {
			return nil, s.fail(err)
		}
		known = &sealedTopic{tail: loaded}
		s.topics[table.ID] = known
	}
	known.table = table
	return known, nil
}

// tail is the newest state of a topic with what its bounds let go.
func (s *sealing) tail(table *Table) (tail, error) {
	known, err := s.topic(table)
	if err != nil {
		return tail{}, err
	}
	return known.tail, s.trim(known)
}

// trim lets go what RETAIN BYTES no longer allows.
func (s *sealing) trim(t *sealedTopic) error {
	limit := t.table.Topic.RetainBytes
	if limit == 0 || t.heldBytes() <= uint64(limit) {
		return nil
	}
	first, err := topic.FirstWithinBytes(t.first, t.last, uint64(limit), func(p topic.Position) (uint64, error) {
		head, err := headAt(s, t.table, p)
		return head.totalBytes, err
	})
	if err != nil {
		return s.fail(err)
	}
	newestGone, err := headAt(s, t.table, first-1)
	if err != nil {
		return s.fail(err)
	}
	s.letGo(t, first, newestGone.totalBytes)
	return nil
}

// letGo moves a topic's first position and leaves the rows to housekeeping.
func (s *sealing) letGo(t *sealedTopic, first topic.Position, bytesBefore uint64) {
	t.letGo(first, bytesBefore)
	s.touch(t)
	t.stateChanged = true
}

func (s *sealing) touch(t *sealedTopic) { s.touchedTopics[t.table.ID] = t }

func (s *sealing) messageRow(table *Table, p topic.Position) ([]byte, error) {
	if t := s.topics[table.ID]; t != nil && len(t.pending) > 0 && p > t.pendingAfter {
		return t.pending[p-t.pendingAfter-1], nil
	}
	entry, err := s.commit.Get(s.ctx, positionKey(rowMessage, table.ID, p))
	return entry.Value, s.fail(err)
}

// messages iterates over the rows of positions from, up to and with to: those
// of the engine, then those of this commit.
func (s *sealing) messages(table *Table, from, to topic.Position) messageCursor {
	t := s.topics[table.ID]
	if t == nil || len(t.pending) == 0 || to <= t.pendingAfter {
		return s.storedMessages(table, from, to)
	}
	pending := &pendingCursor{topic: t, at: max(from, t.pendingAfter+1) - 1, to: to}
	if from > t.pendingAfter {
		return pending
	}
	return &chainedCursor{cursors: []messageCursor{s.storedMessages(table, from, t.pendingAfter), pending}}
}

func (s *sealing) storedMessages(table *Table, from, to topic.Position) messageCursor {
	return engineCursor{s.commit.Scan(s.ctx, positionRange(rowMessage, table.ID, from, to+1), false, int(to+1-from))}
}

// pendingCursor reads the messages that a commit being formed appends.
type pendingCursor struct {
	topic  *sealedTopic
	at, to topic.Position
}

func (c *pendingCursor) next() bool {
	if c.at >= c.to {
		return false
	}
	c.at++
	return true
}

func (c *pendingCursor) position() topic.Position { return c.at }
func (c *pendingCursor) row() []byte              { return c.topic.pending[c.at-c.topic.pendingAfter-1] }
func (c *pendingCursor) close() error             { return nil }

// chainedCursor reads one cursor after the other.
type chainedCursor struct{ cursors []messageCursor }

func (c *chainedCursor) next() bool {
	for {
		if c.cursors[0].next() {
			return true
		}
		if len(c.cursors) == 1 {
			return false
		}
		if err := c.cursors[0].close(); err != nil {
			c.cursors[0] = failedCursor{err}
			return false
		}
		c.cursors = c.cursors[1:]
	}
}

func (c *chainedCursor) position() topic.Position { return c.cursors[0].position() }
func (c *chainedCursor) row() []byte              { return c.cursors[0].row() }
func (c *chainedCursor) close() error             { return c.cursors[0].close() }

// failedCursor has nothing but an error.
type failedCursor struct{ err error }

func (c failedCursor) next() bool               { return false }
func (c failedCursor) position() topic.Position { return 0 }
func (c failedCursor) row() []byte              { return nil }
func (c failedCursor) close() error             { return c.err }

// newMessage is a message that a request appends.
type newMessage struct {
	// key is that of its identity and namedKey the same encoded, nil for one
	// that sealing generates.
	key      value.Value
	namedKey []byte
	headers  encodedHeaders
	encoded  []byte
	// deduplication is its encoded deduplication key, nil for none.
	deduplication []byte

	// What sealing found out.
	keptOut  bool
	position topic.Position
	appended time.Time
}

// message is the message as its appender is answered it.
func (m *newMessage) message(table *Table) Message {
	message := Message{table: table, Position: m.position, namedKey: m.namedKey, headers: m.headers, encoded: m.encoded}
	if !m.appended.IsZero() {
		message.appended = m.appended.UnixNano()
	}
	return message
}

// admit checks what could refuse messages to a topic and marks those that
// deduplication keeps out. It changes nothing else.
func (s *sealing) admit(table *Table, messages []*newMessage) error {
	t, err := s.topic(table)
	if err != nil {
		return err
	}
	var ownBytes uint64
	var keysSeen, identitiesSeen map[string]bool
	for _, m := range messages {
		m.keptOut = false
		if m.deduplication != nil {
			published, err := s.published(table, m.deduplication)
			if err != nil {
				return err
			}
			if keysSeen == nil {
				keysSeen = map[string]bool{}
			}
			if published || keysSeen[string(m.deduplication)] {
				m.keptOut = true
				continue
			}
			keysSeen[string(m.deduplication)] = true
		}
		if m.namedKey != nil {
			taken, err := identityTaken(s, table, t.tail, m.key, m.namedKey)
			if err != nil {
				return err
			}
			if identitiesSeen == nil {
				identitiesSeen = map[string]bool{}
			}
			if taken || identitiesSeen[string(m.namedKey)] {
				return recordExists(table.Name, m.key)
			}
			identitiesSeen[string(m.namedKey)] = true
		}
		ownBytes += uint64(len(m.encoded))
	}
	if table.Topic.RetainBytes == 0 {
		return nil
	}
	// What was admitted earlier in the request counts: a commit never removes
	// messages of its own.
	ownBytes += s.own[table.ID]
	if err := topic.CheckRetainBytes(table.Name, table.Topic, ownBytes); err != nil {
		return err
	}
	if s.own == nil {
		s.own = map[ObjectID]uint64{}
	}
	s.own[table.ID] = ownBytes
	return nil
}

// published reports whether a deduplication key is within its window.
func (s *sealing) published(table *Table, key []byte) (bool, error) {
	row, found, err := s.get(objectSuffixKey(rowDeduplication, table.ID, key))
	if err != nil || !found || table.Topic.Deduplicate == nil {
		return false, err
	}
	return table.Topic.Deduplicate.Holds(decodeTime(row), s.now()), nil
}

// append gives admitted messages their positions and writes them.
func (s *sealing) append(table *Table, messages []*newMessage) error {
	t, err := s.topic(table)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if !m.keptOut {
			s.appendOne(t, m)
		}
	}
	return nil
}

func (s *sealing) appendOne(t *sealedTopic, m *newMessage) {
	if len(t.pending) == 0 {
		t.pendingAfter = t.last
	}
	if now := s.now(); now.After(t.appended) {
		t.appended = now
	}
	t.last++
	t.bytes += uint64(len(m.encoded))
	m.position, m.appended = t.last, t.appended

	start := len(s.arena)
	s.arena = appendMessageRow(s.arena, messageHead{appended: m.appended, totalBytes: t.bytes, namedKey: m.namedKey, headers: m.headers}, m.encoded)
	row := s.arena[start:len(s.arena):len(s.arena)]
	t.pending = append(t.pending, row)
	var key [positionKeyBytes]byte
	s.commit.Set(appendPositionKey(key[:0], rowMessage, t.table.ID, m.position), row)
	s.wrote = true
	s.appended++
	s.touch(t)

	if m.namedKey != nil {
		s.set(objectSuffixKey(rowIdentity, t.table.ID, m.namedKey), binary.BigEndian.AppendUint64(nil, uint64(m.position)))
		if !t.named {
			t.named, t.stateChanged = true, true
		}
	}
	if m.deduplication != nil {
		at := encodeTime(m.appended)
		s.set(objectSuffixKey(rowDeduplication, t.table.ID, m.deduplication), at)
		s.set(objectSuffixKey(rowExpiry, t.table.ID, append(at, m.deduplication...)), []byte{})
	}
}

// finish writes what the requests left to the end of the commit.
func (s *sealing) finish() error {
	if s.failed != nil {
		return s.failed
	}
	for _, id := range slices.Sorted(maps.Keys(s.touchedTopics)) {
		t := s.touchedTopics[id]
		if err := s.trim(t); err != nil {
			return err
		}
		if t.stateChanged {
			s.commit.Set(objectKey(rowTopicState, id), t.encode())
			s.wrote = true
			t.stateChanged = false
		}
	}
	return s.failed
}

// settle drops what was of this commit alone, and remembers the state after it.
func (s *sealing) settle() {
	for _, t := range s.touchedTopics {
		t.pending = nil
	}
	s.sequence = s.commit.Sequence()
	if s.wrote {
		s.sequence = s.next()
	}
}

func encodeTime(t time.Time) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(t.UnixNano()))
}

func decodeTime(row []byte) time.Time {
	if len(row) < 8 {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(row))).UTC()
}

// identityTaken reports whether a topic holds a message of an identity.
func identityTaken(st rowSource, table *Table, t tail, key value.Value, encodedKey []byte) (bool, error) {
	p, err := findIdentity(st, table, t, key, encodedKey)
	return p != 0, err
}

// findIdentity returns the position of the message of an identity, 0 for none.
func findIdentity(st rowSource, table *Table, t tail, key value.Value, encodedKey []byte) (topic.Position, error) {
	if t.named {
		row, found, err := st.get(objectSuffixKey(rowIdentity, table.ID, encodedKey))
		if err != nil {
			return 0, err
		}
		if found && len(row) == 8 {
			if p := topic.Position(binary.BigEndian.Uint64(row)); p >= t.first && p <= t.last {
				return p, nil
			}
		}
	}
	id, ok := key.AsUUID()
	if !ok {
		return 0, nil
	}
	p := sealedPosition(id)
	if p < t.first || p > t.last {
		return 0, nil
	}
	row, err := st.messageRow(table, p)
	if err != nil {
		return 0, err
	}
	head, _, err := decodeMessageRow(row)
	if err != nil || head.namedKey != nil || sealedIdentity(table.ID, p, head.appended) != id {
		return 0, err
	}
	return p, nil
}

// rowSource reads the rows of one state.
type rowSource interface {
	messageSource
	get(key []byte) (row []byte, found bool, err error)
}

func recordExists(table string, key value.Value) error {
	return fault.New(fault.RecordExists, "%s exists already", value.RecordID{Table: table, Key: key})
}
