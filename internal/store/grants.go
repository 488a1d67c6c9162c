package store

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine"
)

// Grant is what a user holds on a table, or on the database where Table is
// WholeDatabase. It is of the table and not of its name: dropped with it, and
// not held on another that is defined later under the name.
type Grant struct {
	User  UserName
	ID    UserID
	Table ObjectID
	Privileges
}

// WholeDatabase stands in a grant for all that a database holds.
const WholeDatabase ObjectID = 0

// User returns the definition of a user of the database, or fault.NotFound.
func (c *Catalog) User(name UserName) (*User, error) {
	if user := c.users[name.Name]; user != nil && user.UserName == name {
		return user, nil
	}
	return nil, userNotFound(name)
}

// Users returns the users of the database, by name.
func (c *Catalog) Users() []*User {
	users := slices.Collect(maps.Values(c.users))
	sortUsers(users)
	return users
}

// Granted are the privileges that a user was granted on what has a name in other
// definitions of the database, or the same: on the table itself, and on the
// database. What there is no table of is granted with the database
// alone, as is the table "".
func (c *Catalog) Granted(id UserID, names *Catalog, table string) Privileges {
	held := c.grants[id]
	granted := held[WholeDatabase].Privileges
	if known := names.tables[table]; known != nil {
		granted |= held[known.ID].Privileges
	}
	return granted
}

// GrantsOf returns all that was granted to users in the database, by user.
func (c *Catalog) GrantsOf() map[UserID][]Grant {
	all := map[UserID][]Grant{}
	for id, held := range c.grants {
		for _, table := range slices.Sorted(maps.Keys(held)) {
			all[id] = append(all[id], held[table])
		}
	}
	return all
}

// TableByID returns the definition of a table, or false where it was dropped.
func (c *Catalog) TableByID(id ObjectID) (*Table, bool) {
	for _, table := range c.tables {
		if table.ID == id {
			return table, true
		}
	}
	return nil, false
}

// setGrant changes what one user holds on one table.
func (c *Catalog) setGrant(grant Grant) {
	held := maps.Clone(c.grants[grant.ID])
	if held == nil {
		held = map[ObjectID]Grant{}
	}
	if held[grant.Table] = grant; grant.Privileges == 0 {
		delete(held, grant.Table)
	}
	c.grants[grant.ID] = held
}

// dropGrants forgets what anybody holds on a table.
func (c *Catalog) dropGrants(table ObjectID) {
	for _, held := range c.grants {
		if grant, ok := held[table]; ok {
			grant.Privileges = 0
			c.setGrant(grant)
		}
	}
}

// loadUsers reads the users of the database and what is granted.
func (c *Catalog) loadUsers(ctx context.Context, r engine.Reader) error {
	err := scanRows(ctx, r, engine.PrefixRange([]byte{rowDatabaseUser}), func(_, row []byte) error {
		user := new(User)
		err := decodeDefinition(row, user)
		c.users[user.Name] = user
		return err
	})
	if err != nil {
		return err
	}
	return scanRows(ctx, r, engine.PrefixRange([]byte{rowGrant}), func(_, row []byte) error {
		var grant Grant
		err := decodeDefinition(row, &grant)
		c.setGrant(grant)
		return err
	})
}

func grantKey(table ObjectID, user UserID) []byte { return objectSuffixKey(rowGrant, table, user[:]) }

// DefineUser defines a user of the database; its ID is given here.
func (tx *Tx) DefineUser(ctx context.Context, user User, ifNotExists bool) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	if err := CheckName("user", user.Name); err != nil {
		return err
	}
	if tx.catalog.users[user.Name] != nil {
		if ifNotExists {
			return nil
		}
		return fault.New(fault.AlreadyExists, "user '%s' of %s exists already; ALTER USER changes it", user.Name, user.Of())
	}
	user.ID = uuid.New()
	return tx.setUser(&user)
}

func (tx *Tx) setUser(user *User) error {
	row, err := encodeDefinition(user)
	if err != nil {
		return err
	}
	return tx.changeCatalog(nameKey(rowDatabaseUser, user.Name), row, func(c *Catalog) { c.users[user.Name] = user })
}

// AlterUser changes a user of the database.
func (tx *Tx) AlterUser(ctx context.Context, name UserName, change UserChange) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	user, err := tx.catalog.User(name)
	if err != nil {
		return err
	}
	return tx.setUser(change.of(user))
}

// DropUser drops a user of the database, with all that was granted to it.
func (tx *Tx) DropUser(ctx context.Context, name UserName) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	user, err := tx.catalog.User(name)
	if err != nil {
		return err
	}
	for table := range tx.catalog.grants[user.ID] {
		if err := tx.put(grantKey(table, user.ID), nil); err != nil {
			return err
		}
	}
	return tx.changeCatalog(nameKey(rowDatabaseUser, name.Name), nil, func(c *Catalog) {
		delete(c.users, name.Name)
		delete(c.grants, user.ID)
	})
}

// Grant gives a user privileges on a table, or on the database where the table
// is "".
func (tx *Tx) Grant(ctx context.Context, user *User, table string, privileges Privileges) error {
	return tx.changeGrant(ctx, user, table, func(held Privileges) Privileges { return held | privileges })
}

// Revoke takes privileges back that were granted on the same table or the
// database; what is held otherwise stays.
func (tx *Tx) Revoke(ctx context.Context, user *User, table string, privileges Privileges) error {
	return tx.changeGrant(ctx, user, table, func(held Privileges) Privileges { return held &^ privileges })
}

func (tx *Tx) changeGrant(ctx context.Context, user *User, table string, change func(Privileges) Privileges) error {
	if err := tx.run(ctx); err != nil {
		return err
	}
	grant := Grant{User: user.UserName, ID: user.ID, Table: WholeDatabase}
	if table != "" {
		definition, err := tx.catalog.Table(table)
		if err != nil {
			return err
		}
		grant.Table = definition.ID
	}
	held := tx.catalog.grants[user.ID][grant.Table].Privileges
	grant.Privileges = change(held)
	if grant.Privileges == held {
		return nil
	}
	var row []byte
	if grant.Privileges != 0 {
		var err error
		if row, err = encodeDefinition(grant); err != nil {
			return err
		}
	}
	return tx.changeCatalog(grantKey(grant.Table, user.ID), row, func(c *Catalog) { c.setGrant(grant) })
}
