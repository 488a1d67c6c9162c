package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/trace"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/ftl"
	"github.com/tidemarkdb/tidemark/ftl/internal/call"
	"github.com/tidemarkdb/tidemark/ftl/internal/event"
	"github.com/tidemarkdb/tidemark/internal/ftlwire"
	"github.com/tidemarkdb/tidemark/value"
)

// maxMessageBytes bounds what a node is told of an error: it is kept with the
// event until that is settled.
const maxMessageBytes = 4 << 10

// answer runs a call of a node and returns its outcome.
func (p *process) answer(ctx context.Context, c *ftlwire.Call) *ftlwire.Done {
	result, settled, err := p.invoke(ctx, c)
	done := &ftlwire.Done{ID: c.ID, Settled: settled, Error: failure(err)}
	if err == nil && c.Kind == ftlwire.Mapper && !settled {
		if done.Result, err = result.AppendCBOR(nil); err != nil {
			done.Error = failure(err)
		}
	}
	return done
}

func (p *process) invoke(ctx context.Context, c *ftlwire.Call) (result value.Value, settled bool, err error) {
	function, ok := p.module.functions[c.Verb]
	if !ok {
		return result, false, fault.New(fault.NotFound, "module %s has no function for %s; its deployment and its binary differ", p.module.Name, c.Verb)
	}
	request, err := requestValue(c)
	if err != nil {
		return result, false, err
	}
	headers := c.EventHeaders()
	running := &call.Call{
		Module: p.module.Name, Verb: c.Verb, Attempt: c.Attempt, Surroundings: p,
		Caller: headers[call.HeaderCaller], Request: headers[call.HeaderRequest],
	}
	ctx, end := running.StartSpan(ctx, headers, trace.SpanKindConsumer)
	result, settled, err = call.Run(ctx, running, func(ctx context.Context) (value.Value, error) {
		return function.call(ctx, request)
	}, p.settle(c))
	end(err)
	if err != nil {
		logFailure(running, err, "subscription", c.Subscription, "position", c.Position, "attempt", c.Attempt)
	}
	return result, settled, err
}

// requestValue is what the verb takes: the event, or a catch verb's request
// around it.
func requestValue(c *ftlwire.Call) (value.Value, error) {
	v, err := c.Value()
	if err != nil || c.Caught == nil {
		return v, err
	}
	return event.Encode(ftl.CatchRequest[value.Value]{
		Verb: c.Caught.Verb, RequestType: c.Caught.RequestType, Request: v,
		Error: c.Caught.Error, Attempts: c.Caught.Attempts,
	})
}

// settle is what the transaction of a call ends with: the acknowledgement of the
// very delivery that was handed out, and before it what a mapper made of the
// event.
func (p *process) settle(c *ftlwire.Call) call.Settle[value.Value] {
	return func(ctx context.Context, tx *client.Tx, result value.Value) error {
		if mapper := p.module.declared.Mapper(c.Verb); mapper != nil {
			if err := tx.Append(ctx, ftlwire.StoreTopic(mapper.Topic.Module, mapper.Topic.Name), result); err != nil {
				return err
			}
		}
		acknowledge := fmt.Sprintf("ACK %s FOR CONSUMER $group AT %d DELIVERY %d", value.QuoteIdentifier(c.Topic), c.Position, c.Delivery)
		answers, err := tx.Exec(ctx, acknowledge, client.Params{"group": c.Group})
		if err != nil {
			return err
		}
		if count, _ := answers[0].Value.AsInt(); count != 1 {
			return fault.New(fault.Cancelled, "nothing of %s's transaction is committed: the event at %d of %s was settled or handed to another meanwhile", c.Verb, c.Position, c.Topic)
		}
		return nil
	}
}

// logFailure tells the module's log of a verb that failed, with the stack of one
// that panicked.
func logFailure(c *call.Call, err error, details ...any) {
	log := c.Log().With("verb", c.Name(), "request", c.Request).With(details...)
	var panicked *call.Panic
	var refusal *call.Refusal
	switch {
	case errors.As(err, &panicked):
		log.Error("the verb panicked", "panic", panicked.Value, "stack", string(panicked.Stack))
	case errors.As(err, &refusal):
		log.Info("the verb refused", "error", err)
	default:
		log.Warn("the verb failed", "error", err)
	}
}

// failure is what a verb's error is to the node.
func failure(err error) *ftlwire.Error {
	if err == nil {
		return nil
	}
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > maxMessageBytes {
		text = strings.ToValidUTF8(text[:maxMessageBytes], "") + "…"
	}
	var panicked *call.Panic
	return &ftlwire.Error{Message: text, Panic: errors.As(err, &panicked)}
}
