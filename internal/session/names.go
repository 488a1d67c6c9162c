package session

import (
	"context"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// NewIn starts a session with a namespace and a database in use from the
// start, as if USE had named them; the database may be "", or both. It returns
// fault.NotFound where one is not there, and fault.NotAllowed where it is not
// the caller's to use.
func NewIn(ctx context.Context, s *store.Store, namespace, database string, options Options) (*Session, error) {
	if namespace == "" && database != "" {
		return nil, fault.New(fault.InvalidClause, "the database %s is named without its namespace", database)
	}
	session := New(s, options)
	standing, err := session.standing(ctx)
	if err != nil {
		return nil, err
	}
	if standing.isStranger() {
		// What there is of these names is not told.
		session.namespace, session.unseen = namespace, database
		return session, nil
	}
	if namespace != "" {
		if err := standing.checkReach(namespace, database); err != nil {
			return nil, err
		}
	}
	switch {
	case database != "":
		session.database, err = s.Database(ctx, namespace, database)
		session.namespace = namespace
	case namespace != "":
		err = s.CheckNamespace(ctx, namespace)
		session.namespace = namespace
	}
	return session, err
}

func errNoNamespace() error {
	return fault.New(fault.NotFound, "no namespace is in use; USE NAMESPACE names one")
}
