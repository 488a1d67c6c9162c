package runner

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl"
)

func TestIngressDecodesItsRequestAndNamesTheFieldThatIsWrong(t *testing.T) {
	n := newNode(t)
	r := start(t, n, behaviour{})
	n.accept()
	for _, c := range []struct {
		request, body string
		status        int
		want          string
	}{
		{"POST /orders", `{"id":"a","count":9007199254740993}`, 200, `{"count":9007199254740993,"id":"a"}`},
		{"GET /orders/a?count=3", ``, 200, `{"count":3,"id":"a"}`},
		{"GET /orders/a%2Fb?count=3&notes=x&notes=y", ``, 200, `{"count":3,"id":"a/b","notes":["x","y"]}`},
		{"DELETE /orders", ``, 204, ``},
		{"POST /orders?count=1", `{"id":"a"}`, 200, `{"count":1,"id":"a"}`},
		{"POST /orders", `{"id":"a","count":1,"due":null}`, 200, `{"count":1,"id":"a"}`},
		{"POST /orders", `{"id":"a"}`, 400, `"field":"count"`},
		{"POST /orders", `{"id":"a","count":"1"}`, 400, `"field":"count"`},
		{"POST /orders", `{"id":"a","count":1.5}`, 400, `"field":"count"`},
		{"POST /orders", `{"id":"a","count":1,"notes":["x",2]}`, 400, `"field":"notes[1]"`},
		{"POST /orders", `{"id":"a","count":1,"cuont":2}`, 400, `"kind":"UnknownField","message":"Order has no field cuont","field":"cuont"`},
		{"POST /orders?count=1", `{"id":"a","count":1}`, 400, `"field":"count"`},
		{"POST /orders?page=1", `{"id":"a","count":1}`, 400, `"field":"page"`},
		{"GET /orders/a?count=many", ``, 400, `"field":"count"`},
		{"GET /orders/a?count=1&count=2", ``, 400, `"field":"count"`},
		{"POST /orders", `{"id":"a",`, 400, `the body is not JSON`},
		{"POST /orders", `[]`, 400, `the body is a JSON object`},
		{"POST /orders", `{"id":"` + strings.Repeat("a", MaxBodyBytes) + `"}`, 413, `1048576 bytes are the limit`},
		{"PUT /orders", ``, 405, ``},
		{"GET /nothing", ``, 404, ``},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		status, answer := r.request(method, path, c.body)
		if status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s %.60s: %d %s, want %d %s", c.request, c.body, status, answer, c.status, c.want)
		}
	}
	if status, answer := r.request("POST", "/orders", `{}`, "Content-Type", "text/plain"); status != 400 || !strings.Contains(answer, "text/plain") {
		t.Errorf("a body of text: %d %s", status, answer)
	}
}

func TestACallerIsToldWhatTheVerbMeansForItAndNothingElse(t *testing.T) {
	n := newNode(t)
	r := start(t, n, behaviour{buy: func(_ context.Context, o order) (order, error) {
		switch o.Count {
		case 1:
			return o, ftl.Refuse(fault.NotFound, "no shelf %s", o.ID)
		case 2:
			return o, errors.New("the password is secret")
		case 3:
			panic("secret")
		case 4:
			return o, fault.New(fault.Unavailable, "secret-host is down")
		case 6:
			return o, ftl.RefuseField(fault.InvalidClause, "count", "there are 5 left")
		}
		return o, nil
	}})
	n.accept()
	for body, want := range map[string]struct {
		status int
		answer string
	}{
		`{"id":"a","count":1}`: {404, `"kind":"NotFound","message":"no shelf a"`},
		`{"id":"a","count":2}`: {500, `"kind":"Internal"`},
		`{"id":"a","count":3}`: {500, `"kind":"Internal"`},
		`{"id":"a","count":4}`: {503, `"kind":"Unavailable"`},
		`{"id":"a","count":5}`: {200, `"count":5`},
		`{"id":"a","count":6}`: {400, `"kind":"InvalidClause","message":"there are 5 left","field":"count"`},
	} {
		status, answer := r.request("POST", "/orders", body, "Request-Id", "r-77")
		if status != want.status || !strings.Contains(answer, want.answer) || strings.Contains(answer, "secret") {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	log := r.log.String()
	for _, want := range []string{"the password is secret", "panic=secret", "runner.TestACallerIsTold", "request=r-77"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

func TestAnEventOfTheIngressCarriesItsVerbItsRequestAndItsTrace(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	n := newNode(t)
	n.define("DEFINE TOPIC shop_orders")
	r := start(t, n, behaviour{buy: func(ctx context.Context, o order) (order, error) { return o, orders.Publish(ctx, o) }})
	n.accept()
	status, answer := r.request("POST", "/orders", `{"id":"a","count":1}`, "Request-Id", "r-1", "traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	if status != http.StatusOK {
		t.Fatal(status, answer)
	}
	page, err := n.database.Topic("shop_orders").Read(t.Context(), client.ReadOptions{})
	if err != nil || len(page.Messages) != 1 {
		t.Fatal(page, err)
	}
	headers := page.Messages[0].Headers()
	if headers["caller"] != "shop.buy" || headers["request"] != "r-1" || !strings.Contains(headers["traceparent"], trace) {
		t.Errorf("the headers are %v", headers)
	}
}

func TestWhatAVerbWritesInItsTransactionIsThereWhenItAnswersAndNotWhenItFails(t *testing.T) {
	n := newNode(t)
	n.define("DEFINE TOPIC shop_orders; DEFINE COLLECTION done")
	r := start(t, n, behaviour{buy: func(ctx context.Context, o order) (order, error) {
		if err := ftl.Tx(ctx).Put(ctx, "done", o.ID, map[string]any{"n": 1}); err != nil {
			return o, err
		}
		if err := orders.Publish(ctx, o); err != nil {
			return o, err
		}
		if o.Count == 0 {
			return o, errors.New("no")
		}
		return o, nil
	}})
	n.accept()
	if status, _ := r.request("POST", "/orders", `{"id":"a","count":0}`); status != 500 || n.count("SELECT * FROM done") != 0 || n.count("SELECT * FROM shop_orders") != 0 {
		t.Errorf("a verb that failed, answered %d, left something", status)
	}
	if status, answer := r.request("POST", "/orders", `{"id":"a","count":1}`); status != 200 || n.count("SELECT * FROM done") != 1 || n.count("SELECT * FROM shop_orders") != 1 {
		t.Errorf("a verb that answered %d %s wrote nothing", status, answer)
	}
}
