package server

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/session"
	"github.com/tidemarkdb/tidemark/internal/signin"
	"github.com/tidemarkdb/tidemark/internal/store"
	"github.com/tidemarkdb/tidemark/value"
)

// DefaultTokenTime is how long a token is good for: a working day, so that who
// signs in in the morning is not asked again.
const DefaultTokenTime = 12 * time.Hour

// signIn finds out who callers are.
type signIn struct {
	store     *store.Store
	passwords *signin.Checker
	attempts  *signin.Attempts
	// door is where those come in who have not signed in.
	door      *session.Door
	tokenTime time.Duration

	mu sync.Mutex
	// key is protected by mu; nil before a token was made or shown.
	key *signin.Key
}

func newSignIn(s *store.Store, tokenTime time.Duration) *signIn {
	if tokenTime <= 0 {
		tokenTime = DefaultTokenTime
	}
	return &signIn{
		store: s, tokenTime: tokenTime,
		passwords: signin.NewChecker(), attempts: signin.NewAttempts(), door: session.NewDoor(),
	}
}

// errWrong is the answer to a password that is not the user's, and to a user
// that there is not.
var errWrong = fault.New(fault.NotSignedIn, "there is no such user, or the password is another")

// errUnreadable is the answer to an Authorization header that says nothing.
var errUnreadable = fault.New(fault.NotSignedIn, "the header Authorization is Basic with a user and a password, or Bearer with a token of /signin")

// tooMany is the refusal of who tried too many wrong passwords.
type tooMany struct{ wait time.Duration }

func (t tooMany) Error() string { return t.Unwrap().Error() }

func (t tooMany) Unwrap() error {
	return fault.New(fault.Unavailable, "too many wrong passwords were tried for this user, or from this address; try again in %s", t.wait.Round(time.Second)+time.Second)
}

// subprotocolBearer begins a WebSocket subprotocol that is a token: browsers
// set no headers on a WebSocket.
const subprotocolBearer = "tidemark.bearer."

// callerOf is who sent a request: the user of its Authorization header, or
// somebody who has not signed in. Credentials that are wrong are refused, also
// where none are asked for.
func (s *Server) callerOf(r *http.Request) (session.Caller, error) {
	scheme, credentials, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if scheme == "" {
		for _, protocols := range r.Header.Values("Sec-WebSocket-Protocol") {
			for protocol := range strings.SplitSeq(protocols, ",") {
				if token, ok := strings.CutPrefix(strings.TrimSpace(protocol), subprotocolBearer); ok {
					return s.signIn.byToken(r.Context(), token)
				}
			}
		}
		return session.Anonymous(s.signIn.door, s.options.RequireSignIn), nil
	}
	switch {
	case strings.EqualFold(scheme, "Basic"):
		name, password, ok := r.BasicAuth()
		if !ok {
			return session.Caller{}, errUnreadable
		}
		namespace, database := namesInUse(r)
		user, err := s.signIn.byPassword(r.Context(), r.RemoteAddr, namespace, database, name, password)
		if err != nil {
			return session.Caller{}, err
		}
		return session.SignedIn(user, time.Time{}), nil
	case strings.EqualFold(scheme, "Bearer"):
		return s.signIn.byToken(r.Context(), strings.TrimSpace(credentials))
	}
	return session.Caller{}, errUnreadable
}

// byPassword signs the user in that a name stands for: of the database, or else
// of its namespace, or else of the store.
func (i *signIn) byPassword(ctx context.Context, remote, namespace, database, name, password string) (*store.User, error) {
	user, err := i.store.FindUser(ctx, namespace, database, name)
	tried, hash := store.UserName{Namespace: namespace, Database: database, Name: name}, ""
	switch {
	case err == nil:
		tried, hash = user.UserName, user.Password
	case !errors.Is(err, fault.NotFound):
		return nil, err
	}
	if hash != "" && i.passwords.Known(hash, password) {
		return user, nil
	}
	who := strings.Join([]string{tried.Namespace, tried.Database, tried.Name}, "\x00")
	address := addressOf(remote).String()
	mayTry := func() error {
		if wait := i.attempts.Wait(who, address, time.Now()); wait > 0 {
			return tooMany{wait}
		}
		return nil
	}
	// Asked three times. Before there is work; then, since a flood of wrong ones
	// waits for its turn as this one does, so that those of it that came too late
	// take no turn from others; and after, so that many at once learn no more than
	// many after one another.
	if err := mayTry(); err != nil {
		return nil, err
	}
	right, err := i.passwords.Check(ctx, hash, password, mayTry)
	if err == nil {
		err = mayTry()
	}
	var limited tooMany
	switch {
	case errors.As(err, &limited):
		return nil, err
	case err != nil:
		return nil, fault.New(fault.Cancelled, "the caller gave up: %w", err)
	case !right:
		i.attempts.Failed(who, address, time.Now())
		return nil, errWrong
	}
	return user, nil
}

// byToken signs the user in that a token names, until it expires.
func (i *signIn) byToken(ctx context.Context, token string) (session.Caller, error) {
	key, err := i.tokenKey(ctx)
	if err != nil {
		return session.Caller{}, err
	}
	now, err := i.store.Now(ctx)
	if err != nil {
		return session.Caller{}, err
	}
	claims, err := key.Claims(token, now)
	if err != nil {
		return session.Caller{}, err
	}
	user, err := i.store.User(ctx, store.UserName{Namespace: claims.Namespace, Database: claims.Database, Name: claims.Name})
	if errors.Is(err, fault.NotFound) || err == nil && (user.ID != claims.ID || user.Credential() != claims.Credential) {
		return session.Caller{}, fault.New(fault.NotSignedIn, "the token is of a user that was dropped, or whose password was changed; sign in again")
	}
	if err != nil {
		return session.Caller{}, err
	}
	return session.SignedIn(user, time.Now().Add(claims.Expires.Sub(now))), nil
}

// issue makes a token of a user.
func (i *signIn) issue(ctx context.Context, user *store.User) (token string, expires time.Time, err error) {
	key, err := i.tokenKey(ctx)
	if err != nil {
		return "", expires, err
	}
	now, err := i.store.Now(ctx)
	if err != nil {
		return "", expires, err
	}
	expires = now.Add(i.tokenTime)
	token, err = key.Token(signin.Claims{
		Namespace: user.Namespace, Database: user.Database, Name: user.Name,
		ID: user.ID, Credential: user.Credential(), Expires: expires,
	})
	return token, expires, err
}

func (i *signIn) tokenKey(ctx context.Context) (signin.Key, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.key != nil {
		return *i.key, nil
	}
	kept, err := i.store.TokenKey(ctx)
	if err != nil {
		return signin.Key{}, err
	}
	key := signin.Key(kept)
	i.key = &key
	return key, nil
}

// serveSignIn answers {"user":…,"password":…} with a token that stands for both
// until it expires.
func (s *Server) serveSignIn(w http.ResponseWriter, r *http.Request) {
	x := s.newExchange(w, r)
	defer x.recover()
	if s.draining.Err() != nil {
		x.refuse(http.StatusServiceUnavailable, "draining", errShuttingDown)
		return
	}
	leave, err := s.gate.enterSession(r.RemoteAddr)
	if err != nil {
		x.refuse(http.StatusTooManyRequests, "sessions", err)
		return
	}
	defer leave()
	body, release, err := x.readBody()
	if err != nil {
		x.refuseBody(err)
		return
	}
	defer release()
	given, err := credentialsOf(r, body)
	if err != nil {
		x.refuse(http.StatusBadRequest, "syntax", err)
		return
	}
	user, err := s.signIn.byPassword(r.Context(), r.RemoteAddr, given["namespace"], given["database"], given["user"], given["password"])
	if err != nil {
		x.refuseCaller(err)
		return
	}
	token, expires, err := s.signIn.issue(r.Context(), user)
	if err != nil {
		x.refuse(statusOf(err), "sign_in", err)
		return
	}
	x.answerValue(value.Fields(value.Object{"token": value.String(token), "expires": value.Datetime(expires)}))
}

// credentialsOf reads the body of /signin, of which no message repeats
// anything.
func credentialsOf(r *http.Request, body []byte) (map[string]string, error) {
	f := formatJSON
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media == mediaCBOR {
		f = formatCBOR
	}
	malformed := fault.New(fault.Syntax, `a sign-in is {"user":"…","password":"…"}, and "namespace" and "database" where the user is of one`)
	decoded, err := decode(f, body)
	if err != nil {
		return nil, malformed
	}
	fields, _ := decoded.AsObject()
	given := map[string]string{}
	for name, field := range fields {
		switch name {
		case "user", "password", "namespace", "database":
			text, ok := field.AsString()
			if !ok {
				return nil, malformed
			}
			given[name] = text
		default:
			return nil, malformed
		}
	}
	if given["user"] == "" || given["password"] == "" || given["database"] != "" && given["namespace"] == "" {
		return nil, malformed
	}
	return given, nil
}

// answerValue answers a value by itself.
func (x *exchange) answerValue(v value.Value) {
	header := x.w.Header()
	header.Set("Content-Type", x.format.mediaType())
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	x.answered = true
	x.server.setWriteDeadline(x.w)
	_, err := x.w.Write(appendValue(x.format, nil, v))
	x.log.Debug("a request is answered", slog.Duration("took", time.Since(x.started)), slog.Any("error", err))
}

// refuseCaller answers a request of somebody who did not sign in as they should.
func (x *exchange) refuseCaller(err error) {
	why := "sign_in"
	var limited tooMany
	switch {
	case errors.As(err, &limited):
		why = "sign_in_attempts"
		x.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(limited.wait.Seconds()))))
		x.log.Warn("too many wrong passwords are tried", slog.Duration("wait", limited.wait))
	case errors.Is(err, fault.NotSignedIn):
		x.log.Warn("a sign-in is refused", slog.Any("reason", err))
	}
	x.refuse(statusOf(err), why, err)
}

// mayTakeAll refuses who may not have everything that the store holds.
func (s *Server) mayTakeAll(r *http.Request) error {
	return s.check(r, (*session.Session).CheckOwner)
}

// viewersOnly serves what tells of the whole store: to its users that have a
// role, and to everybody where it has no owner.
func (s *Server) viewersOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.check(r, (*session.Session).CheckViewer); err != nil {
			s.newExchange(w, r).refuseCaller(err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// check asks something of the caller of a request.
func (s *Server) check(r *http.Request, ask func(*session.Session, context.Context) error) error {
	caller, err := s.callerOf(r)
	if err != nil {
		return err
	}
	asked := session.New(s.store, session.Options{Caller: caller})
	defer asked.Close()
	return ask(asked, r.Context())
}

// hasOwner reports whether the store has an owner, so that who comes must sign
// in; where that cannot be read, it is not known to have.
func (s *Server) hasOwner(ctx context.Context) bool {
	users, err := s.store.Users(ctx)
	return err == nil && users.HasOwner()
}
