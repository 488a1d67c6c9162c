package signin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

var now = time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)

func TestAPasswordIsThatOfItsHashAndNoOtherIs(t *testing.T) {
	c, ctx := NewChecker(), context.Background()
	hash := Hash("correct horse")
	if strings.Contains(hash, "horse") || hash == Hash("correct horse") {
		t.Errorf("the hash %s shows the password, or is without salt", hash)
	}
	for _, try := range []struct {
		hash, password string
		want           bool
	}{
		{hash, "correct horse", true},
		{hash, "correct horsf", false},
		{hash, "", false},
		{"", "", false},
		{"", strings.Repeat("\x00", hashBytes), false},
		{"$argon2id$v=19$m=0,t=0,p=0$$", "", false},
		{"plain", "plain", false},
	} {
		got, err := c.Check(ctx, try.hash, try.password, nil)
		if err != nil || got != try.want {
			t.Errorf("%q is the password of %q: %t, %v; want %t", try.password, try.hash, got, err, try.want)
		}
		if known := c.Known(try.hash, try.password); known != try.want {
			t.Errorf("%q is known as the password of %q: %t", try.password, try.hash, known)
		}
	}
	if c.Known(Hash("correct horse"), "correct horse") {
		t.Error("a password is known of a hash that it was not checked against")
	}
}

// A user that there is not must cost what a wrong password does, or the time
// would tell which users there are.
func TestAUserThatThereIsNotTakesTheWorkOfAWrongPassword(t *testing.T) {
	kept, ok := parseHash(Hash("x"))
	if !ok || kept.memoryKiB != nobody.memoryKiB || kept.passes != nobody.passes || kept.threads != nobody.threads || len(kept.hash) != len(nobody.hash) {
		t.Errorf("nobody is hashed with other parameters, %+v", nobody)
	}
}

func TestWhoIsNotWaitedForGetsNoHash(t *testing.T) {
	c := NewChecker()
	for range hashesAtOnce {
		c.turns <- struct{}{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Check(ctx, "", "x", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestATokenSaysWhatWasSignedUntilItExpires(t *testing.T) {
	key := NewKey()
	claims := Claims{Namespace: "shop", Database: "orders", Name: "ada", ID: [16]byte{1}, Credential: [32]byte{2}, Expires: now.Add(time.Hour)}
	token, err := key.Token(claims)
	if err != nil {
		t.Fatal(err)
	}
	got, err := key.Claims(token, now)
	if err != nil || !got.Expires.Equal(claims.Expires) {
		t.Fatal(got, err)
	}
	got.Expires = claims.Expires
	if got != claims {
		t.Errorf("%+v, want %+v", got, claims)
	}
	if _, err := key.Claims(token, claims.Expires); !errors.Is(err, fault.NotSignedIn) || !strings.Contains(err.Error(), "expired") {
		t.Error(err)
	}
	body, signature, _ := strings.Cut(strings.TrimPrefix(token, tokenPrefix), ".")
	forged := []string{"", ".", tokenPrefix, tokenPrefix + ".", "x" + token, token + "x", tokenPrefix + body, tokenPrefix + body + ".", tokenPrefix + signature + "." + body}
	for i := len(tokenPrefix); i < len(token); i += 7 {
		other := byte('A')
		if token[i] == other {
			other = 'B'
		}
		forged = append(forged, token[:i]+string(other)+token[i+1:])
	}
	for _, text := range forged {
		if claims, err := key.Claims(text, now); !errors.Is(err, fault.NotSignedIn) {
			t.Errorf("%q says %+v, %v", text, claims, err)
		}
	}
	if _, err := NewKey().Claims(token, now); !errors.Is(err, fault.NotSignedIn) {
		t.Error("another store takes the token:", err)
	}
}

func TestWrongPasswordsAreRatedByUserAndByAddress(t *testing.T) {
	a := NewAttempts()
	for i := range addressBurst {
		if wait := a.Wait("root", "one", now); wait > 0 {
			t.Fatalf("attempt %d waits %s", i+1, wait)
		}
		a.Failed("root", "one", now)
	}
	if wait := a.Wait("ada", "one", now); wait != addressEvery {
		t.Errorf("the address waits %s, want %s", wait, addressEvery)
	}
	if wait := a.Wait("root", "two", now); wait != 0 {
		t.Errorf("another address waits %s", wait)
	}
	if wait := a.Wait("ada", "one", now.Add(addressEvery)); wait != 0 {
		t.Errorf("after %s the address waits %s", addressEvery, wait)
	}
	for i := addressBurst; i < userBurst; i++ {
		a.Failed("root", fmt.Sprint("address", i), now)
	}
	if wait := a.Wait("root", "two", now); wait != userEvery {
		t.Errorf("the user waits %s, want %s", wait, userEvery)
	}
}

func TestAttemptsTakeBoundedMemory(t *testing.T) {
	a := NewAttempts()
	for i := range 3 * maxAttempts {
		a.Failed(fmt.Sprint(i), fmt.Sprint(i), now)
	}
	if len(a.users) > maxAttempts || len(a.addresses) > maxAttempts {
		t.Errorf("%d users and %d addresses are remembered, and %d are the bound", len(a.users), len(a.addresses), maxAttempts)
	}
}
