package freeslot

import (
	"errors"
	"fmt"
	"time"
)

// Code says what kind of failure an [Error] is. Codes are part of the wire
// protocol and never change their meaning.
type Code string

// The codes of the protocol.
const (
	// CodeInvalidArgument: the request itself is wrong; Error.Field names the culprit.
	CodeInvalidArgument Code = "invalid_argument"
	// CodePayloadTooLarge: the payload or frame is over the replica's limit.
	CodePayloadTooLarge Code = "payload_too_large"
	// CodeNoMatchingNode: no node of the fleet fits, busy or not; Error.Breakdown says why.
	CodeNoMatchingNode Code = "no_matching_node"
	// CodeOverloaded: fitting nodes exist but all are full, or a queue is; try again after Error.RetryAfter.
	CodeOverloaded Code = "overloaded"
	// CodeRateLimited: the tenant submits more jobs than its submit rate allows; this one may
	// come again after Error.RetryAfter.
	CodeRateLimited Code = "rate_limited"
	// CodeUnavailable: the scheduler cannot reach its store or is stopping. A
	// submit that ends so may still have been applied.
	CodeUnavailable Code = "unavailable"
	// CodeUnauthenticated: no token, or one that the configuration does not know.
	CodeUnauthenticated Code = "unauthenticated"
	// CodePermissionDenied: the token's role does not allow the call.
	CodePermissionDenied Code = "permission_denied"
	// CodeNotFound: there is no such job or node, or it belongs to another tenant.
	CodeNotFound Code = "not_found"
	// CodeConflict: what is to be changed is not what the caller saw any more, or not in the
	// state that the change needs; or an idempotency key belongs to another job.
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
	// Field is the path of the offending input ("job.requirement.pool"); empty
	// when no single field is to blame.
	Field string
	// RetryAfter is how long to wait before trying again; zero when the code is
	// not temporary or the scheduler has no estimate.
	RetryAfter time.Duration
	// Breakdown counts, for CodeNoMatchingNode, the nodes that failed each part
	// of the requirement, by its first failing part.
	Breakdown map[string]int
	// Errors lists the offending inputs where one answer can name several, at most
	// [MaxFieldErrors]. Field and Message are then those of the first, and Message ends with
	// how many more there are.
	Errors []FieldError
}

// Invalid returns an [*Error] with [CodeInvalidArgument] about one input. The message is field
// and what format makes of args, such as "is 0, expected 1 to 100".
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

// CodeOf returns the code of the first [Error] in err's chain, CodeInternal for
// any other error and "" for nil.
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
