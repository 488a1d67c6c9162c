// How much memory a process takes Linux tells, and that 127.0.0.2 is this
// machine, too.
//go:build linux

package node

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/nodetest"
)

// The tests of this file are of clients that send and take nothing, so that
// what they are owed, or what they sent, is held for them.

// pour writes something again and again, until so many bytes are sent or the
// node takes no more for a while.
func (w *wire) pour(frame []byte, most int) {
	for sent := 0; sent < most; sent += len(frame) {
		_ = w.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := w.Write(frame); err != nil {
			return
		}
	}
}

func TestWordsOnNoFollowWaitForTheirAnswersToBeTaken(t *testing.T) {
	b := besiege(t)
	w := upgrade(t, b.Address, "tidemark.json")
	w.pour(frame(textFrame|finalFrame, "["+strings.Repeat(`{"follow":7,"credit":1},`, 2600)+`{"follow":7,"credit":1}]`), 60<<20)
	b.holds()
}

// A request of ten bytes takes many times as much in memory.
func TestRequestsThatWaitCountAsWhatTheyTake(t *testing.T) {
	b := besiege(t)
	for range 3 {
		w := upgrade(t, b.Address, "tidemark.json")
		_, _ = w.Write(frame(textFrame|finalFrame, `{"id":1,"sql":"SLEEP 60s"}`))
		w.pour(frame(textFrame|finalFrame, "["+strings.Repeat(`{"sql":""},`, 5800)+`{"sql":""}]`), 20<<20)
	}
	b.holds()
}

func TestRequestsPastTheirMemoryAreRefused(t *testing.T) {
	b := besiege(t, "--request-memory-bytes", "16777216")
	numbers := frame(textFrame|finalFrame, `{"sql":"SLEEP 60s","params":{"a":[`+strings.Repeat(`0,`, 300_000)+`0]}}`)
	for range 2 {
		w := upgrade(t, b.Address, "tidemark.json")
		_, _ = w.Write(numbers)
	}
	refused := b.metric(`tidemark_refusals_total{reason="request_memory"} 1`)
	nodetest.Eventually(t, soon, refused, "what two sessions hold is more than all may")
	b.holds()
}

func TestAnswersThatNobodyTakesAreBounded(t *testing.T) {
	b := besiege(t, "--data", t.TempDir(), "--answer-bytes", "16777216", "--answer-memory-bytes", "16777216")
	creates := frame(textFrame|finalFrame, `{"id":1,"sql":"CREATE events = $v","params":{"v":"`+strings.Repeat("x", 60000)+`"}}`)
	const most = 200 << 20
	// The store's own memory is what the same takes of one who reads.
	reader := upgrade(t, b.Address, "tidemark.json")
	go func() { _, _ = io.Copy(io.Discard, reader.answers) }()
	reader.pour(creates, most)
	b.rests()
	for range 3 {
		upgrade(t, b.Address, "tidemark.json").pour(creates, most)
	}
	b.holds()
}

func TestFollowsThatNobodyReadsAreBounded(t *testing.T) {
	b := besiege(t)
	for range 100 {
		b.Must("USE NAMESPACE shop; USE DATABASE orders; CREATE events = '" + strings.Repeat("x", 60000) + "'")
	}
	open := 0
	for range 3 {
		w := upgrade(t, b.Address, "tidemark.json")
		for i := range 64 {
			_, _ = w.Write(frame(textFrame|finalFrame, fmt.Sprintf(`{"id":%d,"sql":"FOLLOW events AFTER 0","credit":2000000000}`, i)))
			open++
		}
	}
	nodetest.Eventually(t, soon, b.metric(fmt.Sprintf("tidemark_waiting_reads %d", open)), "all FOLLOWs are open")
	b.holds()
}

func TestWhoTakesNoMetricsIsCutOff(t *testing.T) {
	b := besiege(t, "--write-time", "1s")
	w := connect(t, b.Address, "")
	w.pour([]byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000)), 20<<20)
	cutOff := make(chan struct{})
	go func() {
		// The node has closed when what is written is refused.
		for {
			_ = w.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := w.Write([]byte("x")); err != nil && !isTimeout(err) {
				close(cutOff)
				return
			}
		}
	}()
	select {
	case <-cutOff:
	case <-time.After(cutOffWithin):
		t.Error("who reads nothing is not cut off")
	}
	_ = w.Close()
	b.Signal(syscall.SIGTERM)
	if status := b.Wait(); status != 0 {
		t.Errorf("the node exits with %d", status)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// All of a flood pass the question whether they may be tried before the first of
// them has failed.
func TestASignInDoesNotWaitBehindAFloodFromElsewhere(t *testing.T) {
	p := startOwned(t)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	transport := &http.Transport{DialContext: from.DialContext}
	defer transport.CloseIdleConnections()
	var flood sync.WaitGroup
	for i := range 500 {
		flood.Go(func() {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/signin", strings.NewReader(fmt.Sprintf(`{"user":"user %d","password":"x"}`, i)))
			if err != nil {
				t.Error(err)
				return
			}
			if response, err := transport.RoundTrip(request); err == nil {
				_ = response.Body.Close()
			}
		})
	}
	nodetest.Eventually(t, soon, func() bool {
		return strings.Contains(get(t, p.URL+"/health"), "ok")
	}, "the node answers in the flood")
	began := time.Now()
	status, _, _, _ := p.signIn(annSignsIn)
	if took := time.Since(began); status != http.StatusOK || took > servedWithin {
		t.Errorf("behind a flood of another address ann's sign-in is answered %d after %s", status, took)
	}
	flood.Wait()
}
