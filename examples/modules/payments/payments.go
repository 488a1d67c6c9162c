// Package payments is a module that takes payments: over HTTP it accepts them
// and publishes each as an event, and it keeps every customer's balance.
//
//	tidemark ftl dev examples/modules
//	curl --json '{"customer":"ada","amount":4000}' http://127.0.0.1:8080/payment
package payments

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl"
)

// Payin is a payment that came in. It is what the topic payins holds.
type Payin struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	// Amount is in cents.
	Amount int       `json:"amount"`
	At     time.Time `json:"at"`
}

// Payins is exported: other modules subscribe to it.
//
//ftl:export
var Payins = ftl.RegisterTopic[Payin]("payins")

var balanceKeeping = ftl.RegisterSubscription(Payins, "balanceKeeping")

// Payment is what POST /payment takes.
type Payment struct {
	Customer string `json:"customer"`
	Amount   int    `json:"amount"`
}

// Accepted is what it answers.
type Accepted struct {
	ID string `json:"id"`
}

// Pay accepts a payment: from then on it is in the topic, whatever happens to
// this process.
//
//ftl:verb
//ftl:ingress POST /payment
func Pay(ctx context.Context, payment Payment) (Accepted, error) {
	if payment.Customer == "" {
		return Accepted{}, ftl.RefuseField(fault.InvalidClause, "customer", "a payment names its customer")
	}
	if payment.Amount <= 0 {
		return Accepted{}, ftl.RefuseField(fault.InvalidClause, "amount", "an amount is in cents and more than 0, not %d", payment.Amount)
	}
	id := uuid.NewString()
	err := Payins.Publish(ctx, Payin{ID: id, Customer: payment.Customer, Amount: payment.Amount, At: time.Now().UTC()})
	return Accepted{ID: id}, err
}

// Balance is a record of the collection balances, by customer.
type Balance struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// KeepBalance adds a payment to the customer's balance. It writes through the
// transaction that also acknowledges the event, so each payment is added exactly
// once.
//
//ftl:subscribe balanceKeeping
//ftl:retry 5 1s 1m catch setAside
func KeepBalance(ctx context.Context, event Payin) error {
	balance, err := readBalance(ctx, event.Customer)
	if err != nil {
		return err
	}
	balance.Cents += event.Amount
	return ftl.Tx(ctx).Put(ctx, "balances", event.Customer, balance)
}

// SetAside is called with a payment that could not be added, after the last
// attempt.
//
//ftl:verb
func SetAside(ctx context.Context, failed ftl.CatchRequest[Payin]) error {
	tx := ftl.Tx(ctx)
	if err := tx.Exec(ctx, "DEFINE COLLECTION IF NOT EXISTS set_aside", nil); err != nil {
		return err
	}
	return tx.Put(ctx, "set_aside", failed.Request.ID, failed)
}

// Customer names whose balance GET /balance/{customer} is about.
type Customer struct {
	Customer string `json:"customer"`
}

// ShowBalance answers a customer's balance.
//
//ftl:verb
//ftl:ingress GET /balance/{customer}
func ShowBalance(ctx context.Context, of Customer) (Balance, error) {
	return readBalance(ctx, of.Customer)
}

// readBalance reads a balance in the verb's transaction, 0 for a customer who
// has none.
func readBalance(ctx context.Context, customer string) (Balance, error) {
	tx := ftl.Tx(ctx)
	if err := tx.Exec(ctx, "DEFINE COLLECTION IF NOT EXISTS balances", nil); err != nil {
		return Balance{}, err
	}
	rows, err := tx.Query(ctx, "SELECT * FROM balances:$customer", ftl.Params{"customer": customer})
	if err != nil || rows.Len() == 0 {
		return Balance{Customer: customer}, err
	}
	var balance Balance
	if err := rows.Scan(&balance); err != nil {
		return Balance{}, fmt.Errorf("the balance of %s: %w", customer, err)
	}
	return balance, nil
}
