// Package signin knows whether somebody is who they say: passwords as they are
// kept and checked, tokens that stand for a password for a while, and how often
// a wrong one may be tried. It knows nothing of what a user may do.
//
// Two ideas:
//
//   - A password is kept as an argon2id hash and told to nobody. Whoever asks
//     learns the same, and as late, of a user that there is not as of a password
//     that is wrong.
//   - Hashing is dear on purpose, so who makes a node hash is bounded: few
//     hashes at once, few wrong passwords a minute, and what was right is known
//     for a while.
package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/crypto/argon2"

	"github.com/tidemarkdb/tidemark/fault"
)

// The parameters of argon2id (RFC 9106), as the OWASP password storage cheat
// sheet recommends them where many may sign in at once: some 20 ms and 19 MiB a
// hash. They are kept with each hash, so others may be chosen later.
const (
	argonMemoryKiB = 19 << 10
	argonPasses    = 2
	argonThreads   = 1
	saltBytes      = 16
	hashBytes      = 32
)

// The bounds of a password, in bytes. There is none on what it is made of:
// length is what makes it strong.
const (
	MinPasswordBytes = 1
	MaxPasswordBytes = 1024
)

// CheckPassword refuses, with fault.InvalidClause, a password that cannot be
// one. It does not repeat it.
func CheckPassword(password string) error {
	if n := len(password); n < MinPasswordBytes || n > MaxPasswordBytes {
		return fault.New(fault.InvalidClause, "a password has %d to %d bytes, not %d", MinPasswordBytes, MaxPasswordBytes, n)
	}
	return nil
}

// Hash hashes a password, to be kept: no two hashes of one are the same.
func Hash(password string) string {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // It never fails.
	return hashed{argonMemoryKiB, argonPasses, argonThreads, salt, nil}.of(password).String()
}

// hashed is a hash with its parameters.
type hashed struct {
	memoryKiB, passes uint32
	threads           uint8
	salt, hash        []byte
}

func (h hashed) of(password string) hashed {
	h.hash = argon2.IDKey([]byte(password), h.salt, h.passes, h.memoryKiB, h.threads, hashBytes)
	return h
}

// String is the hash in the customary form,
// $argon2id$v=19$m=19456,t=2,p=1$salt$hash.
func (h hashed) String() string {
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memoryKiB, h.passes, h.threads, encode(h.salt), encode(h.hash))
}

// parseHash reads a hash that Hash made, or says that it is none.
func parseHash(text string) (h hashed, ok bool) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return h, false
	}
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memoryKiB, &h.passes, &h.threads); n != 3 || err != nil {
		return h, false
	}
	var err error
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return h, false
	}
	h.hash, err = base64.RawStdEncoding.DecodeString(parts[5])
	return h, err == nil && h.passes > 0 && h.threads > 0
}

// nobody is what the password of a user is checked against that there is not.
var nobody = hashed{argonMemoryKiB, argonPasses, argonThreads, make([]byte, saltBytes), make([]byte, hashBytes)}

// The bounds of what a Checker does and keeps.
const (
	// hashesAtOnce bounds the memory and the processors that those who sign in
	// take from those who work.
	hashesAtOnce = 2
	// maxKnown bounds the passwords that are known to be right.
	maxKnown = 4096
)

// Checker checks passwords. It remembers those that were right, as long as they
// are the users': a caller who sends its password with every request is hashed
// once. It is safe for concurrent use.
type Checker struct {
	turns chan struct{}
	// secret keys what known holds, so that no password can be made of it.
	secret [32]byte

	mu sync.Mutex
	// known is protected by mu.
	known map[[sha256.Size]byte]struct{}
}

// NewChecker returns a checker that knows nothing.
func NewChecker() *Checker {
	c := &Checker{turns: make(chan struct{}, hashesAtOnce), known: map[[sha256.Size]byte]struct{}{}}
	_, _ = rand.Read(c.secret[:])
	return c
}

// Known reports whether a password was found to be that of a hash before,
// without the work of hashing.
func (c *Checker) Known(hash, password string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.known[c.keyOf(hash, password)]
	return known
}

// Check reports whether a password is that of a hash. An empty hash is that of
// a user that there is not: it is nobody's, and takes as long. Few are hashed at
// once; mayStill, nil for none, is asked when it is this check's turn. The error
// is mayStill's, or ctx's, which ended before.
func (c *Checker) Check(ctx context.Context, hash, password string, mayStill func() error) (bool, error) {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if mayStill != nil {
		if err := mayStill(); err != nil {
			return false, err
		}
	}
	kept, exists := parseHash(hash)
	if !exists {
		kept = nobody
	}
	right := subtle.ConstantTimeCompare(kept.of(password).hash, kept.hash) == 1 && exists
	if right {
		c.remember(hash, password)
	}
	return right, nil
}

func (c *Checker) remember(hash, password string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxKnown {
		clear(c.known) // Who is still there is hashed once more.
	}
	c.known[c.keyOf(hash, password)] = struct{}{}
}

// keyOf is the key of a password under which it is known. The hash has a length
// of its own, so no two pairs are one text.
func (c *Checker) keyOf(hash, password string) (key [sha256.Size]byte) {
	mac := hmac.New(sha256.New, c.secret[:])
	fmt.Fprintf(mac, "%d:%s%s", len(hash), hash, password)
	mac.Sum(key[:0])
	return key
}
