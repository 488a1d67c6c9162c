package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// UserName names a user: of the store where both Namespace and Database are "",
// of a namespace where Database alone is, of a database otherwise. Users of
// different things may have one name.
type UserName struct {
	Namespace, Database string
	Name                string
}

// Of says in words what the user is of.
func (n UserName) Of() string {
	switch {
	case n.Database != "":
		return "database " + n.Database + " of namespace " + n.Namespace
	case n.Namespace != "":
		return "namespace " + n.Namespace
	}
	return "the store"
}

// Reaches reports whether a namespace, or a database of it where one is named,
// is part of what the user is of.
func (n UserName) Reaches(namespace, database string) bool {
	return (n.Namespace == "" || n.Namespace == namespace) && (n.Database == "" || database == "" || n.Database == database)
}

// Role is what a user may do on all that the user is of.
type Role string

// The roles. A user of none holds what is granted.
const (
	NoRole     Role = ""
	RoleOwner  Role = "owner"
	RoleEditor Role = "editor"
	RoleViewer Role = "viewer"
)

// Privileges are what a role or a grant allows, as a set.
type Privileges uint8

// The privileges.
const (
	MayRead Privileges = 1 << iota
	MayWrite
	MayManage
)

// Privileges are those that a role holds.
func (r Role) Privileges() Privileges {
	switch r {
	case RoleOwner:
		return MayRead | MayWrite | MayManage
	case RoleEditor:
		return MayRead | MayWrite
	case RoleViewer:
		return MayRead
	}
	return 0
}

// Names are the words of the privileges.
func (p Privileges) Names() []string {
	var names []string
	for _, each := range []struct {
		privilege Privileges
		name      string
	}{{MayRead, "read"}, {MayWrite, "write"}, {MayManage, "manage"}} {
		if p&each.privilege != 0 {
			names = append(names, each.name)
		}
	}
	return names
}

// UserID names a user for good: another user that is defined later under the
// name has another, and nothing that was granted to this one.
type UserID = uuid.UUID

// User is the definition of a user. What the store holds is shared and never
// changed.
type User struct {
	UserName
	ID   UserID
	Role Role
	// Password is the hash of the password, as whoever signs users in makes
	// and checks it; the store only keeps it.
	Password string
}

// Credential is a fingerprint of the password's hash, which changes with the
// password and tells nothing of it.
func (u *User) Credential() [sha256.Size]byte { return sha256.Sum256([]byte(u.Password)) }

// Users are the users of the store and of its namespaces, at one point of the
// root space's commit order. They are immutable. Those of a database are in its
// Catalog.
type Users struct {
	version engine.Sequence
	byName  map[UserName]*User
}

// User returns the definition of a user, or fault.NotFound.
func (u *Users) User(name UserName) (*User, error) {
	if user := u.byName[name]; user != nil {
		return user, nil
	}
	return nil, userNotFound(name)
}

func userNotFound(name UserName) error {
	return fault.New(fault.NotFound, "user '%s' of %s does not exist", name.Name, name.Of())
}

// HasOwner reports whether the store has an owner. As long as it has none,
// nobody has to sign in.
func (u *Users) HasOwner() bool { return u.owners() > 0 }

func (u *Users) owners() int {
	owners := 0
	for name, user := range u.byName {
		if name.Namespace == "" && user.Role == RoleOwner {
			owners++
		}
	}
	return owners
}

// Of returns the users of a namespace, or of the store where it is "", by name.
func (u *Users) Of(namespace string) []*User {
	var users []*User
	for name, user := range u.byName {
		if name.Namespace == namespace {
			users = append(users, user)
		}
	}
	sortUsers(users)
	return users
}

func sortUsers(users []*User) {
	slices.SortFunc(users, func(a, b *User) int { return strings.Compare(a.Name, b.Name) })
}

// knownUsers are the newest users that this process has read, and how it knows
// whether they still are.
type knownUsers struct {
	users *Users
	// sequence is that of the state of the root space they were read from.
	sequence engine.Sequence
	// changed is closed by the next commit to the root space; nil where others
	// commit, of whom this process hears too late.
	changed <-chan struct{}
}

// isNewest reports, without a look, that nothing was committed since.
func (k *knownUsers) isNewest() bool {
	if k.changed == nil {
		return false
	}
	select {
	case <-k.changed:
		return false
	default:
		return true
	}
}

// userCache is the newest knownUsers, nil before the first.
type userCache = atomic.Pointer[knownUsers]

// Users returns the users of the store and its namespaces, the newest ones on
// any node. Where this process alone commits nothing is read while nothing
// changes.
func (s *Store) Users(ctx context.Context) (*Users, error) {
	known := s.users.Load()
	if known != nil && known.isNewest() {
		return known.users, nil
	}
	snapshot, err := s.root.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer snapshot.Release()
	next := &knownUsers{sequence: snapshot.Sequence()}
	if known != nil && known.sequence == next.sequence && s.engine.Shared() {
		return known.users, nil
	}
	if !s.engine.Shared() {
		// Taken for the state that is read, so that no later commit goes unheard.
		next.changed = s.root.Changed(next.sequence)
	}
	version, err := snapshot.Get(ctx, usersVersionKey)
	if err != nil {
		return nil, err
	}
	if known != nil && known.users.version == version.Sequence {
		next.users = known.users
	} else if next.users, err = loadUsers(ctx, snapshot, version.Sequence); err != nil {
		return nil, err
	}
	s.users.Store(next)
	return next.users, nil
}

// User returns the newest definition of a user, of whatever it is, or
// fault.NotFound.
func (s *Store) User(ctx context.Context, name UserName) (*User, error) {
	if name.Database == "" {
		users, err := s.Users(ctx)
		if err != nil {
			return nil, err
		}
		return users.User(name)
	}
	database, err := s.Database(ctx, name.Namespace, name.Database)
	if err != nil {
		return nil, err
	}
	catalog, err := database.NewestCatalog(ctx)
	if err != nil {
		return nil, err
	}
	return catalog.User(name)
}

// FindUser returns the user that a name stands for in a database, in a
// namespace where database is "", or in the store where both are: the user of
// the database, or else the one of the namespace, or else the one of the store.
func (s *Store) FindUser(ctx context.Context, namespace, database, name string) (*User, error) {
	for _, candidate := range []UserName{{namespace, database, name}, {namespace, "", name}, {"", "", name}} {
		user, err := s.User(ctx, candidate)
		if !errors.Is(err, fault.NotFound) {
			return user, err
		}
	}
	return nil, fault.New(fault.NotFound, "there is no user '%s', neither of the database nor of its namespace nor of the store", name)
}

// The rows of users in the root space:
//
//	U namespace 0 name  a user of the store, where the namespace is "", or of a namespace
//	P                   the version of all users: the commit that changed one last
//	K                   the key that signs tokens
const (
	rowUser         = 'U'
	rowUsersVersion = 'P'
	rowTokenKey     = 'K'
)

var (
	usersVersionKey = []byte{rowUsersVersion}
	tokenKeyKey     = []byte{rowTokenKey}
)

func userKey(name UserName) []byte { return append(usersPrefix(name.Namespace), name.Name...) }

func usersPrefix(namespace string) []byte { return append(nameKey(rowUser, namespace), 0) }

func loadUsers(ctx context.Context, r engine.Reader, version engine.Sequence) (*Users, error) {
	users := &Users{version: version, byName: map[UserName]*User{}}
	err := scanRows(ctx, r, engine.PrefixRange([]byte{rowUser}), func(_, row []byte) error {
		user := new(User)
		if err := decodeDefinition(row, user); err != nil {
			return err
		}
		users.byName[user.UserName] = user
		return nil
	})
	return users, err
}

// changeUsers changes a user of the store or a namespace in a commit of its
// own. change is given the newest users and returns the user's definition, nil
// for one that is dropped, or same for one that stays as it is.
func (s *Store) changeUsers(ctx context.Context, name UserName, change func(*Users) (next *User, same bool, err error)) error {
	_, err := s.root.Commit(ctx, func(c engine.Commit) error {
		if name.Namespace != "" {
			if err := namespaceExists(ctx, c, name.Namespace); err != nil {
				return err
			}
		}
		users, err := loadUsers(ctx, c, 0)
		if err != nil {
			return err
		}
		next, same, err := change(users)
		if err != nil || same {
			return err
		}
		c.Set(usersVersionKey, []byte{1})
		if next == nil {
			c.Delete(userKey(name))
			return nil
		}
		row, err := encodeDefinition(next)
		if err == nil {
			c.Set(userKey(name), row)
		}
		return err
	})
	return err
}

// DefineUser defines a user of the store or of a namespace; its ID is given
// here. It returns fault.AlreadyExists where there is one, unless ifNotExists
// is set.
func (s *Store) DefineUser(ctx context.Context, user User, ifNotExists bool) error {
	if err := CheckName("user", user.Name); err != nil {
		return err
	}
	user.ID = uuid.New()
	return s.changeUsers(ctx, user.UserName, func(users *Users) (*User, bool, error) {
		switch {
		case users.byName[user.UserName] == nil:
			return &user, false, nil
		case ifNotExists:
			return nil, true, nil
		}
		return nil, false, fault.New(fault.AlreadyExists, "user '%s' of %s exists already; ALTER USER changes it", user.Name, user.Of())
	})
}

// UserChange is what an ALTER USER changes; what is "" stays as it is.
type UserChange struct {
	Password string
	Role     Role
}

func (c UserChange) of(user *User) *User {
	changed := *user
	if c.Password != "" {
		changed.Password = c.Password
	}
	if c.Role != NoRole {
		changed.Role = c.Role
	}
	return &changed
}

// AlterUser changes a user of the store or of a namespace. keepOwner refuses,
// with fault.InvalidClause, to leave the store without an owner.
func (s *Store) AlterUser(ctx context.Context, name UserName, change UserChange, keepOwner bool) error {
	return s.changeUsers(ctx, name, func(users *Users) (*User, bool, error) {
		user, err := users.User(name)
		if err != nil {
			return nil, false, err
		}
		next := change.of(user)
		if keepOwner && next.Role != RoleOwner {
			err = users.checkLastOwner(user)
		}
		return next, false, err
	})
}

// DropUser drops a user of the store or of a namespace; what was granted to it
// is nobody's. keepOwner is as for AlterUser.
func (s *Store) DropUser(ctx context.Context, name UserName, keepOwner bool) error {
	return s.changeUsers(ctx, name, func(users *Users) (*User, bool, error) {
		user, err := users.User(name)
		if err == nil && keepOwner {
			err = users.checkLastOwner(user)
		}
		return nil, false, err
	})
}

// checkLastOwner refuses to take away the only owner of the store.
func (u *Users) checkLastOwner(user *User) error {
	if user.Namespace == "" && user.Role == RoleOwner && u.owners() == 1 {
		return fault.New(fault.InvalidClause, "user '%s' is the last owner of the store, and without one whoever reaches it may do everything; define another owner first", user.Name)
	}
	return nil
}

// dropUsersOf drops the users of a namespace with it.
func dropUsersOf(c engine.Commit, namespace string) {
	c.DeleteRange(engine.PrefixRange(usersPrefix(namespace)))
	c.Set(usersVersionKey, []byte{1})
}

// TokenKey is a secret of the store, the same on every node and made up when it
// is first asked for, with which whoever signs users in signs tokens.
func (s *Store) TokenKey(ctx context.Context) (key [32]byte, err error) {
	_, err = s.root.Commit(ctx, func(c engine.Commit) error {
		kept, err := c.Get(ctx, tokenKeyKey)
		if err != nil {
			return err
		}
		if copy(key[:], kept.Value) != len(key) {
			_, _ = rand.Read(key[:])
			c.Set(tokenKeyKey, key[:])
		}
		return nil
	})
	return key, err
}
