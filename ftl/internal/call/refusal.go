package call

import "github.com/tidemarkdb/tidemark/fault"

// Refusal is an error that a verb means for its caller.
type Refusal struct {
	Fault *fault.Error
	// Field is the field of the request that it is about, "" for none.
	Field string
}

func (r *Refusal) Error() string { return r.Fault.Error() }

// Unwrap returns the error of package fault.
func (r *Refusal) Unwrap() error { return r.Fault }
