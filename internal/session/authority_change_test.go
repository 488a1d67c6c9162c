package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/lang"
)

// say runs a script as a caller and returns the last answer.
func say(t *testing.T, caller *Session, script string) Answer {
	t.Helper()
	answers, err := caller.Run(context.Background(), script, nil)
	if err != nil {
		t.Fatal(err)
	}
	return answers[len(answers)-1]
}

func TestAGrantIsATablesAlsoInsideATransactionThatSeesItsPredecessor(t *testing.T) {
	s := openStore(t)
	s.fill()
	s.run(inOrders + "DEFINE SPACE box; CREATE box:1 = 'of before'")
	caller := s.arrive(SignedIn(s.users["read"], time.Time{}), "shop", "orders")
	if answer := say(t, caller, "BEGIN; SELECT * FROM t"); answer.Err != nil {
		t.Fatal(answer.Err)
	}
	s.run(inOrders + "DROP SPACE box; DEFINE SPACE box; GRANT read ON box TO 'read'")
	if answer := say(t, caller, "SELECT * FROM box"); answer.Err == nil || answer.Err.Kind != fault.NotAllowed {
		t.Errorf("the space of before answers %v %v", answer.Value, answer.Err)
	}
}

func TestAReadThatWaitedIsNotAnsweredWhoWasStoppedMeanwhile(t *testing.T) {
	s := openStore(t)
	s.fill()
	caller := s.arrive(SignedIn(s.users["read"], time.Time{}), "shop", "orders")
	answered := make(chan Answer)
	go func() { answered <- say(t, caller, "READ FROM u FOR CONSUMER 'late' WAIT 20s") }()
	s.run(inOrders + "GRANT read ON u TO 'read'")
	// Whether it began before or after, it is refused.
	s.run(inOrders + "REVOKE read ON u FROM 'read'; CREATE u = 'secret'")
	if answer := <-answered; answer.Err == nil || answer.Err.Kind != fault.NotAllowed {
		t.Errorf("the read is answered %v %v", answer.Value, answer.Err)
	}
}

// Appends that came together share a look at what the caller may do.
func TestWhoWasStoppedAppendsNothingThatIsSentAfterwards(t *testing.T) {
	s := openStore(t)
	s.fill()
	caller := s.arrive(SignedIn(s.users["write"], time.Time{}), "shop", "orders")
	appends := func(received time.Time) bool {
		done := make(chan Appended, 1)
		script := &lang.Script{Statements: []lang.Statement{parse(t, "CREATE t = 1")}}
		if !caller.StartAppend(context.Background(), received, script, nil, Passed{}, func(a Appended) { done <- a }) {
			return false
		}
		return (<-done).err == nil
	}
	together := time.Now()
	if !appends(together) {
		t.Fatal("who was granted write does not append")
	}
	s.run(inOrders + "REVOKE write ON t FROM 'write'")
	if appends(time.Now()) {
		t.Error("who was stopped appends")
	}
	s.run(inOrders + "GRANT write ON t TO 'write'")
	if !appends(time.Now()) {
		t.Error("who was granted write again does not append")
	}
	// A statement takes as long as it takes, and may be waited for before others
	// are stopped.
	if answer := say(t, caller, "SLEEP 0s"); answer.Err != nil {
		t.Fatal(answer.Err)
	}
	s.run(inOrders + "REVOKE write ON t FROM 'write'")
	if appends(together) {
		t.Error("who was stopped while another statement ran appends what was sent before")
	}
}

func TestALookAtWhatTheCallerMayDoHoldsForWhatCameBeforeItAndForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var look appendStanding
		if look.holds(time.Time{}) {
			t.Error("none holds")
		}
		before := time.Now()
		time.Sleep(time.Microsecond)
		look.read = time.Now()
		time.Sleep(time.Microsecond)
		if !look.holds(before) || look.holds(time.Now()) {
			t.Error("it holds for what was sent after it, or not for what was sent before")
		}
		time.Sleep(appendStandingAge)
		if look.holds(before) {
			t.Error("it holds for good")
		}
	})
}

func TestAPasswordChangeThatDoesNotCommitEndsNoSession(t *testing.T) {
	s := openStore(t)
	s.fill()
	caller := s.arrive(SignedIn(s.users["read"], time.Time{}), "shop", "orders")
	if answer := say(t, caller, "ALTER USER 'read' ON DATABASE PASSWORD 'one'"); answer.Err != nil {
		t.Fatal(answer.Err)
	}
	if answer := say(t, caller, "BEGIN; ALTER USER 'read' ON DATABASE PASSWORD 'two'; CANCEL"); answer.Err != nil {
		t.Fatal(answer.Err)
	}
	if answer := say(t, caller, "SELECT * FROM t"); answer.Err != nil {
		t.Errorf("the session goes on with the password it has: %v", answer.Err)
	}
}

func TestWhatIsStoredCanBeReadWhateverCarriesIt(t *testing.T) {
	s := openStore(t)
	s.fill()
	deepest := strings.Repeat("[", 63) + "1" + strings.Repeat("]", 63)
	caller := New(s.Store, Options{})
	defer caller.Close()
	for _, script := range []string{
		"CREATE u = " + deepest, "READ FROM u", "SELECT * FROM u",
		"DEFINE TOPIC dead; DEFINE GROUP 'deep' ON TOPIC u ACK DEADLINE 30s DELIVERIES 1 DEAD LETTER TO dead; READ FROM u FOR CONSUMER 'deep'",
		"REJECT u FOR CONSUMER 'deep' AT 1", "READ FROM dead",
	} {
		answer := say(t, caller, inOrders+script)
		if answer.Err != nil {
			t.Fatalf("%.40s: %v", script, answer.Err)
		}
		if _, err := answer.AppendJSON(nil); err != nil {
			t.Errorf("%.40s, as JSON: %v", script, err)
		}
		if _, err := answer.AppendCBOR(nil); err != nil {
			t.Errorf("%.40s, as CBOR: %v", script, err)
		}
	}
}
