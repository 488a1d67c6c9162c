package workers_test

import (
	"runtime"
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
		before := runtime.NumGoroutine()
		for range 100 {
			group.Go(func() {})
			synctest.Wait()
		}
		if more := runtime.NumGoroutine() - before; more != 1 {
			t.Errorf("100 functions, one after the other, take %d goroutines", more)
		}
		time.Sleep(time.Minute)
		if more := runtime.NumGoroutine() - before; more != 0 {
			t.Errorf("%d goroutines stay when nothing runs for long", more)
		}
	})
}
