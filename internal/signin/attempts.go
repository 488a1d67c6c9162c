package signin

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often a wrong password may be sent for one user, and from one address, to
// one node. An address gets as many in a row as somebody who looks for the
// right one needs; a user more, so that a stranger cannot keep it out by
// guessing from one place.
const (
	addressBurst = 10
	addressEvery = 6 * time.Second
	userBurst    = 30
	userEvery    = 2 * time.Second
	// maxAttempts bounds the users, and the addresses, that are remembered.
	maxAttempts = 8192
)

// Attempts rates wrong passwords, by user and by address. It is safe for
// concurrent use.
type Attempts struct {
	mu sync.Mutex
	// The following are protected by mu.
	users, addresses map[string]*rate.Limiter
}

// NewAttempts returns rates of which nothing was tried.
func NewAttempts() *Attempts {
	return &Attempts{users: map[string]*rate.Limiter{}, addresses: map[string]*rate.Limiter{}}
}

// Wait is how long nothing may be tried for a user or from an address; 0 where
// it may.
func (a *Attempts) Wait(user, address string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(waitOf(a.users[user], userEvery, now), waitOf(a.addresses[address], addressEvery, now))
}

func waitOf(limiter *rate.Limiter, every time.Duration, now time.Time) time.Duration {
	if limiter == nil {
		return 0
	}
	missing := 1 - limiter.TokensAt(now)
	return max(0, time.Duration(missing*float64(every)))
}

// Failed counts a wrong password.
func (a *Attempts) Failed(user, address string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count(a.users, user, userEvery, userBurst, now)
	count(a.addresses, address, addressEvery, addressBurst, now)
}

func count(limiters map[string]*rate.Limiter, name string, every time.Duration, burst int, now time.Time) {
	limiter := limiters[name]
	if limiter == nil {
		if len(limiters) >= maxAttempts {
			forget(limiters, now)
		}
		limiter = rate.NewLimiter(rate.Every(every), burst)
		limiters[name] = limiter
	}
	limiter.AllowN(now, 1)
}

// forget makes room, a quarter of it at once: those who tried nothing lately
// go, and then whoever comes first, since memory is bounded whatever is tried.
func forget(limiters map[string]*rate.Limiter, now time.Time) {
	for name, limiter := range limiters {
		if limiter.TokensAt(now) >= float64(limiter.Burst()) {
			delete(limiters, name)
		}
	}
	for name := range limiters {
		if len(limiters) <= maxAttempts*3/4 {
			return
		}
		delete(limiters, name)
	}
}
