package payments

import (
	"errors"
	"testing"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl"
	"github.com/tidemarkdb/tidemark/ftl/ftltest"
)

func TestEveryPaymentIsAddedToTheBalanceOfItsCustomer(t *testing.T) {
	ctx := ftltest.Context(t, ftltest.WithSubscriber(balanceKeeping, KeepBalance), ftltest.WithCatch(SetAside))
	for _, payment := range []Payment{{"ada", 4000}, {"grace", 100}, {"ada", 250}} {
		if _, err := ftl.Call(ctx, Pay, payment); err != nil {
			t.Fatal(err)
		}
	}
	ftltest.WaitForSubscriptionsToComplete(ctx)
	if errs := ftltest.ErrorsForSubscription(ctx, balanceKeeping); errs != nil {
		t.Fatal(errs)
	}
	balance, err := ftl.Call(ctx, ShowBalance, Customer{"ada"})
	if err != nil || balance.Cents != 4250 {
		t.Fatalf("the balance is %+v, %v", balance, err)
	}
}

func TestAPaymentOfNothingOrOfNobodyIsRefused(t *testing.T) {
	ctx := ftltest.Context(t)
	for _, payment := range []Payment{{"ada", 0}, {"ada", -5}, {"", 4000}} {
		if _, err := ftl.Call(ctx, Pay, payment); !errors.Is(err, fault.InvalidClause) {
			t.Errorf("%+v gives %v", payment, err)
		}
	}
	if events := ftltest.EventsForTopic(ctx, Payins); len(events) != 0 {
		t.Fatalf("it was published: %+v", events)
	}
}
