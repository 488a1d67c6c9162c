package workers_test

import (
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/internal/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNoFunctionWaitsForAnother(t *testing.T) {
	const many = 1000
	var group workers.Group
	var met sync.WaitGroup
	met.Add(many)
	for range many {
		group.Go(func() {
			met.Done()
			met.Wait()
		})
	}
	group.Wait()
}

func TestWaitWaitsForWhatFunctionsBegin(t *testing.T) {
	var group workers.Group
	var ran atomic.Int32
	group.Go(func() {
		time.Sleep(time.Millisecond)
		group.Go(func() {
			time.Sleep(time.Millisecond)
			ran.Add(1)
		})
	})
	group.Wait()
	if ran.Load() != 1 {
		t.Error("Wait has returned while a function ran")
	}
}

func TestAGoroutineIsUsedAgainAndEndsWhenItIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group workers.Group
		goroutines := map[string]bool{}
		for range 100 {
			group.Go(func() {
				name, _, _ := strings.Cut(string(debug.Stack()), "\n")
				goroutines[name] = true
			})
			synctest.Wait()
		}
		if len(goroutines) != 1 {
			t.Errorf("100 functions, one after the other, take %d goroutines", len(goroutines))
		}
		// One that stayed longer would be a deadlock to the bubble.
		time.Sleep(time.Minute)
	})
}
