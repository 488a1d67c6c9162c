package receipts

import (
	"testing"

	"github.com/tidemarkdb/tidemark/examples/modules/payments"
	"github.com/tidemarkdb/tidemark/ftl"
	"github.com/tidemarkdb/tidemark/ftl/ftltest"
)

func TestEveryPaymentHasOneReceiptThatIsFiled(t *testing.T) {
	ctx := ftltest.Context(t,
		ftltest.WithMapper(receiptWriting, ToReceipt, receipts),
		ftltest.WithSubscriber(receiptFiling, FileReceipt))
	payin := payments.Payin{ID: "p-1", Customer: "ada", Amount: 4005}
	if err := payments.Payins.Publish(ctx, payin); err != nil {
		t.Fatal(err)
	}
	ftltest.WaitForSubscriptionsToComplete(ctx)
	want := Receipt{Payment: "p-1", Customer: "ada", Text: "Received of ada: 40.05"}
	if made := ftltest.EventsForTopic(ctx, receipts); len(made) != 1 || made[0] != want {
		t.Fatalf("the receipts are %+v", made)
	}
	filed, err := ftl.Call(ctx, ShowReceipt, ReceiptOf{"p-1"})
	if err != nil || filed != want {
		t.Fatalf("filed is %+v, %v", filed, err)
	}
}
