package session

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/engine/pebble"
	"github.com/tidemarkdb/tidemark/internal/lang"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// statementCase is a statement, and who may say it: the users of
// usersOfTheMatrix, by the words of matrixWords. Every type of statement has at
// least one.
type statementCase struct {
	statement string
	// allowed are the users of the database orders that may, but its owner, who
	// may unless it says "above".
	allowed string
}

// The users that hold something, and the words for them:
//
//	editor, viewer      a user of the database of that role
//	read, write, manage a user who was granted it on t
//	database            a user who was granted manage on the database
//	nobody              a user who holds nothing
//	above               not the database's owner; the namespace's may
//	store               nor the namespace's owner; the store's may
const (
	everybody = "editor viewer read write manage database nobody"
	readers   = "editor viewer read"
)

var statementCases = []statementCase{
	{"BEGIN", everybody},
	{"COMMIT", everybody},
	{"CANCEL", everybody},
	{"SLEEP 0s", everybody},
	{"USE NAMESPACE shop", everybody},
	{"USE DATABASE orders", everybody},
	{"USE NAMESPACE other", "store"},
	{"USE DATABASE other", "above"},

	{"CREATE t = 1", "editor write"},
	{"CREATE t:1 = 1", "editor write"},
	{"INSERT INTO t [1, 2]", "editor write"},
	{"UPSERT t:1 = 1", "editor write"},
	{"UPDATE t:1 SET a = 1", "editor"},
	{"UPDATE t SET a = 1 WHERE b = 2", "editor"},
	{"DELETE t:1", "editor"},
	{"DELETE t WHERE a = 1", "editor"},
	{"SELECT * FROM t", readers},
	{"SELECT count() FROM t WHERE id = t:1", readers},
	{"READ FROM t", readers},
	{"READ FROM t FOR CONSUMER 'c' AFTER 0", readers},
	{"FOLLOW t", readers},
	{"ACK t FOR CONSUMER 'g' AT 1", readers},
	{"NACK t FOR CONSUMER 'g' AT 1", readers},
	{"EXTEND t FOR CONSUMER 'g' AT 1", readers},
	{"REJECT t FOR CONSUMER 'g' AT 1", readers},
	{"RELEASE t FOR CONSUMER 'g' AT 1", readers},

	{"INFO FOR STORE", everybody},
	{"INFO FOR NAMESPACE", everybody},
	{"INFO FOR DATABASE", everybody},
	{"INFO FOR TABLE t", readers},
	{"INFO FOR TOPIC t", readers},
	{"INFO FOR TOPIC CONSUMERS", everybody},
	{"INFO FOR KAFKA CONSUMERS", everybody},
	{"INFO FOR TOPIC CONSUMER c", "manage database"},
	{"INFO FOR KAFKA CONSUMER k", "manage database"},
	{"INFO FOR TOPIC CONSUMER nothing", "database"},

	{"DEFINE NAMESPACE n", "store"},
	{"DEFINE DATABASE d", "above"},
	{"DEFINE COLLECTION n", "database"},
	{"DEFINE SPACE n", "database"},
	{"DEFINE TABLE n (a int)", "database"},
	{"DEFINE TABLE OVERWRITE t (a int)", "manage database"},
	{"DEFINE TOPIC n", "database"},
	{"ALTER TOPIC t RETAIN 1d", "manage database"},
	{"DROP NAMESPACE shop", "store"},
	{"DROP DATABASE orders", "above"},
	{"DROP COLLECTION t", "manage database"},
	{"DROP TABLE t", "manage database"},
	{"DROP SPACE t", "manage database"},
	{"DROP TOPIC t", "manage database"},
	{"DROP TOPIC CONSUMER c", "manage database"},
	{"DROP KAFKA CONSUMER k", "database"},
	{"DEFINE GROUP 'h' ON TOPIC t ACK DEADLINE 1s", "manage database"},
	{"DEFINE GROUP 'h' ON TOPIC t ACK DEADLINE 1s DELIVERIES 1 DEAD LETTER TO u", ""},
	{"ALTER GROUP 'g' ON TOPIC t START AT 0", "manage database"},
	{"ALTER GROUP 'g' ON TOPIC t DEAD LETTER TO u", ""},
	{"DROP GROUP 'g' ON TOPIC t", "manage database"},
	{"DEFINE TOPIC CONSUMER n FROM t GROUP 'g' INTO t IDENTITY a MAP b AS b ON FAILURE stop", ""},
	{"DEFINE TOPIC CONSUMER OVERWRITE c FROM t GROUP 'g' INTO t IDENTITY a MAP b AS b ON FAILURE stop", ""},
	{"DEFINE KAFKA CONSUMER n FROM 'h:1' TOPIC 't' GROUP 'g' FORMAT json INTO t IDENTITY a MAP b AS b ON FAILURE stop", ""},
	{"ALTER TOPIC CONSUMER c RESUME", "manage database"},
	{"ALTER KAFKA CONSUMER k RESUME", "database"},

	{"DEFINE USER 'n' ON STORE PASSWORD 'x'", "store"},
	{"DEFINE USER 'n' ON NAMESPACE PASSWORD 'x'", "above"},
	{"DEFINE USER 'n' ON DATABASE PASSWORD 'x'", ""},
	{"ALTER USER 'n' ON STORE ROLE owner", "store"},
	{"ALTER USER 'n' ON NAMESPACE PASSWORD 'x'", "above"},
	{"ALTER USER 'n' ON DATABASE PASSWORD 'x'", ""},
	{"ALTER USER 'nobody' ON DATABASE PASSWORD 'x'", "nobody"},
	{"ALTER USER 'nobody' ON DATABASE PASSWORD 'x' ROLE owner", ""},
	{"DROP USER 'n' ON STORE", "store"},
	{"DROP USER 'n' ON NAMESPACE", "above"},
	{"DROP USER 'n' ON DATABASE", ""},
	{"GRANT read ON t TO 'n'", ""},
	{"REVOKE read ON DATABASE FROM 'n'", ""},
}

// typesOfStatements are the names of all types that the language's parser makes
// statements of, by its source.
func typesOfStatements(t *testing.T) []string {
	t.Helper()
	sources, err := filepath.Glob("../lang/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			method, ok := declaration.(*ast.FuncDecl)
			if ok && method.Recv != nil && method.Name.Name == "statement" {
				types = append(types, method.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name)
			}
		}
	}
	return types
}

// theStore is a store with a database of one of everything, and its users.
type theStore struct {
	testing.TB
	*store.Store
	users map[string]*store.User
}

func openStore(t testing.TB) *theStore {
	t.Helper()
	e, err := pebble.OpenMemory(pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := store.Open(context.Background(), e, store.Options{HousekeepingEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	s := &theStore{TB: t, Store: opened, users: map[string]*store.User{}}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// run runs statements as the process itself, all of which succeed.
func (s *theStore) run(script string) {
	s.Helper()
	own := New(s.Store, Options{})
	defer own.Close()
	answers, err := own.Run(context.Background(), script, nil)
	if err != nil {
		s.Fatal(err)
	}
	for i, answer := range answers {
		if answer.Err != nil {
			s.Fatalf("statement %d of %s: %v", i+1, script, answer.Err)
		}
	}
}

const inOrders = "USE NAMESPACE shop; USE DATABASE orders;"

func (s *theStore) fill() {
	s.run(`DEFINE NAMESPACE other; DEFINE NAMESPACE shop; USE NAMESPACE shop; DEFINE DATABASE other; DEFINE DATABASE orders;` + inOrders + `
		DEFINE TOPIC t MAX BYTES 100 PUBLIC RATE 1000 PER 1s; DEFINE TOPIC u; DEFINE TABLE rows (b int);
		DEFINE GROUP 'g' ON TOPIC t ACK DEADLINE 30s`)
	// Consumers write tables, and the matrix has one topic of everything: the
	// catalog is told that they write it.
	database, err := s.Database(context.Background(), "shop", "orders")
	if err != nil {
		s.Fatal(err)
	}
	tx, err := database.Begin(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	for _, consumer := range []store.Consumer{{Kind: store.TopicConsumer, Name: "c", From: "t", Into: "t"}, {Kind: store.KafkaConsumer, Name: "k", From: "k", Into: "t"}} {
		if err := tx.DefineConsumer(context.Background(), consumer, store.Refuse); err != nil {
			s.Fatal(err)
		}
	}
	if _, err := tx.Commit(context.Background()); err != nil {
		s.Fatal(err)
	}
	// Without a hash nobody signs in, and nothing is hashed.
	for name, user := range map[string]store.User{
		"store-owner":  {UserName: store.UserName{Name: "store-owner"}, Role: store.RoleOwner},
		"store-editor": {UserName: store.UserName{Name: "store-editor"}, Role: store.RoleEditor},
		"shop-owner":   {UserName: store.UserName{Namespace: "shop", Name: "shop-owner"}, Role: store.RoleOwner},
		"shop-viewer":  {UserName: store.UserName{Namespace: "shop", Name: "shop-viewer"}, Role: store.RoleViewer},
	} {
		if err := s.DefineUser(context.Background(), user, false); err != nil {
			s.Fatal(err)
		}
		s.users[name], _ = s.User(context.Background(), user.UserName)
	}
	for _, name := range []string{"owner", "editor", "viewer", "read", "write", "manage", "database", "nobody"} {
		role, grant := "", ""
		switch name {
		case "owner", "editor", "viewer":
			role = " ROLE " + name
		case "read", "write", "manage":
			grant = "GRANT " + name + " ON t TO '" + name + "';"
		case "database":
			grant = "GRANT manage ON DATABASE TO 'database';"
		}
		s.run(inOrders + "DEFINE USER '" + name + "' ON DATABASE PASSWORD 'x'" + role + ";" + grant)
		user, err := s.User(context.Background(), store.UserName{Namespace: "shop", Database: "orders", Name: name})
		if err != nil {
			s.Fatal(err)
		}
		s.users[name] = user
	}
}

func (s *theStore) arrive(caller Caller, namespace, database string) *Session {
	s.Helper()
	arrived, err := NewIn(context.Background(), s.Store, namespace, database, Options{Caller: caller})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(arrived.Close)
	return arrived
}

func parse(t testing.TB, source string) lang.Statement {
	t.Helper()
	script, err := lang.Parse(source)
	if err != nil || len(script.Statements) != 1 {
		t.Fatalf("%s: %v", source, err)
	}
	return script.Statements[0]
}

func typeOf(statement lang.Statement) string { return reflect.TypeOf(statement).Elem().Name() }

func TestEveryTypeOfStatementIsInTheMatrix(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range statementCases {
		covered[typeOf(parse(t, c.statement))] = true
	}
	for _, name := range typesOfStatements(t) {
		if !covered[name] {
			t.Errorf("nobody has decided who may say a %s: add it to needs and to statementCases", name)
		}
		delete(covered, name)
	}
	if len(covered) > 0 {
		t.Errorf("%v are no statements", covered)
	}
}

func TestUsersMaySayWhatTheirRolesAndGrantsAllow(t *testing.T) {
	s := openStore(t)
	s.fill()
	sessions := map[string]*Session{}
	for name, user := range s.users {
		sessions[name] = s.arrive(SignedIn(user, time.Time{}), "shop", "orders")
	}
	for _, c := range statementCases {
		statement := parse(t, c.statement)
		allowed := strings.Fields(c.allowed)
		if !slices.Contains(allowed, "store") {
			allowed = append(allowed, "shop-owner")
		}
		if !slices.Contains(allowed, "store") && !slices.Contains(allowed, "above") {
			allowed = append(allowed, "owner")
		}
		if slices.Contains(allowed, "editor") || strings.HasPrefix(c.statement, "USE") {
			allowed = append(allowed, "store-editor")
		}
		if slices.Contains(allowed, "viewer") || c.statement == "USE DATABASE other" {
			allowed = append(allowed, "shop-viewer")
		}
		allowed = append(allowed, "store-owner")
		for name, caller := range sessions {
			err := caller.authorize(context.Background(), statement)
			switch {
			case slices.Contains(allowed, name) && err != nil:
				t.Errorf("%s may not: %s: %v", name, c.statement, err)
			case !slices.Contains(allowed, name) && !errors.Is(err, fault.NotAllowed):
				t.Errorf("%s may: %s: %v", name, c.statement, err)
			case err != nil && !strings.Contains(err.Error(), "'"+name+"'"):
				t.Errorf("%s: the refusal does not name %s: %v", c.statement, name, err)
			}
			script := &lang.Script{Source: c.statement, Statements: []lang.Statement{statement}}
			if err != nil && caller.StartAppend(context.Background(), time.Now(), script, nil, Passed{}, func(Appended) {}) {
				t.Errorf("%s appends by the fast way: %s", name, c.statement)
			}
		}
	}
}

// Every statement of the language, and what else a stranger might try, is
// answered as one; but for USE and for appends to the PUBLIC topic t.
func TestAStrangerIsToldNothing(t *testing.T) {
	s := openStore(t)
	s.fill()
	admitted := []string{
		"USE NAMESPACE shop", "USE DATABASE orders", "USE NAMESPACE other", "USE DATABASE other", "CREATE t = 1", "INSERT INTO t [1, 2]",
	}
	tries := []string{
		"CREATE nothing = 1", "CREATE u = 1", "CREATE rows = { b: 1 }", "CREATE t:1 = 1", "CREATE t:'x' = 1", "CREATE t:$p = 1",
		"INSERT INTO nothing 1", "INSERT INTO t { id: 1 }", "INSERT INTO t $row", "INSERT INTO t [{ id: t:1 }]", "INSERT INTO t { id: null }",
		"CREATE t = (SELECT * FROM rows)", "INSERT INTO t (SELECT * FROM rows)", "CREATE t = [{ a: (SELECT * FROM t) }]",
		"CREATE t = -(SELECT * FROM t)", "CREATE t = len((SELECT * FROM t))", "CREATE t = $row[(SELECT * FROM t)]", "CREATE t = rows:(SELECT * FROM t)",
		"CREATE t = count()", "CREATE t = sum(1)", "CREATE t = position()", "CREATE t = appended()", "CREATE t = nothing()", "CREATE t = a", "CREATE t = id",
	}
	for _, c := range statementCases {
		if !slices.Contains(admitted, c.statement) {
			tries = append(tries, c.statement)
		}
	}
	params := map[string]value.Value{"p": value.Int(1), "row": value.Fields(value.Object{"id": value.Int(1)})}
	for _, try := range tries {
		script, err := lang.Parse(try)
		if err != nil {
			// What does not parse tells nothing of the store either.
			continue
		}
		for _, where := range [][2]string{{"shop", "orders"}, {"shop", "nothing"}, {"nothing", "nothing"}, {"", ""}} {
			stranger := s.arrive(Anonymous(NewDoor(), false), where[0], where[1])
			stranger.RunScript(context.Background(), script, params, func(statement lang.Statement, answer Answer) {
				if answer.Err == nil || *answer.Err != *fault.Of(errNotSignedIn) {
					t.Errorf("in %v %s (%s) is answered %v %v", where, try, typeOf(statement), answer.Value, answer.Err)
				}
			})
			if stranger.StartAppend(context.Background(), time.Now(), script, params, Passed{}, func(Appended) {}) {
				t.Errorf("%s went by another way in", try)
			}
			if follow, ok := script.Statements[0].(*lang.Follow); ok {
				if _, err := stranger.Follow(context.Background(), follow, params); !errors.Is(err, fault.NotSignedIn) {
					t.Errorf("a stranger follows: %v", err)
				}
			}
		}
	}
	stranger := s.arrive(Anonymous(NewDoor(), false), "", "")
	for _, source := range []string{"USE NAMESPACE nothing", "USE DATABASE nothing", "USE NAMESPACE shop", "USE DATABASE orders", "CREATE t = $p", "INSERT INTO t [1, $p + len('a'), [now(), uuid(), { a: rows:1, b: type(-$p), c: $row.id }]]"} {
		stranger.RunScript(context.Background(), &lang.Script{Source: source, Statements: []lang.Statement{parse(t, source)}}, params, func(_ lang.Statement, answer Answer) {
			if answer.Err != nil {
				t.Errorf("%s is answered %v", source, answer.Err)
			}
		})
	}
}

func TestANodeThatRequiresSignInLetsNobodyElseIn(t *testing.T) {
	s := openStore(t)
	s.run("DEFINE NAMESPACE shop")
	for strict, want := range map[bool]error{false: nil, true: fault.NotSignedIn} {
		stranger := s.arrive(Anonymous(NewDoor(), strict), "", "")
		if err := stranger.mayFollow(context.Background(), parse(t, "FOLLOW t").(*lang.Follow)); !errors.Is(err, want) {
			t.Errorf("strict %t: %v", strict, err)
		}
	}
}

func TestASignInEndsAtItsTime(t *testing.T) {
	s := openStore(t)
	s.fill()
	caller := s.arrive(SignedIn(s.users["viewer"], time.Now().Add(time.Hour)), "shop", "orders")
	if err := caller.authorize(context.Background(), parse(t, "SELECT * FROM t")); err != nil {
		t.Fatal(err)
	}
	caller.caller.until = time.Now()
	if err := caller.authorize(context.Background(), parse(t, "SELECT * FROM t")); !errors.Is(err, fault.NotSignedIn) {
		t.Error(err)
	}
}

func TestAFollowEndsWithTheRightToIt(t *testing.T) {
	s := openStore(t)
	s.fill()
	ctx := context.Background()
	caller := s.arrive(SignedIn(s.users["read"], time.Time{}), "shop", "orders")
	following, err := caller.Follow(ctx, parse(t, "FOLLOW t AFTER 0").(*lang.Follow), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.run(inOrders + "CREATE t = 1")
	if page, err := following.Next(ctx, 10, 0); err != nil || len(page.Messages) != 1 {
		t.Fatal(page, err)
	}
	s.run(inOrders + "REVOKE read ON t FROM 'read'; CREATE t = 2")
	if page, err := following.Next(ctx, 10, 0); !errors.Is(err, fault.NotAllowed) {
		t.Error(page, err)
	}
}

func TestAParkedPayloadIsWithheldFromWhoMayNotReadTheTable(t *testing.T) {
	s := openStore(t)
	s.fill()
	ctx := context.Background()
	database, err := s.Database(ctx, "shop", "orders")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := database.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := tx.Catalog().Consumer(store.KafkaConsumer, "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Park(ctx, consumer.ID, store.Parked{Reason: "why", Payload: []byte("secret")}); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for name, withheld := range map[string]bool{"owner": false, "manage": true} {
		answers, err := s.arrive(SignedIn(s.users[name], time.Time{}), "shop", "orders").Run(ctx, "INFO FOR KAFKA CONSUMER k", nil)
		if err != nil || answers[0].Err != nil {
			t.Fatal(answers, err)
		}
		text := fmt.Sprint(answers[0].Value)
		if strings.Contains(text, "secret") == withheld || !strings.Contains(text, fmt.Sprintf("withheld: %t", withheld)) || !strings.Contains(text, "why") {
			t.Errorf("%s is told %s", name, text)
		}
	}
}

func BenchmarkAuthorize(b *testing.B) {
	s := openStore(b)
	s.fill()
	script, _ := lang.Parse("CREATE t = 1")
	for _, name := range []string{"write", "editor", "store-owner"} {
		b.Run(name, func(b *testing.B) {
			caller, err := NewIn(context.Background(), s.Store, "shop", "orders", Options{Caller: SignedIn(s.users[name], time.Time{})})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := caller.authorize(context.Background(), script.Statements[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
