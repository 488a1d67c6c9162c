package signin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/tidemarkdb/tidemark/fault"
)

// Key signs the tokens of a store. Every node of the store has the same.
type Key [32]byte

// NewKey makes a key up.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:])
	return k
}

// Claims are what a token says: who it is, as whom somebody signed in, and
// until when.
type Claims struct {
	Namespace, Database string
	Name                string
	// ID and Credential are those of the user when it signed in: a token ends
	// with the user, and with the password.
	ID         [16]byte
	Credential [sha256.Size]byte
	// Expires is by the store's clock.
	Expires time.Time
}

// tokenPrefix begins every token, so that whoever finds one knows what it is.
const tokenPrefix = "tmk1."

// Token is the claims as a text that only a holder of the key can make. It is
// made of letters, digits, '-', '_' and '.'.
func (k Key) Token(claims Claims) (string, error) {
	encoded, err := cbor.Marshal(claims)
	if err != nil {
		return "", fault.New(fault.Internal, "a token cannot be encoded: %w", err)
	}
	return tokenPrefix + encodeBase64(encoded) + "." + encodeBase64(k.sign(encoded)), nil
}

// Claims are what a token says, or fault.NotSignedIn for a text that the key
// did not sign or whose time has passed.
func (k Key) Claims(token string, now time.Time) (Claims, error) {
	var claims Claims
	body, signature, ok := strings.Cut(strings.TrimPrefix(token, tokenPrefix), ".")
	encoded, err := base64.RawURLEncoding.DecodeString(body)
	signed, signatureErr := base64.RawURLEncoding.DecodeString(signature)
	if !ok || !strings.HasPrefix(token, tokenPrefix) || err != nil || signatureErr != nil || !hmac.Equal(signed, k.sign(encoded)) {
		return claims, fault.New(fault.NotSignedIn, "the token is not one of this store; sign in to get one")
	}
	if err := cbor.Unmarshal(encoded, &claims); err != nil {
		return claims, fault.New(fault.Internal, "a token cannot be decoded: %w", err)
	}
	if !now.Before(claims.Expires) {
		return claims, fault.New(fault.NotSignedIn, "the token has expired at %s; sign in again", claims.Expires.UTC().Format(time.RFC3339))
	}
	return claims, nil
}

func (k Key) sign(encoded []byte) []byte {
	mac := hmac.New(sha256.New, k[:])
	_, _ = mac.Write(encoded)
	return mac.Sum(nil)
}

func encodeBase64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
