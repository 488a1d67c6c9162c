package store

import (
	"context"
	"slices"
	"time"
)

// parkedRead is a read of a consumer that found nothing and waits. The first
// commit that appends to its topic takes it in, behind the append: so who waits
// is handed a message by the very sync that makes the message durable, and not by
// a commit of its own after it.
type parkedRead struct {
	operation
	topic    ObjectID
	consumer string
	// page and err are set when done is closed.
	page Page
	err  error
	done chan struct{}
}

func (p *parkedRead) finished(err error) {
	p.err = err
	close(p.done)
}

// park makes a read that waits, where an alarm has none. It is called when a read
// that found nothing is sealed, which an engine may do again.
func (db *Database) park(a *alarm, topicName string, options ReadOptions) {
	if a.parked != nil {
		return
	}
	options.After, options.Since = db.keepPlace(options)
	p := &parkedRead{topic: a.topicID, consumer: options.Consumer, done: make(chan struct{})}
	p.run = func(s *sealing) error {
		table, err := s.catalog.TopicTable(topicName)
		if err != nil {
			return err
		}
		p.page, err = readAs(s, table, options)
		return err
	}
	a.parked = p
	db.committer.park(p)
}

// awaitParked waits as await does, for a consumer whose read is parked, and
// returns what it was handed meanwhile.
func (db *Database) awaitParked(ctx context.Context, a alarm, due time.Time, timeout <-chan time.Time) (page Page, done bool, err error) {
	done, err = db.await(ctx, a, due, timeout, a.parked.done)
	page, err = db.unparked(&a, Page{}, err)
	return page, done || err == nil && !page.empty(), err
}

// unparked is the outcome of a read, with what its parked one was handed: who
// gave up, or found something after all, has that nevertheless.
func (db *Database) unparked(a *alarm, page Page, err error) (Page, error) {
	if a == nil || a.parked == nil || db.committer.unpark(a.parked) {
		return page, err
	}
	// A commit has it.
	p := a.parked
	<-p.done
	if p.err != nil || p.page.empty() {
		return page, err
	}
	// It was sealed before whatever the read found after all.
	handed := p.page
	handed.Messages = append(handed.Messages, page.Messages...)
	handed.Lapsed += page.Lapsed
	return handed, nil
}

// park has the next commit that appends to a topic take a read in.
func (c *committer) park(p *parkedRead) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked == nil {
		c.parked = map[ObjectID][]*parkedRead{}
	}
	c.parked[p.topic] = append(c.parked[p.topic], p)
}

// unpark takes a read back; false where a commit has it.
func (c *committer) unpark(p *parkedRead) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.parked[p.topic], p)
	if at < 0 {
		return false
	}
	c.keepParked(p.topic, slices.Delete(c.parked[p.topic], at, at+1))
	return true
}

// keepParked is called with mu held.
func (c *committer) keepParked(topic ObjectID, reads []*parkedRead) {
	if len(reads) == 0 {
		delete(c.parked, topic)
		return
	}
	c.parked[topic] = reads
}

// withParked adds to the requests of a commit the reads that wait for what it
// appends: of each consumer as many as there are messages. It is called with mu
// held.
func (c *committer) withParked(taken []request) []request {
	if len(c.parked) == 0 {
		return taken
	}
	for _, r := range taken {
		switch x := r.(type) {
		case *appendRequest:
			taken = c.takeParked(taken, x.table.ID, len(x.messages))
		case *txRequest:
			if x.alone() {
				return taken
			}
			for _, a := range x.tx.appends {
				taken = c.takeParked(taken, a.table.ID, 1)
			}
		}
	}
	return taken
}

func (c *committer) takeParked(taken []request, topic ObjectID, messages int) []request {
	waiting := c.parked[topic]
	if len(waiting) == 0 {
		return taken
	}
	given := map[string]int{}
	kept := waiting[:0]
	for _, p := range waiting {
		if given[p.consumer] == messages {
			kept = append(kept, p)
			continue
		}
		given[p.consumer]++
		taken = append(taken, p)
	}
	clear(waiting[len(kept):])
	c.keepParked(topic, kept)
	return taken
}
