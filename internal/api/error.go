package api

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Error is the body of every refusal.
type Error struct {
	Code         freeslot.Code  `json:"code" doc:"What kind of failure it is. Codes never change their meaning."`
	Message      string         `json:"message" doc:"What went wrong, for people."`
	Field        string         `json:"field,omitempty" doc:"The path of the offending input, when one is to blame."`
	RetryAfterMS int64          `json:"retry_after_ms,omitempty" doc:"How long to wait before the same request may succeed."`
	Breakdown    map[string]int `json:"breakdown,omitempty" doc:"For no_matching_node: how many nodes failed each part of the requirement."`

	Errors []freeslot.FieldError `json:"errors,omitempty" doc:"Every offending input, where several are told at once."`
	// CurrentVersion is documented for its reader in the tag.
	CurrentVersion *uint64 `json:"current_version,omitempty" doc:"For conflict: the version that is there now."`

	status int
}

// Error makes *Error an error for the framework.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// GetStatus is the HTTP status.
func (e *Error) GetStatus() int { return e.status }

// GetHeaders are the headers that go with the status.
func (e *Error) GetHeaders() http.Header {
	h := http.Header{}
	if e.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt((e.RetryAfterMS+999)/1000, 10))
	}
	if e.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="freeslot"`)
	}
	return h
}

// statusOf is the HTTP status of each code.
func statusOf(code freeslot.Code) int {
	switch code {
	case freeslot.CodeInvalidArgument:
		return http.StatusBadRequest
	case freeslot.CodePayloadTooLarge:
		return http.StatusRequestEntityTooLarge
	case freeslot.CodeNoMatchingNode:
		return http.StatusUnprocessableEntity
	case freeslot.CodeOverloaded, freeslot.CodeRateLimited:
		return http.StatusTooManyRequests
	case freeslot.CodeUnavailable:
		return http.StatusServiceUnavailable
	case freeslot.CodeUnauthenticated:
		return http.StatusUnauthorized
	case freeslot.CodePermissionDenied:
		return http.StatusForbidden
	case freeslot.CodeNotFound:
		return http.StatusNotFound
	case freeslot.CodeConflict:
		return http.StatusConflict
	default:
		return http.StatusInternalServerError
	}
}

// codeOf is the code of a refusal that the framework or the router decided on.
func codeOf(status int) freeslot.Code {
	switch {
	case status == http.StatusRequestEntityTooLarge:
		return freeslot.CodePayloadTooLarge
	case status == http.StatusUnauthorized:
		return freeslot.CodeUnauthenticated
	case status == http.StatusForbidden:
		return freeslot.CodePermissionDenied
	case status == http.StatusNotFound:
		return freeslot.CodeNotFound
	case status == http.StatusTooManyRequests:
		return freeslot.CodeOverloaded
	case status == http.StatusServiceUnavailable:
		return freeslot.CodeUnavailable
	case status < http.StatusInternalServerError:
		return freeslot.CodeInvalidArgument
	default:
		return freeslot.CodeInternal
	}
}

// coded turns err into the *freeslot.Error to report. A store that does not
// answer, or not in time, is unavailable; what is left over is a defect, whose
// text goes to the log and not to the caller.
func coded(err error) *freeslot.Error {
	var e *freeslot.Error
	var netError net.Error
	_, redisError := rueidis.IsRedisErr(err)
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, cell.ErrNotReplicated):
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "it is done, and not confirmed: too few of Redis' replicas have it yet. Repeat it: that it is done already is then said once they have", RetryAfter: time.Second}
	case redisError, errors.As(err, &netError), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, rueidis.ErrClosing), errors.Is(err, cell.ErrStopped):
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "the store did not answer", RetryAfter: time.Second}
	default:
		return &freeslot.Error{Code: freeslot.CodeInternal, Message: "internal error; the replica's log has the cause"}
	}
}

// body is the wire form of a coded error.
func body(e *freeslot.Error) *Error {
	return &Error{
		Code: e.Code, Message: e.Message, Field: e.Field, RetryAfterMS: e.RetryAfter.Milliseconds(), Breakdown: e.Breakdown,
		Errors: e.Errors, status: statusOf(e.Code),
	}
}

// Conflict is the refusal of a change that was made from another version than current.
func Conflict(message string, current uint64) *Error {
	e := body(&freeslot.Error{Code: freeslot.CodeConflict, Field: "version", Message: message})
	e.CurrentVersion = &current
	return e
}

// writeError is for handlers outside the framework.
func writeError(w http.ResponseWriter, e *Error) {
	for name, values := range e.GetHeaders() {
		w.Header()[name] = values
	}
	writeJSON(w, e.status, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client has gone; there is nobody to tell
}

var overrideOnce sync.Once

// overrideErrors makes the framework build its own refusals as [Error]s. The
// hooks are variables of its package, there is no other way; they are set once,
// to pure functions, so that any number of servers share them.
func overrideErrors() {
	overrideOnce.Do(func() {
		huma.NewError = newError
		huma.NewErrorWithContext = func(_ huma.Context, status int, message string, errs ...error) huma.StatusError {
			return newError(status, message, errs...)
		}
		// Nothing here answers null for an empty list.
		huma.DefaultArrayNullable = false
	})
}

// newError reports the first of the framework's findings: each names one input.
func newError(status int, message string, errs ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity {
		// The framework's 422 is our 400: 422 says that no node fits.
		status = http.StatusBadRequest
	}
	e := &Error{Code: codeOf(status), Message: message, status: status}
	for _, err := range errs {
		var detailer huma.ErrorDetailer
		if !errors.As(err, &detailer) {
			continue
		}
		detail := detailer.ErrorDetail()
		_, e.Field, _ = strings.Cut(detail.Location, ".")
		e.Message = strings.TrimSpace(e.Field + " " + sentence(detail.Message))
		break
	}
	return e
}

// sentence makes the framework's findings continue the sentence that the field begins.
func sentence(finding string) string {
	switch {
	case strings.HasPrefix(finding, "expected "):
		return "is refused, " + finding
	case strings.HasPrefix(finding, "invalid "), strings.HasPrefix(finding, "unknown "):
		return "is an " + finding
	default:
		return finding
	}
}
