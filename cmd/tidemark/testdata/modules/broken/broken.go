// Package broken is a module with a mistake, for tests of tidemark ftl.
package broken

import "context"

// Process is for a subscription that is not there.
//
//ftl:subscribe paymentProcessing
func Process(ctx context.Context, event string) error { return nil }
