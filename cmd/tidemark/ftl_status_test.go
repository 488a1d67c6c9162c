package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/internal/deploy"
)

// stuck is a module of which one event waits and another takes long.
func stuck(now time.Time) deploy.Status {
	since, until := now.Add(-90*time.Minute), now.Add(40*time.Second)
	return deploy.Status{Database: "main", Modules: []deploy.ModuleStatus{{
		Module: "payments", Deployment: "6a08655c608f", Since: &since,
		Runners: []deploy.RunnersStatus{{Node: "a/1", Runners: 2}},
		Ingress: []deploy.IngressStatus{{Verb: "payments.payin", Method: "POST", Path: "/payment"}},
		Topics:  []deploy.TopicStatus{{Topic: "payments.payins", Type: "payments.Payin", Exported: true, Declared: true, Events: 9, Publishers: []string{"payments.payin"}}},
		Subscriptions: []deploy.SubscriptionStatus{{
			Subscription: "payments.paymentProcessing", Topic: "payments.payins", Declared: true, Sinks: []string{"payments.processPayin"}, Node: "a/1",
			Position: 7, Lag: 4, GivenUp: 1, InFlightCount: 2,
			InFlight: []deploy.InFlightStatus{
				{Position: 6, Attempt: 3, Verb: "payments.processPayin", Since: now, Until: &until},
				{Position: 7, Attempt: 1, Verb: "payments.processPayin", Since: now.Add(-5 * time.Minute)},
			},
			LastError: &deploy.LastError{Position: 6, Verb: "payments.processPayin", Attempt: 3, Error: "no such account\nmore", At: now.Add(-20 * time.Second)},
		}},
	}}}
}

func TestStatusSaysWhatIsInFlightSinceWhenAndWhatFailed(t *testing.T) {
	now := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	if err := printModules(&printer{out: &out}, stuck(now), now); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"module payments: deployment 6a08655c608f for 1h30m, 2 runners on a/1",
		"  POST /payment is payments.payin",
		"payments.paymentProcessing: event 6 is tried again in 40s, after attempt 3 of payments.processPayin",
		"payments.paymentProcessing: event 7 is with payments.processPayin for 5m, attempt 1",
		"payments.paymentProcessing: event 6 failed 20s ago at attempt 3 of payments.processPayin: no such account",
	} {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("status does not say %q:\n%s", line, &out)
		}
	}
}

func TestTheLiveViewFitsItsHeightAndShowsMistakesAndTheNewestLines(t *testing.T) {
	v := &devView{printer: &printer{out: io.Discard}, heading: "node ws://127.0.0.1:7420"}
	for range 100 {
		v.lines = append(v.lines, "older")
	}
	v.lines = append(v.lines, "payments | newest")
	v.wrong("payments.go:7:1: sink processPayin …\n\tfunc")
	for _, height := range []int{10, 24, 60} {
		lines := v.render(stuck(time.Now()), nil, height)
		if len(lines) > height || lines[len(lines)-1] != "payments | newest" {
			t.Errorf("in %d lines it shows %d:\n%s", height, len(lines), strings.Join(lines, "\n"))
		}
		if !strings.Contains(strings.Join(lines, "\n"), "payments.go:7:1") {
			t.Errorf("in %d lines it does not show what is wrong", height)
		}
	}
}
