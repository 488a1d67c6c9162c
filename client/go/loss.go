package client

import (
	"errors"

	"github.com/tidemarkdb/tidemark/fault"
)

// loss is the cause of an error that comes of a node or a connection that was
// lost. It decides what may be sent again.
type loss struct {
	// neverRan says that nothing of the request ran.
	neverRan bool
	cause    error
	// words say what that means for the request.
	words string
}

func (l *loss) Error() string { return l.cause.Error() + l.words }
func (l *loss) Unwrap() error { return l.cause }

// neverSent is the error of a request that did not reach a node.
func neverSent(reason error) error { return lost(reason, true) }

// outcomeUnknown is the error of a request that was on its way.
func outcomeUnknown(reason error) error { return lost(reason, false) }

// lost is the error of a request that ended for a reason, which keeps its kind.
func lost(reason error, neverRan bool) error {
	if neverRan {
		return lossOf(reason, true, "; nothing of the request ran")
	}
	return lossOf(reason, false, "; the outcome is unknown: it ran, or it did not")
}

// interrupted is the error of reading that ended for a reason, and can go on
// elsewhere if that is the node's.
func interrupted(reason error) error {
	if !errors.Is(reason, fault.Unavailable) {
		return reason
	}
	return lossOf(reason, true, "")
}

// lossOf makes a loss of a reason. What one that is a loss already said is said
// anew.
func lossOf(reason error, neverRan bool, words string) error {
	var before *loss
	if errors.As(reason, &before) {
		reason = fault.New(fault.Of(reason).Kind, "%w", before.cause)
	}
	told := fault.Of(reason)
	return fault.New(told.Kind, "%w", &loss{neverRan, plain{told}, words})
}

// plain shows an error without its kind, which stands before the whole.
type plain struct{ fault *fault.Error }

func (p plain) Error() string { return p.fault.Message }
func (p plain) Unwrap() error { return p.fault }

// neverRan reports whether a request failed before anything of it ran, for want
// of a node.
func neverRan(err error) bool {
	var l *loss
	return errors.As(err, &l) && l.neverRan && errors.Is(err, fault.Unavailable)
}

// nodeWasLost reports whether a request failed for want of a node.
func nodeWasLost(err error) bool {
	var l *loss
	return errors.As(err, &l) && errors.Is(err, fault.Unavailable)
}
