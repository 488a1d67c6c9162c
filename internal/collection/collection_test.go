package collection

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestALargeHeapGrowsByLess(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 400, 10 << 20: 400, 32 << 20: 400, 40 << 20: 300, 64 << 20: 200, 100 << 20: 100, 4 << 30: 100,
	} {
		if got := collectionPercent(live); got != want {
			t.Errorf("a heap of %d MiB may grow by %d %%, want %d", live>>20, got, want)
		}
	}
}

func TestEveryCollectionIsTold(t *testing.T) {
	told := make(chan struct{}, 16)
	afterCollection(func() {
		select {
		case told <- struct{}{}:
		default:
		}
	})
	for range 3 {
		runtime.GC()
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Fatal("a collection was not told")
		}
	}
}

func TestWhatTheProgramHasSetStays(t *testing.T) {
	const own = 150
	defer debug.SetGCPercent(debug.SetGCPercent(own))
	Relax()
	if now := debug.SetGCPercent(own); now != own {
		t.Errorf("the percentage is %d, and the program has set %d", now, own)
	}
}
