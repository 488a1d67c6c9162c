// Package fault holds every kind of error that Tidemark answers, in one table.
//
// A kind is a stable identifier that programs switch on; the message beside it
// is a sentence for people. A kind is itself an error, so a caller asks
//
//	if errors.Is(err, fault.NotFound) { … }
//
// of any error this module returns, however deeply it was wrapped.
package fault

import (
	"errors"
	"fmt"
)

// Kind is the stable identifier of a kind of error, as answers carry it.
type Kind string

// Error makes a kind an error, to compare with errors.Is.
func (k Kind) Error() string { return string(k) }

// Retriable reports whether the same request may succeed when it is sent again
// unchanged.
func (k Kind) Retriable() bool { return table[k].retriable }

// Meaning is the sentence with which the reference explains the kind, or ""
// for a kind that does not exist.
func (k Kind) Meaning() string { return table[k].meaning }

// Error is one failure: its kind, and the sentence for people.
type Error struct {
	Kind    Kind
	Message string

	cause error
}

// New returns an error of the given kind. The message is formatted as by
// fmt.Errorf; a %w in it keeps its cause for errors.Is and errors.As.
func New(kind Kind, format string, args ...any) error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: wrapped.Error(), cause: errors.Unwrap(wrapped)}
}

// Error returns the kind and the message.
func (e *Error) Error() string { return string(e.Kind) + ": " + e.Message }

// Is reports whether target is the error's kind.
func (e *Error) Is(target error) bool {
	kind, ok := target.(Kind)
	return ok && kind == e.Kind
}

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Of returns err as an Error. An error of no kind becomes Internal, with a
// message that does not show the foreign error's text; that belongs in the log.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	var kind Kind
	if errors.As(err, &kind) {
		return &Error{Kind: kind, Message: kind.Meaning(), cause: err}
	}
	return &Error{Kind: Internal, Message: "an internal error; the node's log has the details", cause: err}
}
