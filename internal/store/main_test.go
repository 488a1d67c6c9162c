package store_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain chooses how much rapid does by default; the flags -rapid.checks and
// -rapid.steps ask for more.
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
	os.Exit(m.Run())
}

// leaveNothingRunning fails a test that leaves a goroutine behind: whatever a
// store starts has ended when it is closed. It is called before a store is
// opened. An engine whose disk failed keeps what hangs in it, so those tests do
// without.
func leaveNothingRunning(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}
