package worker

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

// Pauses before a retry.
const (
	// FirstRetryDelay is the longest pause after a first attempt. It doubles with each further one,
	// up to LongestRetryDelay.
	FirstRetryDelay   = time.Second
	LongestRetryDelay = 5 * time.Minute
	// MaxRetryAfter bounds the pauses that RetryAfter states.
	MaxRetryAfter = time.Hour
)

// retryError marks err as retryable; its message is err's.
type retryError struct {
	err error
	// after has no meaning unless stated is true.
	after  time.Duration
	stated bool
}

func (e *retryError) Error() string { return e.err.Error() }

func (e *retryError) Unwrap() error { return e.err }

// Retryable marks a temporary error. If a handler returns it, or an error that wraps it, the job is
// retried on any node that fits. A job that has failed freeslot.Job.MaxAttempts times is dead, with
// its last error.
//
// The next attempt is due after a random pause between 0 and FirstRetryDelay. That bound doubles
// with the number of the attempt, up to LongestRetryDelay. errors.Is and errors.As see err.
// Retryable(nil) returns nil.
func Retryable(err error) error {
	if err == nil {
		return nil
	}
	return &retryError{err: err}
}

// RetryAfter is like Retryable with a pause of d, cut to the range from 0 to MaxRetryAfter. If one
// error has several marks, the outermost counts.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err: err, after: min(max(d, 0), MaxRetryAfter), stated: true}
}

// nextTry decides whether an attempt that ended with err may be followed by another one, and after
// which pause. Redis then decides by the attempts and the time that are left.
func nextTry(err error, attempt int) (cell.Next, time.Duration) {
	e, retryable := errors.AsType[*retryError](err)
	switch {
	case !retryable:
		return cell.Never, 0
	case e.stated:
		return cell.Retry, e.after
	default:
		return cell.Retry, retryDelay(attempt, rand.Int64N)
	}
}

// retryDelay returns a pause with full jitter: jobs that failed together for one cause must not
// come back together. below returns a random number from 0 to n-1.
func retryDelay(attempt int, below func(n int64) int64) time.Duration {
	return time.Duration(below(int64(longestDelay(attempt)) + 1))
}

// longestDelay returns the upper end of the pauses after the numbered attempt, from 1.
func longestDelay(attempt int) time.Duration {
	limit := FirstRetryDelay
	for range attempt - 1 {
		if limit *= 2; limit >= LongestRetryDelay {
			return LongestRetryDelay
		}
	}
	return limit
}
