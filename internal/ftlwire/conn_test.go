package ftlwire_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node serves one connection after the other with what serve does.
func node(t *testing.T, serve func(*ftlwire.Conn, *ftlwire.Hello)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, hello, err := ftlwire.Accept(w, r, time.Minute)
		if err != nil {
			return
		}
		defer conn.Close("")
		serve(conn, hello)
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func TestACallReachesTheRunnerAsItWasSentAndItsResultComesBack(t *testing.T) {
	event, err := value.Fields(value.Object{"id": value.Int(1 << 60)}).AppendCBOR(nil)
	if err != nil {
		t.Fatal(err)
	}
	headers, err := value.Fields(value.Object{"caller": value.String("payments.payin")}).AppendCBOR(nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan *ftlwire.Done, 1)
	url := node(t, func(conn *ftlwire.Conn, hello *ftlwire.Hello) {
		conn.Send(ftlwire.Frame{Welcome: &ftlwire.Welcome{Node: "n1 of " + hello.Module}})
		conn.Send(ftlwire.Frame{Call: &ftlwire.Call{
			ID: 7, Kind: ftlwire.Mapper, Verb: "toReceipt", Topic: "payments_payins", Position: 3, Delivery: 2, Attempt: 2,
			Event: event, Headers: headers,
		}})
		if frame, err := conn.Receive(t.Context()); err == nil {
			done <- frame.Done
		}
	})
	conn, welcome, err := ftlwire.Dial(t.Context(), url, nil, ftlwire.Hello{Module: "payments", Deployment: "d1", Credit: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close("")
	if welcome.Node != "n1 of payments" {
		t.Fatalf("welcomed by %q", welcome.Node)
	}
	frame, err := conn.Receive(t.Context())
	if err != nil || frame.Call == nil {
		t.Fatalf("received %+v, %v", frame, err)
	}
	got, err := frame.Call.Value()
	if err != nil || got.String() != "{ id: 1152921504606846976 }" || frame.Call.Delivery != 2 || frame.Call.EventHeaders()["caller"] != "payments.payin" {
		t.Fatalf("call %+v with %s, %v", frame.Call, got, err)
	}
	conn.Send(ftlwire.Frame{Done: &ftlwire.Done{ID: 7, Result: event}})
	if d := <-done; d.ID != 7 || string(d.Result) != string(event) || d.Error != nil {
		t.Fatalf("done %+v", d)
	}
}

func TestARefusalTellsItsKindAndWhetherTryingAgainHelps(t *testing.T) {
	url := node(t, func(conn *ftlwire.Conn, _ *ftlwire.Hello) {
		conn.Send(ftlwire.Frame{Refused: &ftlwire.Refused{Kind: string(fault.NotFound), Message: "nobody deployed it", Final: true}})
	})
	_, _, err := ftlwire.Dial(t.Context(), url, nil, ftlwire.Hello{Module: "payments"})
	var refused *ftlwire.RefusedError
	if !errors.As(err, &refused) || !refused.Final || !errors.Is(err, fault.NotFound) {
		t.Fatalf("refused with %v", err)
	}
}

func TestFramesKeepTheirOrderAndAreAllSentBeforeTheConnectionCloses(t *testing.T) {
	const count = 5000
	url := node(t, func(conn *ftlwire.Conn, _ *ftlwire.Hello) {
		conn.Send(ftlwire.Frame{Welcome: &ftlwire.Welcome{}})
		for id := range uint64(count) {
			conn.Send(ftlwire.Frame{Cancel: &ftlwire.Cancel{ID: id}})
		}
	})
	conn, _, err := ftlwire.Dial(t.Context(), url, nil, ftlwire.Hello{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close("")
	for want := range uint64(count) {
		frame, err := conn.Receive(t.Context())
		if err != nil || frame.Cancel == nil || frame.Cancel.ID != want {
			t.Fatalf("frame %d is %+v, %v", want, frame, err)
		}
	}
	if _, err := conn.Receive(t.Context()); err == nil {
		t.Fatal("the connection goes on after it was closed")
	}
	<-conn.Ended()
}

func TestANodeThatIsNotThereIsUnavailable(t *testing.T) {
	ctx, done := context.WithTimeout(t.Context(), 5*time.Second)
	defer done()
	_, _, err := ftlwire.Dial(ctx, "ws://127.0.0.1:1", nil, ftlwire.Hello{})
	if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatalf("dialled with %v", err)
	}
}
