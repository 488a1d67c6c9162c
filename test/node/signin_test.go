package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

const rootPassword = "the password of root"

// startOwned starts a node whose store has the owner root, with shop/orders.
func startOwned(t *testing.T, arguments ...string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "root")
	write(t, file, rootPassword+"\n")
	p := start(t, append(arguments, "--root-password-file", file)...)
	p.must(asRoot, "", `DEFINE NAMESPACE IF NOT EXISTS shop; USE NAMESPACE shop; DEFINE DATABASE IF NOT EXISTS orders; USE DATABASE orders;
		DEFINE TOPIC IF NOT EXISTS events; DEFINE TOPIC IF NOT EXISTS signups MAX BYTES 100 PUBLIC RATE 2 PER 1h;
		DEFINE USER IF NOT EXISTS 'ann' ON DATABASE PASSWORD 'the password of ann'`)
	return p
}

// as adds credentials to a request.
type as func(*http.Request)

func basic(user, password string) as {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

func bearer(token string) as {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func nobody(*http.Request) {}

var (
	asRoot = basic("root", rootPassword)
	asAnn  = basic("ann", "the password of ann")
)

const inOrders = "/shop/orders"

// sql sends statements to a database and returns the status and what is
// answered.
func (p *process) sql(who as, database, statements string) (int, string) {
	p.Helper()
	return p.send(who, "POST", "/sql"+database, statements)
}

func (p *process) send(who as, method, path, body string) (int, string) {
	p.Helper()
	request, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	who(request)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		p.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// must sends statements all of which succeed, and returns what they answer.
func (p *process) must(who as, database, statements string) string {
	p.Helper()
	status, answer := p.sql(who, database, statements)
	if status != http.StatusOK || strings.Contains(answer, `"ok":false`) {
		p.Fatalf("%s: %d %s", statements, status, answer)
	}
	return answer
}

// refused sends statements of which one is refused so.
func (p *process) refused(who as, database, statements, kind string) {
	p.Helper()
	status, answer := p.sql(who, database, statements)
	if status != http.StatusOK || !strings.Contains(answer, `"kind":"`+kind+`"`) {
		p.Errorf("%s: %d %s, want %s", statements, status, answer, kind)
	}
}

func TestUsersSignInOverHTTPAndOverAWebSocket(t *testing.T) {
	p := startOwned(t)
	p.must(asAnn, inOrders, "SLEEP 0s")
	p.refused(asAnn, inOrders, "READ FROM events", "NotAllowed")
	p.must(asRoot, inOrders, "GRANT read ON events TO 'ann'")
	p.must(asAnn, inOrders, "READ FROM events")

	for name, c := range map[string]struct {
		who    as
		path   string
		status int
	}{
		"a wrong password":              {basic("ann", "wrong"), inOrders, http.StatusUnauthorized},
		"an unknown user":               {basic("bob", "the password of ann"), inOrders, http.StatusUnauthorized},
		"a user of another database":    {asAnn, "", http.StatusUnauthorized},
		"an empty password":             {basic("ann", ""), inOrders, http.StatusUnauthorized},
		"no credentials that are known": {func(r *http.Request) { r.Header.Set("Authorization", "Digest x") }, inOrders, http.StatusUnauthorized},
		"a made-up token":               {bearer("tmk1.a.b"), inOrders, http.StatusUnauthorized},
		"root anywhere":                 {asRoot, inOrders, http.StatusOK},
	} {
		if status, answer := p.sql(c.who, c.path, "SLEEP 0s"); status != c.status || strings.Contains(answer, "password of") {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	// What is answered of a user that there is not is what is of a password
	// that is wrong.
	_, unknown := p.sql(basic("bob", "x"), inOrders, "SLEEP 0s")
	_, wrong := p.sql(basic("ann", "x"), inOrders, "SLEEP 0s")
	if unknown != wrong {
		t.Errorf("%s and %s tell who there is", unknown, wrong)
	}

	ann, err := client.Dial(t.Context(), p.URL, client.Options{Namespace: "shop", Database: "orders", User: "ann", Password: "the password of ann"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ann.Close() }()
	run := func(statement string, want error) {
		t.Helper()
		answers, err := ann.Run(context.Background(), statement, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := answers[0].Err; want == nil && got != nil || want != nil && (got == nil || !errors.Is(got, want)) {
			t.Errorf("%s: %v, want %v", statement, got, want)
		}
	}
	run("READ FROM events", nil)
	run("CREATE events = 1", fault.NotAllowed)
	p.must(asRoot, inOrders, "REVOKE read ON events FROM 'ann'")
	run("READ FROM events", fault.NotAllowed)
	p.must(asRoot, inOrders, "DROP USER 'ann' ON DATABASE")
	run("SLEEP 0s", fault.NotSignedIn)
	for _, wrong := range []client.Options{{User: "root", Password: "x"}, {Token: "x"}} {
		if s, err := client.Dial(t.Context(), p.URL, wrong); !errors.Is(err, fault.NotSignedIn) {
			t.Errorf("a wrong sign-in opens a session: %v %v", s, err)
		}
	}
	for _, secret := range []string{rootPassword, "the password of ann"} {
		if strings.Contains(p.Stderr.String(), secret) {
			t.Error("the log holds a password")
		}
	}
}

// signIn asks for a token.
func (p *process) signIn(body string) (status int, token string, expires time.Time, answer string) {
	p.Helper()
	status, answer = p.send(func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, "POST", "/signin", body)
	var given struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires"`
	}
	if status == http.StatusOK {
		if err := json.Unmarshal([]byte(answer), &given); err != nil {
			p.Fatalf("%s: %v", answer, err)
		}
	}
	return status, given.Token, given.Expires, answer
}

const annSignsIn = `{"user":"ann","password":"the password of ann","namespace":"shop","database":"orders"}`

func TestATokenStandsForAPasswordUntilItExpires(t *testing.T) {
	dir := t.TempDir()
	p := startOwned(t, "--data", dir, "--token-time", "3s")
	p.must(asRoot, inOrders, "GRANT read ON events TO 'ann'")
	status, token, expires, answer := p.signIn(annSignsIn)
	if left := time.Until(expires); status != http.StatusOK || left > 3*time.Second || left < -time.Minute {
		t.Fatalf("%d %s", status, answer)
	}
	p.must(bearer(token), inOrders, "READ FROM events")
	// A browser sets no headers on a WebSocket.
	conn, _, err := websocket.Dial(t.Context(), p.URL+"/ws?namespace=shop&database=orders", &websocket.DialOptions{
		Subprotocols: []string{"tidemark.json", "tidemark.bearer." + token},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	read := func() string {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"id":1,"sql":"READ FROM events"}`)); err != nil {
			t.Fatal(err)
		}
		_, answer, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	if answer := read(); answer != `{"id":1,"answers":[{"ok":true,"answer":[]}]}` {
		t.Error(answer)
	}
	nodetest.Eventually(t, soon, func() bool {
		status, answer = p.sql(bearer(token), inOrders, "READ FROM events")
		return status == http.StatusUnauthorized
	}, "the token expires")
	if !strings.Contains(answer, "expired") {
		t.Error(answer)
	}
	if answer := read(); !strings.Contains(answer, "NotSignedIn") {
		t.Errorf("the session outlives its token: %s", answer)
	}

	// A token ends with the password, and is good on every node of a store and
	// after a restart.
	p.Kill()
	p = startOwned(t, "--data", dir)
	_, token, _, _ = p.signIn(annSignsIn)
	p.Kill()
	p = startOwned(t, "--data", dir)
	p.must(bearer(token), inOrders, "READ FROM events")
	p.must(asRoot, inOrders, "ALTER USER 'ann' ON DATABASE PASSWORD 'another'")
	if status, answer := p.sql(bearer(token), inOrders, "READ FROM events"); status != http.StatusUnauthorized {
		t.Errorf("the token outlives the password: %d %s", status, answer)
	}
	for _, body := range []string{"", "{", "[]", `{"user":"ann"}`, `{"user":"ann","password":1}`, `{"user":"ann","password":"secret","more":1}`, `{"user":"ann","password":"secret","database":"d"}`} {
		if status, _, _, answer := p.signIn(body); status != http.StatusBadRequest || strings.Contains(answer, "secret") {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
}

func TestWrongPasswordsAreRated(t *testing.T) {
	p := startOwned(t)
	p.must(asRoot, "", "SLEEP 0s")
	statuses := map[int]int{}
	for range 14 {
		status, _ := p.sql(basic("ann", "wrong"), inOrders, "SLEEP 0s")
		statuses[status]++
	}
	// Of one address ten in a row, and one more every six seconds.
	if statuses[http.StatusUnauthorized] < 10 || statuses[http.StatusTooManyRequests] == 0 || len(statuses) != 2 {
		t.Errorf("wrong passwords are answered with %v", statuses)
	}
	if status, answer := p.sql(asAnn, inOrders, "SLEEP 0s"); status != http.StatusTooManyRequests {
		t.Errorf("the right password among wrong ones is answered with %d %s", status, answer)
	}
	// Who has signed in before goes on.
	p.must(asRoot, "", "SLEEP 0s")
}

func TestStrangersHaveADoorAndNothingElse(t *testing.T) {
	p := startOwned(t)
	p.must(nobody, "", "USE NAMESPACE shop; USE DATABASE orders; CREATE signups = { email: 'a' }")
	p.refused(nobody, inOrders, "READ FROM signups", "NotSignedIn")
	p.refused(nobody, inOrders, "CREATE events = 1", "NotSignedIn")
	p.refused(nobody, "/nothing/nothing", "CREATE signups = 1", "NotSignedIn")
	p.refused(nobody, inOrders, "INFO FOR STORE", "NotSignedIn")
	s, err := client.Dial(t.Context(), p.URL, client.Options{Namespace: "shop", Database: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var calls []*client.Call
	for range 3 {
		// Sent together, as the fast way of appending takes them.
		calls = append(calls, s.Start("CREATE signups = { email: 'b' }", nil))
	}
	kinds := map[fault.Kind]int{}
	for _, call := range calls {
		answers, err := call.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if answers[0].Err != nil {
			kinds[answers[0].Err.Kind]++
		}
	}
	if len(kinds) != 1 || kinds[fault.TopicRateExceeded] != 2 {
		t.Errorf("the rate of two an hour refuses %v of three more", kinds)
	}
	p.must(asRoot, inOrders, "INSERT INTO signups [1, 2, 3, 4, 5]")

	for path, want := range map[string]int{"/metrics": http.StatusUnauthorized, "/backup": http.StatusUnauthorized, "/health": http.StatusOK, "/ready": http.StatusOK} {
		if status, answer := p.send(nobody, "GET", path, ""); status != want {
			t.Errorf("%s answers a stranger %d %s", path, status, answer)
		}
	}
	if status, _ := p.send(asRoot, "GET", "/metrics", ""); status != http.StatusOK {
		t.Errorf("/metrics answers an owner %d", status)
	}
}

func TestAStoreIsClosedByItsFirstOwnerWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "--data", dir)
	p.prepare()
	p.must(nobody, inOrders, "CREATE events = 1; DEFINE USER 'root' ON STORE PASSWORD 'first' ROLE owner")
	p.refused(nobody, inOrders, "CREATE events = 2", "NotSignedIn")
	p.must(basic("root", "first"), inOrders, "CREATE events = 2")
	p.refused(basic("root", "first"), inOrders, "DROP USER 'root' ON STORE", "InvalidClause")
	p.Kill()

	// A password that was lost is given anew at the start, by whoever has the
	// folder; with an owner, others may be let in.
	t.Setenv("TIDEMARK_ROOT_PASSWORD", "second")
	p = start(t, "--data", dir, "--listen", "0.0.0.0:0")
	if err := os.Unsetenv("TIDEMARK_ROOT_PASSWORD"); err != nil {
		t.Fatal(err)
	}
	p.URL = strings.NewReplacer("0.0.0.0", "127.0.0.1", "[::]", "127.0.0.1").Replace(p.URL)
	p.must(basic("root", "second"), inOrders, "CREATE events = 3")
	if status, answer := p.sql(basic("root", "first"), inOrders, "CREATE events = 3"); status != http.StatusUnauthorized {
		t.Errorf("the password of before signs in: %d %s", status, answer)
	}
	// A page may call a node by any name once it has to sign in.
	p.must(func(r *http.Request) { r.Host = "tides.example.com"; basic("root", "second")(r) }, inOrders, "CREATE events = 3")
	p.Kill()

	// A process that opens the folder itself is asked nothing.
	out, _, status := nodetest.Run(t, "USE NAMESPACE shop; USE DATABASE orders; SELECT count() FROM events; INFO FOR STORE;", "run", "--data", dir, "--json", "-")
	if status != 0 || !strings.Contains(out, `"users":[{"of":"store","role":"owner","user":"root"}]`) || strings.Contains(out, "argon2") {
		t.Errorf("%d %s", status, out)
	}
}

func TestTheStatusOfConsumersIsToldToWhoSignsIn(t *testing.T) {
	p := startOwned(t)
	p.must(asRoot, inOrders, `DEFINE COLLECTION rows; DEFINE GROUP 'into' ON TOPIC events ACK DEADLINE 30s;
		DEFINE TOPIC CONSUMER inward FROM events GROUP 'into' INTO rows IDENTITY id MAP total AS total ON FAILURE stop`)
	url := "ws" + strings.TrimPrefix(p.URL, "http")
	if _, errors, status := nodetest.Run(t, "", "ingest", "status", "--url", url); status == 0 || !strings.Contains(errors, "NotSignedIn") {
		t.Errorf("who does not sign in is answered %d %s", status, errors)
	}
	t.Setenv("TIDEMARK_USER", "root")
	t.Setenv("TIDEMARK_PASSWORD", rootPassword)
	p.must(asRoot, inOrders, "CREATE events = 'no object'")
	nodetest.Eventually(t, soon, func() bool {
		out, _, status := nodetest.Run(t, "", "ingest", "status", "--url", url)
		return status == 1 && strings.Contains(out, "inward of shop/orders: last error")
	}, "the halted consumer is told")

	_, errors, _ := nodetest.Run(t, "", "ingest", "status", "--url", url+","+strings.TrimPrefix(p.URL, "http://"))
	if !strings.Contains(errors, "a session is on one node") {
		t.Errorf("a list of nodes is answered %s", errors)
	}
}
