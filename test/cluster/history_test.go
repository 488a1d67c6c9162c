package cluster

import (
	"bytes"
	"encoding/json"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
)

// operation is what a client did, and what it was told of it.
type operation struct {
	What action
	// By and N name what is appended or transacted; By is the deduplication key
	// of a payment.
	By string `json:",omitempty"`
	N  int64  `json:",omitempty"`
	// First and Last are the positions that were given, or read; Ledger that in
	// the other topic of a transaction.
	First, Last, Ledger uint64 `json:",omitempty"`
	// Taken are messages that were handed out, or one that is settled.
	Taken []taken `json:",omitempty"`
	// Count is how many were settled, or are in flight, or whether a payment was
	// appended.
	Count int `json:",omitempty"`

	// Err is the error that the client was told, Kind what it says.
	Err  string `json:",omitempty"`
	Kind string `json:",omitempty"`

	// Call and Return are when it was begun and when it was answered, in
	// nanoseconds: the processes share a machine and its clock. Return is 0 for
	// one that was not answered.
	Call, Return int64
}

// taken is a hand-out of a message.
type taken struct {
	Position   uint64
	Deliveries uint32
}

// action is what an operation does.
type action string

const (
	appends     action = "append"      // one message to events
	transacts   action = "transact"    // two to events and one to ledger, and a record
	pays        action = "pay"         // one to payments, which deduplicates
	rings       action = "ring"        // one to ring, which keeps little
	looks       action = "look"        // a read of events without a name
	consumes    action = "consume"     // a read as billing with its effects
	takes       action = "take"        // a hand-out to mailer
	works       action = "work"        // a hand-out, effects and acknowledgement in one transaction
	acknowledge action = "acknowledge" // one message
	handsBack   action = "hand back"   // one message, by NACK or RELEASE
	rejects     action = "reject"      // one message
	informs     action = "inform"      // what INFO says is in flight
	defines     action = "define"      // a definition and its use
)

// certain reports whether the client was told that it is done.
func (o operation) certain() bool { return o.Return != 0 && o.Err == "" }

// undone reports whether the client was told that nothing of it is done.
func (o operation) undone() bool { return o.Kind == string(fault.Conflict) }

// line is one line of a history file: the beginning of an operation or its end.
type line struct {
	ID   int64
	Done bool
	operation
}

// recorder writes a process's history. A line is one write, so a process that
// is killed leaves whole lines, but for the last.
type recorder struct {
	last atomic.Int64
	mu   sync.Mutex
	file *os.File // protected by mu
}

func (r *recorder) write(l line) {
	encoded, err := json.Marshal(l)
	if err != nil {
		panic(err) // It is made of numbers and texts.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.file.Write(append(encoded, '\n')); err != nil {
		panic(err) // Without its history the work is in vain.
	}
}

// record runs an operation, which fills in what it was told.
func (r *recorder) record(o operation, run func(o *operation) error) error {
	id := r.last.Add(1)
	o.Call = time.Now().UnixNano()
	r.write(line{ID: id, operation: o})
	err := run(&o)
	o.Return = time.Now().UnixNano()
	if err != nil {
		o.Err, o.Kind = err.Error(), string(fault.Of(err).Kind)
	}
	r.write(line{ID: id, Done: true, operation: o})
	return err
}

// readHistory reads a process's history.
func readHistory(t testing.TB, path string) []operation {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(content, []byte("\n"))
	found := map[int64]int{}
	var operations []operation
	for i, text := range lines {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			if i == len(lines)-1 {
				break // What a kill left of it.
			}
			t.Fatalf("line %d of %s: %v", i+1, path, err)
		}
		if !l.Done {
			found[l.ID] = len(operations)
			operations = append(operations, l.operation)
			continue
		}
		operations[found[l.ID]] = l.operation
	}
	return operations
}
