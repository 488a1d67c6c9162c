package server

import (
	"errors"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/semaphore"

	"github.com/tidemarkdb/tidemark/value"
)

// large is a request that takes more than every session may hold.
func large() []request {
	return []request{{params: map[string]value.Value{"v": value.String(string(make([]byte, 4*smallRequestBytes)))}}}
}

// A client's next request waits for its own that runs, whose memory comes back.
func TestAnInboxWaitsForTheMemoryOfItsOwnRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInbox(1<<30, semaphore.NewWeighted(5*smallRequestBytes))
		if err := i.put(large()); err != nil {
			t.Fatal(err)
		}
		running, _, _ := i.take(0)
		put := make(chan error, 1)
		go func() { put <- i.put(large()) }()
		synctest.Wait()
		select {
		case err := <-put:
			t.Fatalf("while the first one runs there is no memory for the second: %v", err)
		default:
		}
		i.ran(running.held)
		if err := <-put; err != nil {
			t.Error(err)
		}
	})
}

func TestAnInboxRefusesWhatFindsTheMemoryOfOthersTaken(t *testing.T) {
	memory := semaphore.NewWeighted(5 * smallRequestBytes)
	others := newInbox(1<<30, memory)
	if err := others.put(large()); err != nil {
		t.Fatal(err)
	}
	if err := newInbox(1<<30, memory).put(large()); !errors.Is(err, errRequestMemory) {
		t.Errorf("put answers %v", err)
	}
}
