package freeslot

import (
	"errors"
	"fmt"
	"time"
)

// Code is the kind of failure of an [Error]. Codes are part of the wire protocol and never change
// their meaning.
type Code string

// The protocol's codes.
const (
	// CodeInvalidArgument: the request itself is wrong; Error.Field names the culprit.
	CodeInvalidArgument Code = "invalid_argument"
	// CodePayloadTooLarge: the payload or frame is over the replica's limit.
	CodePayloadTooLarge Code = "payload_too_large"
	// CodeNoMatchingNode: no node of the fleet fits, busy or not; Error.Breakdown has the reasons.
	CodeNoMatchingNode Code = "no_matching_node"
	// CodeOverloaded: all fitting nodes are full, or a queue is; try again after Error.RetryAfter.
	CodeOverloaded Code = "overloaded"
	// CodeRateLimited: the tenant submits more jobs than its submit rate allows; try again after
	// Error.RetryAfter.
	CodeRateLimited Code = "rate_limited"
	// CodeUnavailable: the scheduler cannot reach its store or is stopping. It may have carried out
	// the request all the same.
	CodeUnavailable Code = "unavailable"
	// CodeUnauthenticated: no token, or one that the configuration does not know.
	CodeUnauthenticated Code = "unauthenticated"
	// CodePermissionDenied: the token's role does not allow the call.
	CodePermissionDenied Code = "permission_denied"
	// CodeNotAdmitted: a chain that the tenant is configured with does not admit the job.
	CodeNotAdmitted Code = "not_admitted"
	// CodeNotFound: there is no such job or node, or it belongs to another tenant.
	CodeNotFound Code = "not_found"
	// CodeConflict: the object changed after the caller read it, its state does not allow the
	// change, or the idempotency key belongs to another job.
	CodeConflict Code = "conflict"
	// CodeInternal: a defect of the scheduler; the replica's log has the cause.
	CodeInternal Code = "internal"
)

// Temporary reports whether the same request may succeed later unchanged.
func (c Code) Temporary() bool {
	return c == CodeOverloaded || c == CodeRateLimited || c == CodeUnavailable
}

// Error is a failure as every interface of freeslot reports it.
type Error struct {
	Code    Code
	Message string
	// Field is the path of the bad input ("job.requirement.pool"); empty if no single field is
	// to blame.
	Field string
	// RetryAfter is the pause before the next try; zero if the code is not temporary or the
	// scheduler has no estimate.
	RetryAfter time.Duration
	// Breakdown counts, for CodeNoMatchingNode, the nodes by the first part of the requirement that
	// they do not meet.
	Breakdown map[string]int
	// Errors lists the bad inputs when one answer can name several, at most [MaxFieldErrors]. Field
	// and Message then come from the first, and Message ends with the number of further ones.
	Errors []FieldError
}

// Invalid returns an [*Error] with [CodeInvalidArgument] about one input. The message is field
// and the formatted text, such as "is 0, expected 1 to 100".
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidArgument, Field: field, Message: field + " " + fmt.Sprintf(format, args...)}
}

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Is makes errors.Is(err, &Error{Code: c}) compare codes alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// CodeOf returns the code of the first [Error] in err's chain, CodeInternal for any other error and
// "" for nil.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	default:
		return CodeInternal
	}
}

// MaxFieldErrors is the largest number of bad inputs that one [Error] lists.
const MaxFieldErrors = 100

// FieldError is one of several bad inputs.
type FieldError struct {
	Field string `json:"field"`
	// Message begins with the field.
	Message string `json:"message"`
}

// FieldErrors collects bad inputs in the order in which they are found. The zero value is empty
// and ready for use.
type FieldErrors []FieldError

// Addf adds the error that [Invalid] makes of its arguments.
func (f *FieldErrors) Addf(field, format string, args ...any) {
	f.Add(Invalid(field, format, args...))
}

// Add adds an [*Error], or the first one that err wraps. Any other error is added without a
// field; nil is not added.
func (f *FieldErrors) Add(err error) {
	var coded *Error
	switch {
	case errors.As(err, &coded):
		*f = append(*f, FieldError{Field: coded.Field, Message: coded.Message})
	case err != nil:
		*f = append(*f, FieldError{Message: err.Error()})
	}
}

// Err returns nil if f is empty, else an [*Error] with [CodeInvalidArgument] that lists the
// first error of each field.
func (f FieldErrors) Err() error {
	if len(f) == 0 {
		return nil
	}
	seen := make(map[string]bool, len(f))
	var distinct []FieldError
	for _, bad := range f {
		if !seen[bad.Field] {
			distinct = append(distinct, bad)
		}
		seen[bad.Field] = true
	}
	e := &Error{
		Code: CodeInvalidArgument, Field: f[0].Field, Message: f[0].Message,
		Errors: distinct[:min(len(distinct), MaxFieldErrors)],
	}
	if len(distinct) > 1 {
		e.Message += fmt.Sprintf(" (and %d more)", len(distinct)-1)
	}
	return e
}
