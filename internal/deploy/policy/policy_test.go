package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/ftl/schema"
	"github.com/tidemarkdb/tidemark/internal/deploy/policy"
)

// life is what becomes of an event whose every attempt fails, as a line.
func life(retry schema.Retry, attempts int) string {
	var steps []string
	for attempt := 1; attempt <= attempts; attempt++ {
		start := policy.Start(retry, attempt)
		if start == policy.GiveUp {
			return strings.Join(append(steps, "given up when found"), " ")
		}
		action, delay := policy.Failed(retry, attempt)
		steps = append(steps, map[policy.Action]string{policy.Call: "call", policy.Catch: "catch"}[start])
		if action == policy.GiveUp {
			return strings.Join(append(steps, "given up"), " ")
		}
		steps = append(steps, delay.String())
	}
	return strings.Join(steps, " ")
}

func TestAnEventThatFailsIsTriedAtThePolicysTimes(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"3 1s 3s", "call 1s call 2s call 3s call given up"},
		{"0", "call given up"},
		{"5 1s 1m catch recoverPayin", "call 1s call 2s call 4s call 8s call 16s call 0s catch 1m0s catch 1m0s"},
		{"0 1s 2h catch recoverPayin", "call 0s catch 2h0m0s catch 2h0m0s catch 2h0m0s"},
		{"1s", "call 1s call 2s call 4s call 8s call 16s call 32s call 1m4s call 2m8s call 4m16s call 8m32s call given up"},
	} {
		retry, err := schema.ParseRetry(strings.Fields(c.words), "payments")
		if err != nil {
			t.Fatal(err)
		}
		attempts := 20
		if retry.Catch != (schema.Ref{}) {
			attempts = len(strings.Fields(c.want)) / 2
		}
		if got := life(retry, attempts); got != c.want {
			t.Errorf("+retry %s: got %s, want %s", c.words, got, c.want)
		}
	}
}

func TestAnEventWhoseLastAttemptNobodyLivedToTellOfIsGivenUpByTheNext(t *testing.T) {
	retry := schema.Retry{Retries: 2, MinBackoff: time.Second, MaxBackoff: time.Second}
	if got := policy.Start(retry, 4); got != policy.GiveUp {
		t.Errorf("attempt 4 of 3 is %v", got)
	}
	retry.Catch = schema.Ref{Module: "payments", Name: "recoverPayin"}
	if got := policy.Start(retry, 4); got != policy.Catch {
		t.Errorf("attempt 4 of 3 with a catch verb is %v", got)
	}
}

func TestEveryEventIsCalledSoOftenAndThenCaughtForEverOrGivenUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		retry := schema.Retry{
			Retries:    rapid.IntRange(0, 30).Draw(t, "retries"),
			MinBackoff: time.Duration(rapid.IntRange(1, 3600).Draw(t, "shortest")) * time.Second,
		}
		retry.MaxBackoff = retry.MinBackoff + time.Duration(rapid.IntRange(0, 80000).Draw(t, "more"))*time.Second
		if rapid.Bool().Draw(t, "caught") {
			retry.Catch = schema.Ref{Module: "m", Name: "c"}
		}
		line := life(retry, retry.Attempts()+5)
		if got := strings.Count(line, "call"); got != retry.Retries+1 {
			t.Fatal(fmt.Sprint(got), " calls: ", line)
		}
		caught := retry.Catch != (schema.Ref{})
		if caught && (strings.Contains(line, "given") || strings.Count(line, "catch") != 5) || !caught && !strings.HasSuffix(line, "given up") {
			t.Fatal(line)
		}
		for attempt := 1; attempt < retry.Attempts()+5; attempt++ {
			if _, delay := policy.Failed(retry, attempt); delay > retry.MaxBackoff {
				t.Fatalf("waits %s after attempt %d, longer than %s", delay, attempt, retry.MaxBackoff)
			}
		}
	})
}
