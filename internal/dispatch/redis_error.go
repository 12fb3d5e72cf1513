package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/script"
)

// refusalCode returns the code by which Redis refused a call because of its own state; "" for any
// other error.
func refusalCode(err error) string {
	code, _ := script.Refusal(err)
	return code
}

// notApplied reports whether a call with this error has certainly changed nothing, and never will:
// it was not sent, or Redis or this replica refused it. Any other failed call may have been
// applied, or may still be.
func notApplied(err error) bool {
	return isNotSent(err) || isInvalid(err) || isOutOfMemory(err) || refusalCode(err) != ""
}

func isNotSent(err error) bool {
	return errors.Is(err, cell.ErrStopped) || errors.Is(err, cell.ErrNotSent)
}

// isInvalid reports whether the submission itself was at fault.
func isInvalid(err error) bool {
	var known *freeslot.Error
	return errors.As(err, &known)
}

func isOutOfMemory(err error) bool { return strings.Contains(err.Error(), "OOM ") }

// isAway reports whether Redis did not do its part. A refused submission, a lack of memory and a
// stop of this process do not count.
func isAway(err error) bool {
	return !isInvalid(err) && !isOutOfMemory(err) && !errors.Is(err, cell.ErrStopped)
}

func logFailure(log *zap.Logger, what string, err error) {
	if err != nil && !isInvalid(err) && !errors.Is(err, context.Canceled) && !errors.Is(err, cell.ErrStopped) {
		log.Warn("redis.call_failed", zap.String("operation", what), zap.Error(err))
	}
}

// coded turns every error into a *freeslot.Error. Any other error means that Redis failed.
func coded(what string, err error) error {
	if err == nil {
		return nil
	}
	return codedFailure(what, err)
}

func codedFailure(what string, err error) *freeslot.Error {
	var known *freeslot.Error
	var answer *rueidis.RedisError
	_, reason := script.Refusal(err)
	switch {
	case errors.As(err, &known):
		return known
	case isOutOfMemory(err):
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: time.Second, Message: what + ": Redis is out of memory",
		}
	case errors.Is(err, cell.ErrNotReplicated):
		return unavailable("%s: too few of Redis' replicas have confirmed it in time", what)
	case errors.Is(err, cell.ErrStopped):
		return unavailable("%s: this replica is stopping", what)
	case reason != "":
		return unavailable("%s: Redis refuses it: %s", what, reason)
	case errors.As(err, &answer):
		return unavailable("%s: Redis answered with an error", what)
	default:
		return unavailable("%s: Redis did not answer", what)
	}
}

func unavailable(format string, args ...any) *freeslot.Error {
	return &freeslot.Error{Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(), Message: fmt.Sprintf(format, args...)}
}

// retryAfter returns a time that varies, so that clients that were refused together do not return
// together.
func retryAfter() time.Duration {
	return 200*time.Millisecond + rand.N(300*time.Millisecond)
}
