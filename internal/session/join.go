package session

import (
	"context"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// Join opens a transaction that commits inside a host. Only Commit and Close
// end it: a statement that did would leave those after it to run by themselves,
// outside the host.
func (s *Session) Join(ctx context.Context, host store.Host) error {
	err := s.begin(func(db *store.Database) (*store.Tx, error) { return db.Join(ctx, host) })
	s.joined = err == nil
	return err
}

func endsTransaction(statement lang.Statement) bool {
	switch statement.(type) {
	case *lang.Commit, *lang.Cancel:
		return true
	}
	return false
}

func errEndsJoined() error {
	return fault.New(fault.NestedTransaction,
		"the statements are part of a transaction of the application's, which alone commits or rolls it back")
}

// Lost returns fault.Conflict where the open transaction cannot commit any more,
// because it lost to another.
func (s *Session) Lost(ctx context.Context) error {
	if s.tx == nil {
		return nil
	}
	return s.tx.Lost(ctx)
}

// Settle settles messages of a group in the open transaction.
func (s *Session) Settle(ctx context.Context, topicName, group string, settlement store.Settlement) (count int, err error) {
	err = s.inOpen(func(tx *store.Tx) error {
		table, err := tx.Catalog().TopicTable(topicName)
		if err != nil {
			return err
		}
		count, err = tx.Settle(ctx, table, group, settlement)
		return err
	})
	return count, err
}
