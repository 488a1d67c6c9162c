package lang

import "strings"

// DefineUser is DEFINE USER.
type DefineUser struct {
	node
	UserName
	IfNotExists bool
	// Password is a string or a parameter.
	Password Expression
	// Role is NoRole for a user who holds what is granted.
	Role Role
}

// AlterUser is ALTER USER: what it gives replaces what the user has.
type AlterUser struct {
	node
	UserName
	// Password is nil and Role NoRole where they stay as they are.
	Password Expression
	Role     Role
}

// DropUser is DROP USER.
type DropUser struct {
	node
	UserName
}

// UserName says which user, and of what.
type UserName struct {
	// Name is a string or a parameter.
	Name Expression
	// On is Store, Namespace or Database: the ones in use.
	On Kind
}

// Role is what a user may do on all that the user is of.
type Role string

// The roles.
const (
	NoRole Role = ""
	Owner  Role = "owner"
	Editor Role = "editor"
	Viewer Role = "viewer"
)

// Grant is GRANT, or REVOKE which takes back.
type Grant struct {
	node
	Revoke     bool
	Privileges []Privilege
	// Table is "" for the database in use.
	Table string
	// User is a string or a parameter.
	User Expression
}

// Privilege is what a user may be granted.
type Privilege string

// The privileges.
const (
	PrivilegeRead   Privilege = "read"
	PrivilegeWrite  Privilege = "write"
	PrivilegeManage Privilege = "manage"
)

func (*DefineUser) statement() {}
func (*AlterUser) statement()  {}
func (*DropUser) statement()   {}
func (*Grant) statement()      {}

// String is text that parses to the same statement. It holds the password, so
// it is not for showing.
func (s *DefineUser) String() string { return text(s) }

// String is text that parses to the same statement. It holds the password, so
// it is not for showing.
func (s *AlterUser) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *DropUser) String() string { return text(s) }

// String is text that parses to the same statement.
func (s *Grant) String() string { return text(s) }

// parseDefineUser parses the definition of a user.
//
//	define user = "DEFINE" "USER" [ if not exists ] user name "PASSWORD" quoted [ "ROLE" role ]   in any order
//	role        = "owner" | "editor" | "viewer"
func (p *parser) parseDefineUser(start place) Statement {
	p.expect("USER")
	s := &DefineUser{}
	s.IfNotExists = p.parseIfNotExists()
	s.UserName = p.parseUserName()
	p.parseUserClauses(&s.Password, &s.Role)
	if s.Password == nil {
		p.fail("PASSWORD")
	}
	s.node = p.span(start)
	return s
}

// parseAlterUser parses the change of a user.
//
//	alter user = "ALTER" "USER" user name ( "PASSWORD" quoted | "ROLE" role ) …   each once
func (p *parser) parseAlterUser(start place) Statement {
	p.expect("USER")
	s := &AlterUser{UserName: p.parseUserName()}
	if p.atEnd() {
		p.fail("PASSWORD", "ROLE")
	}
	p.parseUserClauses(&s.Password, &s.Role)
	s.node = p.span(start)
	return s
}

// parseDropUser parses the end of a user.
//
//	drop user = "DROP" "USER" user name
func (p *parser) parseDropUser(start place) Statement {
	p.expect("USER")
	s := &DropUser{UserName: p.parseUserName()}
	s.node = p.span(start)
	return s
}

// parseUserName parses which user of what.
//
//	user name = quoted "ON" ( "STORE" | "NAMESPACE" | "DATABASE" )
func (p *parser) parseUserName() UserName {
	name := UserName{Name: p.parseQuoted("the name of a user")}
	p.expect("ON")
	for _, kind := range []Kind{Store, Namespace, Database} {
		if p.accept(string(kind)) {
			name.On = kind
			return name
		}
	}
	p.fail("STORE", "NAMESPACE", "DATABASE")
	return name
}

func (p *parser) parseUserClauses(password *Expression, role *Role) {
	p.parseClauses(
		words("PASSWORD", func() { *password = p.parseQuoted("a password") }),
		words("ROLE", func() {
			for _, known := range []Role{Owner, Editor, Viewer} {
				if p.accept(string(known)) {
					*role = known
					return
				}
			}
			p.fail("owner", "editor", "viewer")
		}),
	)
}

// parseGrant parses what a user may do from now on.
//
//	grant     = "GRANT" privilege { "," privilege } "ON" ( "DATABASE" | name ) "TO" quoted
//	privilege = "read" | "write" | "manage"
func (p *parser) parseGrant(start place) Statement { return p.parseAuthority(start, "GRANT", "TO") }

// parseRevoke parses what a user may do no longer.
//
//	revoke = "REVOKE" privilege { "," privilege } "ON" ( "DATABASE" | name ) "FROM" quoted
func (p *parser) parseRevoke(start place) Statement { return p.parseAuthority(start, "REVOKE", "FROM") }

func (p *parser) parseAuthority(start place, verb, preposition string) Statement {
	p.expect(verb)
	s := &Grant{Revoke: verb == "REVOKE"}
	for more := true; more; more = p.acceptSign(",") {
		s.Privileges = append(s.Privileges, p.parsePrivilege())
	}
	if !p.accept("ON") {
		p.fail("','", "ON")
	}
	if !p.accept("DATABASE") {
		s.Table = p.parseName("a table or topic, or DATABASE")
	}
	p.expect(preposition)
	s.User = p.parseQuoted("the name of a user")
	s.node = p.span(start)
	return s
}

func (p *parser) parsePrivilege() Privilege {
	for _, known := range []Privilege{PrivilegeRead, PrivilegeWrite, PrivilegeManage} {
		if p.accept(string(known)) {
			return known
		}
	}
	p.fail("read", "write", "manage")
	return ""
}

func (s *DefineUser) print(p *printer) {
	p.word("DEFINE USER")
	p.flag("IF NOT EXISTS", s.IfNotExists)
	s.printName(p)
	p.clause("PASSWORD", s.Password)
	p.role(s.Role)
}

func (s *AlterUser) print(p *printer) {
	p.word("ALTER USER")
	s.printName(p)
	p.clause("PASSWORD", s.Password)
	p.role(s.Role)
}

func (s *DropUser) print(p *printer) {
	p.word("DROP USER")
	s.printName(p)
}

func (n *UserName) printName(p *printer) {
	p.value(n.Name)
	p.word("ON " + string(n.On))
}

func (p *printer) role(role Role) {
	if role != NoRole {
		p.word("ROLE " + string(role))
	}
}

func (s *Grant) print(p *printer) {
	verb, preposition := "GRANT", "TO"
	if s.Revoke {
		verb, preposition = "REVOKE", "FROM"
	}
	names := make([]string, len(s.Privileges))
	for i, privilege := range s.Privileges {
		names[i] = string(privilege)
	}
	p.word(verb + " " + strings.Join(names, ", ") + " ON")
	if s.Table == "" {
		p.word("DATABASE")
	} else {
		p.name(s.Table)
	}
	p.clause(preposition, s.User)
}
