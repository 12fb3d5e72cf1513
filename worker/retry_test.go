package worker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

func TestRetryMarks(t *testing.T) {
	inner := &freeslot.JobError{Code: "busy", Message: "try later"}
	for name, test := range map[string]struct {
		err    error
		again  cell.Next
		after  time.Duration
		random bool
	}{
		"plain":           {err: inner, again: cell.Never},
		"retryable":       {err: Retryable(inner), again: cell.Retry, random: true},
		"wrapped":         {err: fmt.Errorf("tts: %w", Retryable(inner)), again: cell.Retry, random: true},
		"joined":          {err: errors.Join(errors.New("x"), Retryable(inner)), again: cell.Retry, random: true},
		"stated":          {err: RetryAfter(inner, time.Minute), again: cell.Retry, after: time.Minute},
		"at once":         {err: RetryAfter(inner, 0), again: cell.Retry},
		"negative":        {err: RetryAfter(inner, -time.Minute), again: cell.Retry},
		"too long":        {err: RetryAfter(inner, 2*MaxRetryAfter), again: cell.Retry, after: MaxRetryAfter},
		"outermost wins":  {err: RetryAfter(Retryable(inner), time.Minute), again: cell.Retry, after: time.Minute},
		"outermost wins2": {err: Retryable(RetryAfter(inner, time.Minute)), again: cell.Retry, random: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, after := nextTry(test.err, 1)
			if got != test.again || !test.random && after != test.after || after < 0 || test.random && after > FirstRetryDelay {
				t.Errorf("again %d after %s, expected %d after %s", got, after, test.again, test.after)
			}
			if !errors.Is(test.err, inner) {
				t.Error("the inner error is hidden")
			}
			if e := jobError(test.err); *e != *inner {
				t.Errorf("the job's error is %v", e)
			}
		})
	}
	if Retryable(nil) != nil || RetryAfter(nil, time.Second) != nil {
		t.Error("nil became an error")
	}
	if got := Retryable(inner).Error(); got != inner.Error() {
		t.Errorf("message %q", got)
	}
}

// TestRetryDelay compares with a hand-written list, at both ends of the range.
func TestRetryDelay(t *testing.T) {
	longest := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300} // seconds, after attempts 1, 2, …
	lowest := func(int64) int64 { return 0 }
	highest := func(n int64) int64 { return n - 1 }
	for i, limit := range longest {
		if got := retryDelay(i+1, highest); got != limit*time.Second {
			t.Errorf("after attempt %d at most %s, expected %s", i+1, got, limit*time.Second)
		}
		if got := retryDelay(i+1, lowest); got != 0 {
			t.Errorf("after attempt %d at least %s, expected none", i+1, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(1, 1<<31-1).Draw(t, "attempt")
		d := retryDelay(attempt, rand.Int64N)
		if limit := longest[min(attempt, len(longest))-1] * time.Second; d < 0 || d > limit {
			t.Fatalf("attempt %d: %s, expected 0 to %s", attempt, d, limit)
		}
	})
}
