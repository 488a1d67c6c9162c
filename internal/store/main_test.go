package store_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets no test leave a goroutine behind: whatever a store starts has
// ended when it is closed. It also chooses how much rapid does by default; the
// flags -rapid.checks and -rapid.steps ask for more.
func TestMain(m *testing.M) {
	flag.Parse()
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": "250", "rapid.steps": "150"} {
		if !set[name] {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	goleak.VerifyTestMain(m)
}
