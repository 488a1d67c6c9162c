package tidemark

import (
	"context"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/value"
)

// embeddedTx is a transaction of a store of this process: an open transaction of
// a session.
type embeddedTx struct {
	db      *embeddedDatabase
	session *session.Session
}

// Begin starts a transaction.
func (db *embeddedDatabase) Begin(ctx context.Context) (client.BackendTx, error) {
	s := db.newSession()
	if err := s.Begin(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return &embeddedTx{db, s}, nil
}

// Run runs statements in the transaction.
func (tx *embeddedTx) Run(ctx context.Context, script string, params map[string]value.Value) ([]client.Answer, error) {
	return runScript(ctx, tx.session, script, params)
}

// Append appends when the transaction commits.
func (tx *embeddedTx) Append(ctx context.Context, topic string, m client.NewMessage) error {
	ctx, err := withHeaders(ctx)
	if err != nil {
		return err
	}
	return tx.session.Append(ctx, topic, m.Key, m.Value)
}

// Put writes a record.
func (tx *embeddedTx) Put(ctx context.Context, table string, key, record value.Value) error {
	return tx.session.Put(ctx, table, key, record)
}

// Read reads for a consumer. Where there is nothing and it is to wait, it waits
// outside the transaction, which begins anew: on the state that ended the wait.
func (tx *embeddedTx) Read(ctx context.Context, topic string, request client.ReadRequest) (client.Page, error) {
	options := readOptionsOf(request)
	page, err := tx.session.Read(ctx, topic, options)
	if err != nil || request.Wait == 0 || len(page.Messages) > 0 || page.Lapsed > 0 {
		return pageOf(page), err
	}
	tx.session.Close()
	if err := tx.db.database.Await(ctx, topic, options, request.Wait); err != nil {
		return client.Page{}, err
	}
	if err := tx.session.Begin(ctx); err != nil {
		return client.Page{}, err
	}
	page, err = tx.session.Read(ctx, topic, options)
	return pageOf(page), err
}

// Settle settles in the transaction.
func (tx *embeddedTx) Settle(ctx context.Context, topicName, group string, s client.Settlement) (int, error) {
	settlement, err := settlementOf(s)
	if err != nil {
		return 0, err
	}
	return tx.session.Settle(ctx, topicName, group, settlement)
}

// Commit commits.
func (tx *embeddedTx) Commit(ctx context.Context) (map[string]client.Appended, error) {
	defer tx.session.Close()
	positions, err := tx.session.Commit(ctx)
	if err != nil {
		return nil, err
	}
	appended := make(map[string]client.Appended, len(positions))
	for topic, p := range positions {
		appended[topic] = client.Appended{First: uint64(p.First), Last: uint64(p.Last)}
	}
	return appended, nil
}

// Cancel rolls back.
func (tx *embeddedTx) Cancel() { tx.session.Close() }
