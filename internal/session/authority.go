package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// Caller is on whose authority a session runs. The zero Caller is the process
// that opened the store, which may do everything: whoever holds the store's
// folder holds what is in it.
type Caller struct {
	// door is set for a caller who has not signed in; strict says that such a
	// one may not do everything either where the store has no owner.
	door   *Door
	strict bool

	// signedIn says that the following are of a user.
	signedIn bool
	name     store.UserName
	id       store.UserID
	// credential is what the user signed in with, renewed what the session
	// itself has made of it since.
	credential [sha256.Size]byte
	renewed    [][sha256.Size]byte
	// until is when the sign-in ends, zero for never.
	until time.Time
}

// Anonymous is a caller who has not signed in. While the store has no owner it
// may do everything, unless strict is set; from then on what the door lets
// through.
func Anonymous(door *Door, strict bool) Caller { return Caller{door: door, strict: strict} }

// SignedIn is a user. The sign-in ends with the user, with its password, and at
// a time by the process's clock unless that is zero.
func SignedIn(user *store.User, until time.Time) Caller {
	return Caller{signedIn: true, name: user.UserName, id: user.ID, credential: user.Credential(), until: until}
}

// isProcess reports whether the caller is the process itself.
func (c Caller) isProcess() bool { return c.door == nil && !c.signedIn }

// errNotSignedIn is the answer to all that the door does not let through. It is
// the same whatever there is behind it.
var errNotSignedIn = fault.New(fault.NotSignedIn, "the store requires a signed-in user")

// authority is what the session's caller may do now, in the database in use.
type authority struct {
	// all says that everything is allowed.
	all bool
	// user is the user as it is now defined, nil for a stranger.
	user *store.User
	// catalog is of the database in use, nil where none is; names is that which a
	// statement finds its tables in, an older one inside a transaction. A grant is
	// a table's and not its name's.
	catalog, names *store.Catalog
}

func (a authority) isStranger() bool { return !a.all && a.user == nil }

// isOwner reports whether the user is an owner of the store, of the namespace
// or of the database in use, or of what is above it.
func (a authority) isOwner(of lang.Kind) bool {
	if a.all || a.user == nil {
		return a.all
	}
	switch {
	case a.user.Role != store.RoleOwner:
		return false
	case of == lang.Store:
		return a.user.Namespace == ""
	case of == lang.Namespace:
		return a.user.Database == ""
	}
	return true
}

// held are the privileges on a table, or on the database where table is "".
func (a authority) held(table string) store.Privileges {
	switch {
	case a.all:
		return store.RoleOwner.Privileges()
	case a.user == nil:
		return 0
	}
	held := a.user.Role.Privileges()
	if a.catalog != nil {
		held |= a.catalog.Granted(a.user.ID, a.names, table)
	}
	return held
}

func (a authority) may(privilege store.Privileges, table string) bool {
	return a.held(table)&privilege == privilege
}

// authorize finds out what the caller may do now and refuses, with
// fault.NotAllowed, a statement that is not part of it. What a stranger may say
// is decided where it runs, at the door.
//
// It is asked before every statement, also of a session that is open and inside
// a transaction, and looks at the newest definitions: who was stopped stops at
// the next statement.
func (s *Session) authorize(ctx context.Context, statement lang.Statement) error {
	s.appending = appendStanding{} // However long the statement takes.
	var err error
	if s.authority, err = s.standing(ctx); err != nil || s.authority.isStranger() {
		return err
	}
	if s.authority.all {
		// What was named while the store had an owner is there to be seen.
		return s.see(ctx)
	}
	if x, ok := statement.(*lang.AlterUser); ok && s.isOwnPassword(ctx, x) {
		return nil
	}
	if err := s.authority.checkAll(statement); err != nil {
		return err
	}
	if x, ok := statement.(*lang.Use); ok {
		return s.checkReach(x)
	}
	return nil
}

// standing is what the caller may do now.
func (s *Session) standing(ctx context.Context) (authority, error) {
	if s.caller.isProcess() {
		return authority{all: true}, nil
	}
	if !s.caller.signedIn {
		users, err := s.store.Users(ctx)
		return authority{all: err == nil && !users.HasOwner() && !s.caller.strict}, err
	}
	user, err := s.userNow(ctx)
	if err != nil {
		return authority{}, err
	}
	a := authority{user: user}
	if s.database != nil {
		a.catalog, err = s.database.NewestCatalog(ctx)
		if errors.Is(err, fault.NotFound) {
			// It was dropped; the statement says so, or names another.
			err = nil
		}
		a.names = a.catalog
		if s.tx != nil {
			a.names = s.tx.Catalog()
		}
	}
	return a, err
}

// userNow is the caller's user as it is now defined, or fault.NotSignedIn where
// it is not the one that signed in any more.
func (s *Session) userNow(ctx context.Context) (*store.User, error) {
	c := s.caller
	if !c.until.IsZero() && !time.Now().Before(c.until) {
		return nil, fault.New(fault.NotSignedIn, "the token with which user '%s' signed in has expired; sign in again", c.name.Name)
	}
	user, err := s.findUser(ctx)
	switch {
	case errors.Is(err, fault.NotFound) || err == nil && user.ID != c.id:
		return nil, fault.New(fault.NotSignedIn, "user '%s' of %s was dropped; sign in as another", c.name.Name, c.name.Of())
	case err != nil:
		return nil, err
	case user.Credential() != c.credential && !slices.Contains(c.renewed, user.Credential()):
		return nil, fault.New(fault.NotSignedIn, "the password of user '%s' was changed; sign in again", c.name.Name)
	}
	return user, nil
}

// findUser is store.User, for the caller, whose database is looked up once.
func (s *Session) findUser(ctx context.Context) (*store.User, error) {
	name := s.caller.name
	if name.Database == "" {
		return s.store.User(ctx, name)
	}
	if s.home == nil {
		home, err := s.store.Database(ctx, name.Namespace, name.Database)
		if err != nil {
			return nil, err
		}
		s.home = home
	}
	catalog, err := s.home.NewestCatalog(ctx)
	if err != nil {
		return nil, err
	}
	return catalog.User(name)
}

// checkReach refuses to use what the user is not of, whether or not it exists.
func (s *Session) checkReach(x *lang.Use) error {
	namespace, database := x.Name, ""
	if x.Kind == lang.Database {
		namespace, database = s.namespace, x.Name
	}
	return s.authority.checkReach(namespace, database)
}

func (a authority) checkReach(namespace, database string) error {
	if a.all || a.user.Reaches(namespace, database) {
		return nil
	}
	return fault.New(fault.NotAllowed, "user '%s' is of %s and may use no other", a.user.Name, a.user.Of())
}

// reaches reports whether a namespace, or a database of it, is there for the
// caller.
func (a authority) reaches(namespace, database string) bool {
	return a.all || a.user != nil && a.user.Reaches(namespace, database)
}

// checkAll refuses a statement that needs what the user does not hold.
func (a authority) checkAll(statement lang.Statement) error {
	if a.all {
		return nil
	}
	for _, n := range needs(statement) {
		if err := a.check(n); err != nil {
			return err
		}
	}
	return nil
}

// check refuses what a statement needs and the user does not hold. The refusal
// says what is missing and on what, and nothing of what there is.
func (a authority) check(n need) error {
	switch {
	case n.consumer != "":
		return a.checkConsumer(n)
	case n.owner && a.isOwner(n.on):
		return nil
	case n.owner && n.on == lang.Store:
		return fault.New(fault.NotAllowed, "user '%s' is no owner of the store", a.user.Name)
	case n.owner:
		return fault.New(fault.NotAllowed, "user '%s' is no owner of the %s in use, nor of what is above it", a.user.Name, strings.ToLower(string(n.on)))
	}
	missing := n.privilege &^ a.held(n.table)
	if missing == 0 {
		return nil
	}
	names := strings.Join(missing.Names(), " and ")
	if n.table == "" {
		return fault.New(fault.NotAllowed, "user '%s' has no %s on the database in use, which an owner may GRANT", a.user.Name, names)
	}
	return fault.New(fault.NotAllowed, "user '%s' has no %s on %s, which an owner may GRANT", a.user.Name, names, n.table)
}

// checkConsumer is check for what a statement does to a declared consumer: who
// manages the table that it writes looks after it. One of Kafka is sent secrets
// of the node, so only who manages the database changes it.
func (a authority) checkConsumer(n need) error {
	table := ""
	if a.catalog != nil {
		declared, err := a.catalog.Consumer(consumerKinds[n.consumer], n.table)
		switch {
		case err == nil && (n.asks || declared.Kind == store.TopicConsumer):
			table = declared.Into
		case err != nil && n.ifThere:
			return nil
		}
	}
	return a.check(need{privilege: store.MayManage, table: table})
}

// CheckDeclarer refuses, with fault.NotAllowed or fault.NotSignedIn, to let a
// declared consumer go on whose declarer may no longer do what it does: read
// the topic, write the table. catalog is of the consumer's database.
func CheckDeclarer(ctx context.Context, s *store.Store, catalog *store.Catalog, consumer *store.Consumer) error {
	by := consumer.DeclaredBy
	if by == nil {
		return nil
	}
	user, err := catalog.User(by.UserName)
	if errors.Is(err, fault.NotFound) {
		user, err = s.User(ctx, by.UserName)
	}
	if errors.Is(err, fault.NotFound) || err == nil && user.ID != by.ID {
		return fault.New(fault.NotAllowed, "user '%s' of %s, who declared the consumer, was dropped; declare it again with OVERWRITE", by.Name, by.Of())
	}
	if err != nil {
		return err
	}
	a := authority{user: user, catalog: catalog, names: catalog}
	if consumer.Kind == store.TopicConsumer {
		if err := a.check(need{privilege: store.MayRead, table: consumer.From}); err != nil {
			return err
		}
	}
	return a.check(need{privilege: store.MayWrite, table: consumer.Into})
}

// declarer is who a consumer that is declared now runs as.
func (s *Session) declarer() *store.Declarer {
	if s.authority.user == nil {
		return nil
	}
	return &store.Declarer{UserName: s.authority.user.UserName, ID: s.authority.user.ID}
}

// CheckOwner refuses, with fault.NotSignedIn or fault.NotAllowed, a caller who
// is no owner of the store. What is no statement and reaches everything asks it.
func (s *Session) CheckOwner(ctx context.Context) error {
	return s.checkStore(ctx, func(a authority) bool { return a.isOwner(lang.Store) }, "is no owner of the store")
}

// CheckViewer is CheckOwner for what tells of everything and changes nothing: a
// user of the store with any role may ask it.
func (s *Session) CheckViewer(ctx context.Context) error {
	return s.checkStore(ctx, func(a authority) bool { return a.all || a.user.Namespace == "" && a.user.Role != store.NoRole }, "has no role on the store")
}

func (s *Session) checkStore(ctx context.Context, allowed func(authority) bool, otherwise string) error {
	a, err := s.standing(ctx)
	switch {
	case err != nil:
		return err
	case a.isStranger():
		return errNotSignedIn
	case !allowed(a):
		return fault.New(fault.NotAllowed, "user '%s' %s", a.user.Name, otherwise)
	}
	return nil
}
