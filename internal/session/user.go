package session

import (
	"context"
	"errors"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/signin"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// userName is the user that a statement names, of the store, or of the
// namespace or database in use.
func (s *Session) userName(e *environment, x lang.UserName) (store.UserName, error) {
	name, err := e.clauseString("USER", x.Name)
	if err != nil {
		return store.UserName{}, err
	}
	user := store.UserName{Name: name}
	if x.On == lang.Store {
		return user, nil
	}
	if s.namespace == "" {
		return user, errNoNamespace()
	}
	user.Namespace = s.namespace
	if x.On == lang.Database {
		database, err := s.inDatabase()
		if err != nil {
			return user, err
		}
		user.Database = database.Name
	}
	return user, nil
}

// hashed is the hash of the password that a clause gives. No message holds what
// was given.
func (e *environment) hashed(password lang.Expression) (string, error) {
	v, err := e.evaluate(password)
	if err != nil {
		return "", err
	}
	text, ok := v.AsString()
	if !ok {
		return "", fault.New(fault.InvalidClause, "PASSWORD takes a string, not %s %s", article(v.Kind()), v.Kind())
	}
	if err := signin.CheckPassword(text); err != nil {
		return "", err
	}
	return signin.Hash(text), nil
}

func article(kind value.Kind) string {
	switch kind {
	case value.KindInt, value.KindArray, value.KindObject:
		return "an"
	}
	return "a"
}

// changeUser runs a change of a user: where it is of a database, in a
// transaction of that, and otherwise by itself.
func (s *Session) changeUser(e *environment, what string, x lang.UserName,
	ofStore func(store.UserName) error, ofDatabase func(*store.Tx, store.UserName) error,
) error {
	name, err := s.userName(e, x)
	if err != nil {
		return err
	}
	if name.Database == "" {
		if s.tx != nil {
			return fault.New(fault.InvalidClause, "%s ON %s cannot stand in a transaction, which is one database's; COMMIT or CANCEL first", what, x.On)
		}
		return ofStore(name)
	}
	_, err = s.inTransaction(e.ctx, func(tx *store.Tx) (Answer, error) { return null, ofDatabase(tx, name) })
	return err
}

func (s *Session) defineUser(e *environment, x *lang.DefineUser) error {
	password, err := e.hashed(x.Password)
	if err != nil {
		return err
	}
	user := store.User{Role: store.Role(x.Role), Password: password}
	return s.changeUser(e, "DEFINE USER", x.UserName, func(name store.UserName) error {
		user.UserName = name
		if err := checkNewName(name); err != nil {
			return err
		}
		return s.store.DefineUser(e.ctx, user, x.IfNotExists)
	}, func(tx *store.Tx, name store.UserName) error {
		user.UserName = name
		if err := checkNewName(name); err != nil {
			return err
		}
		return tx.DefineUser(e.ctx, user, x.IfNotExists)
	})
}

// checkNewName refuses what nobody could sign in by: HTTP's own sign-in ends the
// name at the first colon (RFC 7617).
func checkNewName(user store.UserName) error {
	if strings.Contains(user.Name, ":") {
		return fault.New(fault.InvalidClause, "the name of a user has no ':', and %s has one", user.Name)
	}
	return nil
}

func (s *Session) alterUser(e *environment, x *lang.AlterUser) error {
	change := store.UserChange{Role: store.Role(x.Role)}
	if x.Password != nil {
		var err error
		if change.Password, err = e.hashed(x.Password); err != nil {
			return err
		}
	}
	return s.changeUser(e, "ALTER USER", x.UserName, func(name store.UserName) error {
		s.renew(name, change)
		return s.store.AlterUser(e.ctx, name, change, s.keepsOwner())
	}, func(tx *store.Tx, name store.UserName) error {
		s.renew(name, change)
		return tx.AlterUser(e.ctx, name, change)
	})
}

// renew lets a session go on that changes its own user's password.
func (s *Session) renew(name store.UserName, change store.UserChange) {
	if change.Password != "" && s.caller.signedIn && s.caller.name == name {
		changed := store.User{Password: change.Password}
		// The one before stays, too: the change may not commit.
		s.caller.renewed = append(s.caller.renewed, changed.Credential())
	}
}

// isOwnPassword reports whether a statement gives the caller's own user another
// password, and nothing else, which needs no owner.
func (s *Session) isOwnPassword(ctx context.Context, x *lang.AlterUser) bool {
	e := &environment{ctx: ctx, store: s.store, params: s.params, limits: s.limits}
	name, err := s.userName(e, x.UserName)
	return err == nil && x.Role == lang.NoRole && name == s.caller.name
}

func (s *Session) dropUser(e *environment, x *lang.DropUser) error {
	return s.changeUser(e, "DROP USER", x.UserName, func(name store.UserName) error {
		return s.store.DropUser(e.ctx, name, s.keepsOwner())
	}, func(tx *store.Tx, name store.UserName) error {
		return tx.DropUser(e.ctx, name)
	})
}

// keepsOwner says that the store must not lose its last owner by a statement
// of the session: whoever reaches the node could then do everything. The
// process itself, which holds the store anyway, may open it again.
func (s *Session) keepsOwner() bool { return !s.caller.isProcess() }

var privileges = map[lang.Privilege]store.Privileges{
	lang.PrivilegeRead: store.MayRead, lang.PrivilegeWrite: store.MayWrite, lang.PrivilegeManage: store.MayManage,
}

func (s *Session) grant(e *environment, tx *store.Tx, x *lang.Grant) error {
	verb, change := "GRANT", tx.Grant
	if x.Revoke {
		verb, change = "REVOKE", tx.Revoke
	}
	name, err := e.clauseString(verb, x.User)
	if err != nil {
		return err
	}
	user, err := s.grantee(e, tx, name)
	if err != nil {
		return err
	}
	var named store.Privileges
	for _, privilege := range x.Privileges {
		named |= privileges[privilege]
	}
	return change(e.ctx, user, x.Table, named)
}

// grantee is the user that a name stands for in the database in use: the
// database's own before one of what is above it.
func (s *Session) grantee(e *environment, tx *store.Tx, name string) (*store.User, error) {
	user, err := tx.Catalog().User(store.UserName{Namespace: s.database.Namespace, Database: s.database.Name, Name: name})
	if !errors.Is(err, fault.NotFound) {
		return user, err
	}
	return s.store.FindUser(e.ctx, s.database.Namespace, "", name)
}

// usersInfo lists users with their roles.
func usersInfo(users []*store.User) value.Value {
	list := make([]value.Value, len(users))
	for i, user := range users {
		list[i] = value.Fields(userInfo(user))
	}
	return value.Array(list...)
}

func userInfo(user *store.User) value.Object {
	of := "store"
	if user.Namespace != "" {
		of = "namespace"
	}
	if user.Database != "" {
		of = "database"
	}
	return value.Object{
		"user": value.String(user.Name),
		"of":   value.String(of),
		"role": orNull(user.Role != store.NoRole, value.String(string(user.Role))),
	}
}

// databaseUsersInfo lists the users of the database, and those of what is above
// it that were granted something in it, with what each was granted.
func (s *Session) databaseUsersInfo(e *environment, catalog *store.Catalog) (value.Value, error) {
	users, grants := catalog.Users(), catalog.GrantsOf()
	above, err := s.store.Users(e.ctx)
	if err != nil {
		return value.None(), err
	}
	for _, namespace := range []string{s.database.Namespace, ""} {
		for _, user := range above.Of(namespace) {
			if len(grants[user.ID]) > 0 {
				users = append(users, user)
			}
		}
	}
	list := make([]value.Value, len(users))
	for i, user := range users {
		held := []value.Value{}
		for _, grant := range grants[user.ID] {
			on := value.Null()
			if table, ok := catalog.TableByID(grant.Table); ok {
				on = value.String(table.Name)
			}
			held = append(held, value.Fields(value.Object{"on": on, "privileges": names(grant.Names())}))
		}
		info := userInfo(user)
		info["grants"] = value.Array(held...)
		list[i] = value.Fields(info)
	}
	return value.Array(list...), nil
}

// RootUser is the owner of the store whose password a node can be started with.
const RootUser = "root"

// SetRootPassword defines the owner root of the store, or gives it the password
// where it has another. Nothing is written where all is so already.
func SetRootPassword(ctx context.Context, s *store.Store, password string) error {
	if err := signin.CheckPassword(password); err != nil {
		return err
	}
	name := store.UserName{Name: RootUser}
	user, err := s.User(ctx, name)
	if errors.Is(err, fault.NotFound) {
		return s.DefineUser(ctx, store.User{UserName: name, Role: store.RoleOwner, Password: signin.Hash(password)}, true)
	}
	if err != nil {
		return err
	}
	same, err := signin.NewChecker().Check(ctx, user.Password, password, nil)
	if err != nil || same && user.Role == store.RoleOwner {
		return err
	}
	return s.AlterUser(ctx, name, store.UserChange{Role: store.RoleOwner, Password: signin.Hash(password)}, true)
}
