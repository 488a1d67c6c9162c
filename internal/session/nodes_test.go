package session_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres/postgrestest"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/store"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// openNode opens the store that a PostgreSQL carries once more, as another node
// does.
func openNode(t *testing.T, schema string) *store.Store {
	t.Helper()
	e, err := postgres.Open(t.Context(), postgres.Options{URL: postgrestest.Shared(t).URL(), Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), e, store.Options{HousekeepingEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// say runs a script of which the last statement must answer a kind of error,
// or none.
func say(t *testing.T, s *session.Session, script string, want error) {
	t.Helper()
	answers, err := s.Run(context.Background(), script, nil)
	if err != nil {
		t.Fatal(err)
	}
	last := answers[len(answers)-1].Err
	if want == nil && last != nil || want != nil && (last == nil || !errors.Is(last, want)) {
		t.Errorf("%s answers %v, want %v", script, last, want)
	}
}

// What is revoked on one node is not asked of another's cache: each next
// statement is refused, at once.
func TestWhatOneNodeRevokesNoOtherAllows(t *testing.T) {
	schema := postgrestest.Schema()
	here, there := openNode(t, schema), openNode(t, schema)
	own := session.New(here, session.Options{})
	defer own.Close()
	stranger := session.New(there, session.Options{Caller: session.Anonymous(session.NewDoor(), false)})
	defer stranger.Close()
	say(t, stranger, "DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE orders; USE DATABASE orders; DEFINE COLLECTION c", nil)
	say(t, own, "DEFINE USER 'root' ON STORE PASSWORD 'x' ROLE owner", nil)
	say(t, stranger, "SELECT * FROM c", fault.NotSignedIn)

	say(t, own, "USE NAMESPACE shop; USE DATABASE orders; DEFINE USER 'ann' ON DATABASE PASSWORD 'x'; DEFINE USER 'sue' ON STORE PASSWORD 'x' ROLE viewer", nil)
	arrive := func(name string) *session.Session {
		user, err := there.FindUser(t.Context(), "shop", "orders", name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := session.NewIn(t.Context(), there, "shop", "orders", session.Options{Caller: session.SignedIn(user, time.Time{})})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	ann, sue := arrive("ann"), arrive("sue")
	say(t, ann, "SELECT * FROM c", fault.NotAllowed)
	for range 3 {
		say(t, own, "GRANT read ON c TO 'ann'; ALTER USER 'sue' ON STORE ROLE editor", nil)
		say(t, ann, "SELECT * FROM c", nil)
		say(t, sue, "CREATE c = { a: 1 }", nil)
		say(t, own, "REVOKE read ON c FROM 'ann'; ALTER USER 'sue' ON STORE ROLE viewer", nil)
		say(t, ann, "SELECT * FROM c", fault.NotAllowed)
		say(t, sue, "CREATE c = { a: 1 }", fault.NotAllowed)
	}
	say(t, own, "DROP USER 'ann' ON DATABASE; ALTER USER 'sue' ON STORE PASSWORD 'y'", nil)
	say(t, ann, "SELECT * FROM c", fault.NotSignedIn)
	say(t, sue, "SELECT * FROM c", fault.NotSignedIn)

	first, err := here.TokenKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if second, err := there.TokenKey(t.Context()); err != nil || first != second || first == [32]byte{} {
		t.Errorf("two nodes sign with %x and %x: %v", first, second, err)
	}
}

// A transaction that was begun with a grant does not commit without it, also
// where the one who revokes it is faster than the COMMIT.
func TestATransactionDoesNotOutliveItsGrant(t *testing.T) {
	s := openNode(t, postgrestest.Schema())
	own := session.New(s, session.Options{})
	defer own.Close()
	say(t, own, `DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE orders; USE DATABASE orders; DEFINE COLLECTION c;
		DEFINE USER 'ann' ON DATABASE PASSWORD 'x'; GRANT write ON c TO 'ann'`, nil)
	user, err := s.FindUser(t.Context(), "shop", "orders", "ann")
	if err != nil {
		t.Fatal(err)
	}
	ann, err := session.NewIn(t.Context(), s, "shop", "orders", session.Options{Caller: session.SignedIn(user, time.Time{})})
	if err != nil {
		t.Fatal(err)
	}
	defer ann.Close()
	say(t, ann, "BEGIN", nil)
	say(t, ann, "CREATE c:1 = { a: 1 }", nil)
	say(t, own, "REVOKE write ON c FROM 'ann'", nil)
	say(t, ann, "COMMIT", fault.Conflict)
	say(t, own, "SELECT * FROM c", nil)
	if answers, err := own.Run(t.Context(), "SELECT * FROM c", nil); err != nil || answers[0].Value.String() != "[]" {
		t.Error(answers, err)
	}
}
