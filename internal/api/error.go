package api

import (
	"cmp"
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
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/wire"
)

// Error is the body of every refusal.
type Error struct {
	Code         freeslot.Code  `json:"code" doc:"What kind of failure it is. Codes never change their meaning."`
	Message      string         `json:"message" doc:"What went wrong, for people."`
	Field        string         `json:"field,omitempty" doc:"The path of the offending input, when one is to blame."`
	RetryAfterMS int64          `json:"retry_after_ms,omitempty" doc:"How long to wait before the same request may succeed."`
	Breakdown    map[string]int `json:"breakdown,omitempty" doc:"For no_matching_node: how many nodes failed each part of the requirement."`

	Errors []freeslot.FieldError `json:"errors,omitempty" doc:"Every offending input, if there are several."`
	// CurrentVersion is documented in its tag.
	CurrentVersion *uint64 `json:"current_version,omitempty" doc:"For conflict: the version that is there now."`

	status int
}

// Error implements error, for the framework.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// GetStatus returns the HTTP status, for the framework.
func (e *Error) GetStatus() int { return e.status }

// GetHeaders returns the headers that go with the status, for the framework.
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

// frameworkCodes holds, by status, the codes of refusals by the framework and the router.
var frameworkCodes = map[int]freeslot.Code{
	http.StatusRequestEntityTooLarge: freeslot.CodePayloadTooLarge,
	http.StatusUnauthorized:          freeslot.CodeUnauthenticated,
	http.StatusForbidden:             freeslot.CodePermissionDenied,
	http.StatusNotFound:              freeslot.CodeNotFound,
	http.StatusTooManyRequests:       freeslot.CodeOverloaded,
	http.StatusServiceUnavailable:    freeslot.CodeUnavailable,
}

func codeOf(status int) freeslot.Code {
	if status < http.StatusInternalServerError {
		return cmp.Or(frameworkCodes[status], freeslot.CodeInvalidArgument)
	}
	return cmp.Or(frameworkCodes[status], freeslot.CodeInternal)
}

// coded turns err into the *freeslot.Error to report. If the store does not answer, or not in time,
// the code is unavailable. Any other error is a defect, whose text is for the log and not for the
// caller.
func coded(err error) *freeslot.Error {
	var e *freeslot.Error
	var netError net.Error
	_, redisError := rueidis.IsRedisErr(err)
	_, refusal := script.Refusal(err)
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, cell.ErrNotReplicated):
		return &freeslot.Error{
			Code: freeslot.CodeUnavailable,
			Message: "it is done, but not confirmed: too few of Redis' replicas have it yet. Repeat the request: the " +
				"answer comes once they have it",
			RetryAfter: time.Second,
		}
	case refusal != "":
		return &freeslot.Error{
			Code: freeslot.CodeUnavailable, Message: "Redis refuses it: " + refusal, RetryAfter: time.Second,
		}
	case redisError, errors.As(err, &netError), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, rueidis.ErrClosing), errors.Is(err, cell.ErrStopped):
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "the store did not answer", RetryAfter: time.Second}
	default:
		return internalError()
	}
}

func internalError() *freeslot.Error {
	return &freeslot.Error{Code: freeslot.CodeInternal, Message: "internal error; the replica's log has the cause"}
}

// body returns the JSON form of an error.
func body(e *freeslot.Error) *Error {
	return &Error{
		Code: e.Code, Message: e.Message, Field: e.Field, RetryAfterMS: e.RetryAfter.Milliseconds(), Breakdown: e.Breakdown,
		Errors: e.Errors, status: wire.HTTPStatus(e.Code),
	}
}

// Conflict refuses a change that was made from another version than current.
func Conflict(message string, current uint64) *Error {
	e := body(&freeslot.Error{Code: freeslot.CodeConflict, Field: "version", Message: message})
	e.CurrentVersion = &current
	return e
}

// writeError answers with an error, for handlers outside the framework.
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
	_ = enc.Encode(v) // the client may be gone
}

var overrideOnce sync.Once

// overrideErrors makes the framework build its refusals as [Error]s. The framework's hooks are
// package variables. They are set once, to pure functions, so that any number of servers share
// them.
func overrideErrors() {
	overrideOnce.Do(func() {
		huma.NewError = newError
		huma.NewErrorWithContext = func(_ huma.Context, status int, message string, errs ...error) huma.StatusError {
			return newError(status, message, errs...)
		}
		// No answer has null for an empty list.
		huma.DefaultArrayNullable = false
	})
}

// newError reports the first finding of the framework. Each finding names one input.
func newError(status int, message string, errs ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity {
		// The framework's 422 is our 400. Our 422 means that no node fits.
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

// sentence rewrites a finding of the framework to continue a sentence that begins with the field.
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
