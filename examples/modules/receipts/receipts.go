// Package receipts is a module that turns the payments of another module into
// receipts, and files each.
package receipts

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/examples/modules/payments"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl"
)

// Receipt is an event of the module's own topic.
type Receipt struct {
	Payment  string `json:"payment"`
	Customer string `json:"customer"`
	Text     string `json:"text"`
}

var receipts = ftl.RegisterTopic[Receipt]("receipts")

// receiptWriting reads the other module's topic; receiptFiling what is made of
// it, four at once, for their order does not matter.
var (
	receiptWriting = ftl.RegisterSubscription(payments.Payins, "receiptWriting")
	receiptFiling  = ftl.RegisterSubscription(receipts, "receiptFiling", ftl.Parallel(4))
)

// ToReceipt makes a receipt of a payment. The receipt and the place in the
// payments are one commit, so there is exactly one receipt a payment.
//
//ftl:map receiptWriting receipts
func ToReceipt(_ context.Context, event payments.Payin) (Receipt, error) {
	text := fmt.Sprintf("Received of %s: %d.%02d", event.Customer, event.Amount/100, event.Amount%100)
	return Receipt{Payment: event.ID, Customer: event.Customer, Text: text}, nil
}

// FileReceipt files a receipt.
//
//ftl:subscribe receiptFiling
//ftl:retry 3 1s
func FileReceipt(ctx context.Context, receipt Receipt) error {
	tx := ftl.Tx(ctx)
	if err := tx.Exec(ctx, "DEFINE COLLECTION IF NOT EXISTS filed", nil); err != nil {
		return err
	}
	return tx.Put(ctx, "filed", receipt.Payment, receipt)
}

// ReceiptOf names the payment that GET /receipt/{payment} is about.
type ReceiptOf struct {
	Payment string `json:"payment"`
}

// ShowReceipt answers the receipt of a payment.
//
//ftl:verb
//ftl:ingress GET /receipt/{payment}
func ShowReceipt(ctx context.Context, of ReceiptOf) (Receipt, error) {
	rows, err := ftl.Tx(ctx).Query(ctx, "SELECT * FROM filed:$payment", ftl.Params{"payment": of.Payment})
	if err != nil {
		return Receipt{}, err
	}
	var receipt Receipt
	if rows.Len() == 0 {
		return Receipt{}, ftl.Refuse(fault.NotFound, "there is no receipt %s yet", of.Payment)
	}
	return receipt, rows.Scan(&receipt)
}
