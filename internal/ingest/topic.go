package ingest

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/internal/topic"
	"github.com/tidemarkdb/tidemark/value"
)

// topicSource reads a topic of the store as a member of a group. What is handed
// out is settled in the same transaction, so a batch may be larger than the
// group's width: the source reads and acknowledges that many at a time, and
// nobody ever sees more in flight.
type topicSource struct {
	*consumer

	// The following are of the batch that was begun.
	tx         *store.Tx
	from       *store.Table
	definition topic.GroupDefinition
	kept       *store.Applied
	// newest are the positions that the batch applies, by identity.
	newest map[string]newestPosition
	lapsed uint64
}

type newestPosition struct {
	key      value.Value
	position topic.Position
}

func (t *topicSource) wait(ctx context.Context) error {
	return t.database.AwaitWork(ctx, t.declared.From, t.declared.Group)
}

func (t *topicSource) begin(ctx context.Context, tx *store.Tx, into *store.Table) (err error) {
	if t.from, err = tx.Catalog().TopicTable(t.declared.From); err != nil {
		return err
	}
	group, ok := t.from.Groups[t.declared.Group]
	if !ok {
		return fault.New(fault.NotFound, "topic %s has no group '%s'", t.from.Name, t.declared.Group)
	}
	t.tx, t.definition, t.lapsed = tx, group.Definition, 0
	if t.declared.Quarantine && (t.definition.Deliveries == 0 || t.definition.DeadLetter == "") {
		return fault.New(fault.InvalidClause, "group '%s' has lost its DELIVERIES or DEAD LETTER TO, without which a message that cannot be applied would be handed out forever", t.declared.Group)
	}
	t.newest = map[string]newestPosition{}
	t.kept, err = tx.Applied(ctx, t.declared.ID, t.from, into)
	return err
}

func (t *topicSource) read(ctx context.Context, limit int) ([]message, error) {
	page, err := t.tx.Read(ctx, t.from, store.ReadOptions{Consumer: t.declared.Group, Limit: min(limit, store.MaxReadLimit)})
	if err != nil {
		return nil, err
	}
	t.lapsed += page.Lapsed
	messages := make([]message, len(page.Messages))
	for i, m := range page.Messages {
		content, err := m.Value()
		if err != nil {
			return nil, fmt.Errorf("message %d of topic %s: %w", m.Position, t.from.Name, err)
		}
		messages[i] = message{content: content, sizeBytes: len(m.Encoded()), position: m.Position, deliveries: m.Deliveries}
	}
	return messages, nil
}

// superseded looks at what earlier batches applied only where they kept it,
// which they did wherever a message of before could still come.
func (t *topicSource) superseded(m *message) (bool, error) {
	encoded, err := value.AppendKey(nil, m.key)
	if err != nil {
		return false, err
	}
	newest := t.newest[string(encoded)].position
	if newest == 0 {
		newest, err = t.kept.At(m.key)
	}
	return newest > m.position, err
}

func (t *topicSource) settle(ctx context.Context, messages []message) error {
	if len(messages) == 0 {
		return nil
	}
	at := make([]topic.Settle, len(messages))
	for i, m := range messages {
		at[i] = topic.Settle{Position: m.position, Delivery: m.deliveries}
		if m.late {
			continue
		}
		encoded, err := value.AppendKey(nil, m.key)
		if err != nil {
			return err
		}
		t.newest[string(encoded)] = newestPosition{m.key, m.position}
	}
	_, err := t.tx.Settle(ctx, t.from, t.declared.Group, store.Settlement{Kind: store.Acknowledge, At: at})
	return err
}

// setAside hands the message back to the group, which counts the delivery and
// gives the message up past its DELIVERIES.
func (t *topicSource) setAside(ctx context.Context, m *message, _ error) (forGood bool, err error) {
	_, err = t.tx.Settle(ctx, t.from, t.declared.Group, store.Settlement{
		Kind: store.Return, At: []topic.Settle{{Position: m.position, Delivery: m.deliveries}},
	})
	return int64(m.deliveries) >= int64(t.definition.Deliveries), err
}

// finish keeps the positions that the batch applied while a message before
// them is not settled, and forgets all once everything is.
func (t *topicSource) finish(ctx context.Context) error {
	figures, _, err := t.tx.GroupFigures(ctx, t.declared.From, t.declared.Group)
	if err != nil {
		return err
	}
	if figures.Committed >= figures.Position {
		return t.kept.Forget()
	}
	for _, newest := range t.newest {
		if newest.position <= figures.Committed {
			continue
		}
		if err := t.kept.Keep(newest.key, newest.position); err != nil {
			return err
		}
	}
	return nil
}

func (t *topicSource) committed(context.Context) error {
	if t.lapsed > 0 {
		t.countLapsed(0, int64(t.lapsed), fmt.Errorf("retention removed %d messages of topic %s before they were read", t.lapsed, t.declared.From))
	}
	return nil
}

func (t *topicSource) describe(m *message) string {
	return fmt.Sprintf("message %d of topic %s", m.position, t.declared.From)
}

func (t *topicSource) close() {}
