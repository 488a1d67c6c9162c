package store_test

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// groupModel is a topic, one group and one reader on it, as plainly as they can
// be told: a state for each message, a scan over all of them for every
// question, and nothing counted that can be counted again. What is below first
// is removed by retention, whatever its state says.
type groupModel struct {
	bounds     topic.TopicDefinition
	definition topic.GroupDefinition
	now        time.Time

	first, last topic.Position
	// contents and states are by position; those of position 0 are not used.
	contents []modelContent
	states   []modelState
	// published is when a deduplication key was appended last.
	published map[string]time.Time

	// position is the highest that was handed out, settled what START AT has
	// made of messages before.
	position topic.Position
	past     topic.Figures
	refused  uint64
	// audit is the place of the reader.
	audit topic.Position
}

// modelContent is a message, which never changes.
type modelContent struct {
	number int64
	// key is that of KEYED BY, id that of DEDUPLICATE; "" for none.
	key, id  string
	large    bool
	appended time.Time
}

func (c modelContent) value() value.Value {
	fields := value.Object{"n": value.Int(c.number)}
	if c.key != "" {
		fields["key"] = value.String(c.key)
	}
	if c.id != "" {
		fields["id"] = value.String(c.id)
	}
	if c.large {
		fields["pad"] = value.String(string(make([]byte, 2*largestLetterBytes)))
	}
	return value.Fields(fields)
}

func (c modelContent) bytes() uint64 {
	size, err := c.value().Size()
	if err != nil {
		panic(err)
	}
	return uint64(size)
}

// modelState is what the group has made of a message.
type modelState struct {
	where                modelPlace
	deliveries, released topic.Deliveries
	due                  time.Time
	// lapsed says that a read was told that retention removed it before it was
	// handed out.
	lapsed bool
}

type modelPlace byte

const (
	pending modelPlace = iota // not handed out
	out
	returned
	acknowledged
	givenUp
	forgotten // before the place where the group began, or START AT put it
)

func newGroupModel(now time.Time) *groupModel {
	return &groupModel{
		now: now, first: 1,
		contents: make([]modelContent, 1), states: make([]modelState, 1),
		published: map[string]time.Time{},
	}
}

func (m *groupModel) clone() *groupModel {
	copied := *m
	copied.contents, copied.states = slices.Clone(m.contents), slices.Clone(m.states)
	copied.published = make(map[string]time.Time, len(m.published))
	for id, at := range m.published {
		copied.published[id] = at
	}
	return &copied
}

// keptOut reports whether deduplication keeps a message out.
func (m *groupModel) keptOut(c modelContent) bool {
	if m.bounds.Deduplicate == nil || c.id == "" {
		return false
	}
	at, ok := m.published[c.id]
	return ok && m.now.Before(at.Add(m.bounds.Deduplicate.Window))
}

// append gives a message the next position, and lets go what RETAIN BYTES no
// longer keeps.
func (m *groupModel) append(c modelContent) {
	c.appended = m.now
	if newest := m.contents[m.last].appended; newest.After(c.appended) {
		c.appended = newest
	}
	m.last++
	m.contents = append(m.contents, c)
	m.states = append(m.states, modelState{})
	if m.bounds.Deduplicate != nil && c.id != "" {
		m.published[c.id] = c.appended
	}
}

func (m *groupModel) bytes() (total uint64) {
	for p := m.first; p <= m.last; p++ {
		total += m.contents[p].bytes()
	}
	return total
}

// trim is RETAIN BYTES, at the end of a commit.
func (m *groupModel) trim() {
	for m.bounds.RetainBytes > 0 && m.bytes() > uint64(m.bounds.RetainBytes) {
		m.first++
	}
}

// age is RETAIN, which housekeeping looks at.
func (m *groupModel) age() {
	for m.bounds.Retain > 0 && m.first <= m.last && !m.now.Before(m.contents[m.first].appended.Add(m.bounds.Retain)) {
		m.first++
	}
}

// forgetKeys forgets the deduplication keys that keep nothing out any more.
func (m *groupModel) forgetKeys() {
	for id := range m.published {
		if !m.keptOut(modelContent{id: id}) {
			delete(m.published, id)
		}
	}
}

// read is what a reader at a place is answered: how many messages, after how
// many that lapsed.
func (m *groupModel) read(place topic.Position, limit int) (start topic.Position, count int, lapsed uint64) {
	start = max(place+1, m.first)
	return start, min(limit, int(m.last+1-start)), uint64(start - place - 1)
}

func (m *groupModel) inFlight(p topic.Position) bool {
	return p >= m.first && (m.states[p].where == out || m.states[p].where == returned)
}

func (m *groupModel) settled(p topic.Position) bool {
	return p < m.first || !m.inFlight(p) && m.states[p].where != pending
}

func (m *groupModel) countInFlight() (n int) {
	for p := m.first; p <= m.last; p++ {
		if m.inFlight(p) {
			n++
		}
	}
	return n
}

// backoff is the wait of a message that is handed back once more.
func (m *groupModel) backoff(p topic.Position) time.Duration {
	times, waits := int(m.states[p].deliveries-m.states[p].released), m.definition.Backoff
	if times == 0 || len(waits) == 0 {
		return 0
	}
	return waits[min(times, len(waits))-1]
}

// dueAt is when a message that is in flight is due.
func (m *groupModel) dueAt(p topic.Position) time.Time {
	if m.states[p].where == out {
		return m.states[p].due.Add(m.backoff(p))
	}
	return m.states[p].due
}

// allowed reports whether a hand-out may look at a message now.
func (m *groupModel) allowed(p topic.Position) bool {
	switch {
	case m.settled(p):
		return false
	case m.inFlight(p):
		return !m.dueAt(p).After(m.now)
	case m.countInFlight() >= m.definition.InFlight:
		return false
	}
	return !m.waitsForKey(p)
}

// waitsForKey reports whether an earlier message of the same key is not
// settled.
func (m *groupModel) waitsForKey(p topic.Position) bool {
	if m.definition.KeyedBy == "" || m.contents[p].key == "" {
		return false
	}
	for earlier := m.first; earlier < p; earlier++ {
		if m.contents[earlier].key == m.contents[p].key && !m.settled(earlier) {
			return true
		}
	}
	return false
}

// modelHandOut is what a READ of the group answers and does.
type modelHandOut struct {
	out     []topic.Delivery
	givenUp []topic.GiveUp
	lapsed  uint64
}

func (h modelHandOut) nothing() bool {
	return len(h.out) == 0 && len(h.givenUp) == 0 && h.lapsed == 0
}

func (m *groupModel) handOut(limit int) (h modelHandOut) {
	if m.definition.Paused {
		return h
	}
	for p := topic.Position(1); p < m.first; p++ {
		if s := &m.states[p]; s.where == pending && !s.lapsed {
			s.lapsed = true
			h.lapsed++
		}
	}
	taken := map[topic.Position]bool{}
	for len(h.out) < limit {
		p := m.first
		for p <= m.last && (taken[p] || !m.allowed(p)) {
			p++
		}
		if p > m.last {
			break
		}
		s := &m.states[p]
		if m.inFlight(p) && m.definition.Deliveries > 0 && int(s.deliveries-s.released) >= m.definition.Deliveries {
			s.where = givenUp
			h.givenUp = append(h.givenUp, topic.GiveUp{Position: p, Deliveries: s.deliveries})
			continue
		}
		taken[p] = true
		s.where, s.due = out, m.now.Add(m.definition.AckDeadline)
		s.deliveries++
		m.position = max(m.position, p)
		h.out = append(h.out, topic.Delivery{Position: p, Deliveries: s.deliveries})
	}
	if !h.nothing() {
		m.position = max(m.position, m.first-1)
	}
	return h
}

// settle is ACK, NACK, EXTEND, REJECT or RELEASE. It returns how many counted,
// and what was given up on.
func (m *groupModel) settle(command string, at []topic.Settle, delay *time.Duration, by time.Duration) (count int, gaveUp []topic.GiveUp) {
	counted := map[topic.Position]bool{}
	for _, a := range at {
		if a.Position == 0 || a.Position > m.last || counted[a.Position] || !m.inFlight(a.Position) {
			continue
		}
		s := &m.states[a.Position]
		if a.Delivery != 0 && a.Delivery != s.deliveries {
			continue
		}
		switch command {
		case "ACK":
			s.where = acknowledged
		case "REJECT":
			s.where = givenUp
			gaveUp = append(gaveUp, topic.GiveUp{Position: a.Position, Deliveries: s.deliveries, Reason: rejectReason})
		case "NACK":
			wait := m.backoff(a.Position)
			if delay != nil {
				wait = *delay
			}
			s.where, s.due = returned, m.now.Add(wait)
		case "EXTEND":
			if s.where != out {
				continue
			}
			if by == 0 {
				by = m.definition.AckDeadline
			}
			s.due = m.now.Add(by)
		case "RELEASE":
			if s.where != out {
				continue
			}
			s.where, s.due = returned, m.now
			s.released++
		}
		counted[a.Position] = true
		count++
	}
	return count, gaveUp
}

// startAt is START AT: what was counted so far is kept, and all else forgotten.
func (m *groupModel) startAt(n topic.Position) {
	past := m.figures()
	past.Forgotten += past.InFlight
	m.past = past
	m.begin(n)
}

// begin is a group of which nothing is known but where it is.
func (m *groupModel) begin(n topic.Position) {
	for p := range m.states {
		m.states[p] = modelState{}
		if topic.Position(p) <= n {
			m.states[p].where = forgotten
		}
	}
	m.position = n
}

// figures counts everything again.
func (m *groupModel) figures() topic.Figures {
	f := topic.Figures{
		Position:  m.position,
		HandedOut: m.past.HandedOut, Redelivered: m.past.Redelivered, Acknowledged: m.past.Acknowledged,
		DeadLettered: m.past.DeadLettered, Removed: m.past.Removed, Forgotten: m.past.Forgotten,
		DeadLetterRefused: m.refused,
	}
	for p, s := range m.states {
		if s.deliveries > 0 {
			f.HandedOut++
			f.Redelivered += uint64(s.deliveries - 1)
		}
		switch {
		case s.where == acknowledged:
			f.Acknowledged++
		case s.where == givenUp:
			f.DeadLettered++
		case m.inFlight(topic.Position(p)):
			f.InFlight++
		case s.where == out || s.where == returned:
			f.Removed++
		}
	}
	for f.Committed < m.last && m.settled(f.Committed+1) {
		f.Committed++
	}
	f.Lag = uint64(m.last - f.Committed)
	if f.Committed < m.last {
		f.Oldest = f.Committed + 1
	}
	return f
}

// due is when time alone gives a hand-out something to do, zero for never, and
// zero too if there is something now.
func (m *groupModel) due() (next time.Time) {
	if m.definition.Paused {
		return next
	}
	for p := topic.Position(1); p <= m.last; p++ {
		if p < m.first && m.states[p].where == pending && !m.states[p].lapsed || m.allowed(p) {
			return time.Time{}
		}
		if m.inFlight(p) {
			if at := m.dueAt(p); next.IsZero() || at.Before(next) {
				next = at
			}
		}
	}
	return next
}

// merge is the model after a transaction commits that began on base and made
// mine of it, or why it cannot commit.
func (m *groupModel) merge(base, mine *groupModel) (merged *groupModel, reason string) {
	merged = m.clone()
	if mine.position != base.position {
		if m.position != base.position {
			return nil, "it and another handed out new messages"
		}
		merged.position = mine.position
	}
	for p := range base.states {
		if mine.states[p] == base.states[p] {
			continue
		}
		if m.states[p] != base.states[p] {
			return nil, "it and another changed one message"
		}
		merged.states[p] = mine.states[p]
	}
	if before, after := m.countInFlight(), merged.countInFlight(); after > before && after > m.definition.InFlight {
		return nil, "more than IN FLIGHT would be out"
	}
	return merged, ""
}
