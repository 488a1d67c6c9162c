package deploy

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
)

func TestSubscriptionsAreSpreadOverTheNodesWithinAFifthOfEven(t *testing.T) {
	for range 20 {
		nodes := []string{uuid.Must(uuid.NewV7()).String(), uuid.Must(uuid.NewV7()).String(), uuid.Must(uuid.NewV7()).String()}
		counts := map[string]int{}
		for i := range 1000 {
			counts[newRing(nodes).owner("main", fmt.Sprintf("payments.subscription%d", i))]++
		}
		for _, node := range nodes {
			if n := counts[node]; n < 267 || n > 400 {
				t.Errorf("of 1,000 subscriptions the nodes have %v", counts)
			}
		}
	}
}

func TestANodeThatGoesMovesOnlyWhatItHad(t *testing.T) {
	all, without := newRing([]string{"a", "b", "c"}), newRing([]string{"c", "a"})
	for i := range 1000 {
		group := fmt.Sprintf("payments.subscription%d", i)
		before, after := all.owner("main", group), without.owner("main", group)
		if before != "b" && before != after {
			t.Fatalf("%s moves from %s to %s although b went", group, before, after)
		}
	}
}

func TestWithoutNodesNobodyOwnsASubscription(t *testing.T) {
	if owner := newRing(nil).owner("main", "payments.paymentProcessing"); owner != "" {
		t.Errorf("owned by %q", owner)
	}
}
