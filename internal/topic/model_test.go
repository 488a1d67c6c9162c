package topic

import (
	"slices"
	"time"
)

// model is a topic and one group on it, as plainly as it can be told: a state
// for each message, and a scan over all of them for every question. Messages
// below first are removed by retention, whatever their state says.
type model struct {
	definition  GroupDefinition
	first, last Position
	now         time.Time
	// messages and keys are by position; those of position 0 are not used. A
	// key is "" for none.
	messages []modelMessage
	keys     []string
	position Position
	epoch    int
	counts   modelCounts
}

type modelState byte

const (
	pending modelState = iota // not handed out
	out
	returned
	acknowledged
	givenUp
	removed   // by retention while in flight, and said so by a hand-out
	forgotten // by START AT
	lapsed    // by retention before it was handed out, and told
)

type modelMessage struct {
	state                modelState
	deliveries, released Deliveries
	due                  time.Time
}

type modelCounts struct {
	handedOut, redelivered, acknowledged, givenUp, removed, forgotten, lapsed, refused uint64
}

func (m *model) clone() *model {
	copied := *m
	copied.messages, copied.keys = slices.Clone(m.messages), slices.Clone(m.keys)
	return &copied
}

func (m *model) append(key string) {
	m.last++
	m.messages = append(m.messages, modelMessage{})
	m.keys = append(m.keys, key)
}

func (m *model) inFlight(p Position) bool {
	state := m.messages[p].state
	return state == out || state == returned
}

func (m *model) settled(p Position) bool {
	return p < m.first || !m.inFlight(p) && m.messages[p].state != pending
}

func (m *model) countInFlight() (n int) {
	for p := m.first; p <= m.last; p++ {
		if m.inFlight(p) {
			n++
		}
	}
	return n
}

// backoff is the wait of a message that is handed back once more.
func (m *model) backoff(p Position) time.Duration {
	times := int(m.messages[p].deliveries) - int(m.messages[p].released)
	if times == 0 || len(m.definition.Backoff) == 0 {
		return 0
	}
	if times > len(m.definition.Backoff) {
		times = len(m.definition.Backoff)
	}
	return m.definition.Backoff[times-1]
}

// dueAt is when a message that is in flight is due.
func (m *model) dueAt(p Position) time.Time {
	if m.messages[p].state == out {
		return m.messages[p].due.Add(m.backoff(p))
	}
	return m.messages[p].due
}

// allowed reports whether a hand-out may look at a message now.
func (m *model) allowed(p Position) bool {
	if m.settled(p) {
		return false
	}
	if m.inFlight(p) {
		return !m.dueAt(p).After(m.now)
	}
	if m.countInFlight() >= m.definition.InFlight {
		return false
	}
	if m.definition.KeyedBy == "" || m.keys[p] == "" {
		return true
	}
	for earlier := m.first; earlier < p; earlier++ {
		if m.keys[earlier] == m.keys[p] && !m.settled(earlier) {
			return false
		}
	}
	return true
}

// handOut is a READ. fits and fitsDead are how many messages the answer and
// the dead letters have room for.
func (m *model) handOut(limit, fits, fitsDead int) (handedOut []Delivery, gaveUp []GiveUp, lapsedNow uint64) {
	if m.definition.Paused {
		return nil, nil, 0
	}
	for p := Position(1); p < m.first; p++ {
		if m.messages[p].state == pending {
			m.messages[p].state = lapsed
			m.counts.lapsed++
			lapsedNow++
		}
	}
	taken := map[Position]bool{}
	for len(handedOut) < limit {
		p := m.first
		for p <= m.last && (taken[p] || !m.allowed(p)) {
			p++
		}
		if p > m.last {
			break
		}
		message := &m.messages[p]
		if m.inFlight(p) && m.definition.Deliveries > 0 && int(message.deliveries-message.released) >= m.definition.Deliveries {
			if len(gaveUp) >= fitsDead {
				break
			}
			message.state = givenUp
			m.counts.givenUp++
			gaveUp = append(gaveUp, GiveUp{Position: p, Deliveries: message.deliveries})
			continue
		}
		if len(handedOut) >= fits {
			break
		}
		if message.state == pending {
			m.counts.handedOut++
		} else {
			m.counts.redelivered++
		}
		taken[p] = true
		message.state, message.due = out, m.now.Add(m.definition.AckDeadline)
		message.deliveries++
		m.position = max(m.position, p)
		handedOut = append(handedOut, Delivery{p, message.deliveries, message.released})
	}
	if len(handedOut) > 0 || len(gaveUp) > 0 || lapsedNow > 0 {
		m.position = max(m.position, m.first-1)
		for p := Position(1); p < m.first; p++ {
			if m.inFlight(p) {
				m.messages[p].state = removed
				m.counts.removed++
			}
		}
	}
	return handedOut, gaveUp, lapsedNow
}

// settle is ACK, NACK, EXTEND, REJECT or RELEASE, and returns how many counted.
func (m *model) settle(command string, at []Settle, delay *time.Duration, by time.Duration) (count int) {
	counted := map[Position]bool{}
	for _, s := range at {
		if s.Position < m.first || s.Position > m.last || counted[s.Position] || !m.inFlight(s.Position) {
			continue
		}
		message := &m.messages[s.Position]
		if s.Delivery != 0 && s.Delivery != message.deliveries {
			continue
		}
		switch command {
		case "ACK":
			message.state = acknowledged
			m.counts.acknowledged++
		case "REJECT":
			message.state = givenUp
			m.counts.givenUp++
		case "NACK":
			wait := m.backoff(s.Position)
			if delay != nil {
				wait = *delay
			}
			message.state, message.due = returned, m.now.Add(wait)
		case "EXTEND":
			if message.state != out {
				continue
			}
			if by == 0 {
				by = m.definition.AckDeadline
			}
			message.due = m.now.Add(by)
		case "RELEASE":
			if message.state != out {
				continue
			}
			message.state, message.due = returned, m.now
			message.released++
		}
		counted[s.Position] = true
		count++
	}
	return count
}

func (m *model) startAt(n Position) {
	for p := Position(1); p <= m.last; p++ {
		if m.inFlight(p) {
			if p < m.first {
				m.counts.removed++
			} else {
				m.counts.forgotten++
			}
		}
		m.messages[p] = modelMessage{}
		if p <= n {
			m.messages[p].state = forgotten
		}
	}
	m.position = n
	m.epoch++
}

func (m *model) figures() Figures {
	f := Figures{
		Position:  m.position,
		InFlight:  uint64(m.countInFlight()),
		HandedOut: m.counts.handedOut, Redelivered: m.counts.redelivered,
		Acknowledged: m.counts.acknowledged, DeadLettered: m.counts.givenUp,
		Removed: m.counts.removed, Forgotten: m.counts.forgotten,
		DeadLetterRefused: m.counts.refused,
	}
	for p := Position(1); p < m.first; p++ {
		if m.inFlight(p) {
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

// ready reports whether a hand-out has anything to do, and else when time
// alone changes that, zero for never.
func (m *model) ready() (now bool, next time.Time) {
	if m.definition.Paused {
		return false, time.Time{}
	}
	for p := Position(1); p <= m.last; p++ {
		if p < m.first && m.messages[p].state == pending || m.allowed(p) {
			return true, time.Time{}
		}
		if p >= m.first && m.inFlight(p) {
			if at := m.dueAt(p); next.IsZero() || at.Before(next) {
				next = at
			}
		}
	}
	return false, next
}
