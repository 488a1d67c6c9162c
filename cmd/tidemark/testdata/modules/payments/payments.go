// Package payments is a module for tests of tidemark ftl.
package payments

import (
	"context"

	"github.com/tidemarkdb/tidemark/ftl"
)

// Payin is the event.
type Payin struct {
	Amount int64 `json:"amount"`
}

var payins = ftl.RegisterTopic[Payin]("payins")

// Pay publishes what it is asked for.
//
//ftl:ingress POST /payment
func Pay(ctx context.Context, req Payin) error { return payins.Publish(ctx, req) }
