package lock

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotAcquired is returned when the lock was not acquired in time. An error that matches it
	// may be a *HeldError, which names the holder.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrQueueFull is returned when too many acquisitions wait for one lock. It matches
	// ErrNotAcquired, too.
	ErrQueueFull = fmt.Errorf("%w: overloaded: 10000 wait for it already", ErrNotAcquired)
	// ErrNotHeld is returned by Unlock if this entry was already unlocked.
	ErrNotHeld = errors.New("lock not held: it was unlocked before")
	// ErrLost is returned by Unlock after the lock was lost. The error matches the cause, too.
	ErrLost = errors.New("lock lost")
	// ErrClosed is returned by calls on a manager that was stopped, and is the cause of contexts
	// that Stop ended.
	ErrClosed = errors.New("lock manager is stopped")
	// ErrNotStarted is returned by calls on a manager that was not started.
	ErrNotStarted = errors.New("lock manager is not started")
)

// These are the causes of the end of a holder's context, as context.Cause returns them, besides
// ErrClosed and the cause of the context that the lock was taken with.
var (
	// ErrExpired: the lease ended before a renewal was confirmed.
	ErrExpired = errors.New("lock expired: no renewal was confirmed in time")
	// ErrGone: Redis no longer has the lock.
	ErrGone = errors.New("lock is gone from Redis")
	// ErrTaken: Redis names another holder.
	ErrTaken = errors.New("lock was taken by another holder")
	// ErrRevoked: an operator revoked it.
	ErrRevoked = errors.New("lock was revoked by an operator")
	// ErrMaxHold: the hold lasted for Config.MaxHold.
	ErrMaxHold = errors.New("lock was held for its longest time")
	// ErrStalled: the holder called no Beat for Config.BeatTimeout.
	ErrStalled = errors.New("lock holder is stalled: no Beat in time")
	// ErrUnlocked: the last entry was unlocked.
	ErrUnlocked = errors.New("lock was unlocked")
)

// ErrDisconnected is in Alarm.Err if the check of the connection failed. It ends no hold.
var ErrDisconnected = errors.New("lock manager has no connection to Redis")

// HeldError says who holds a lock that was not acquired. It matches ErrNotAcquired.
type HeldError struct {
	Key string
	// Holder is empty if the lock was free, but others come first.
	Holder string
	// Since is the time at which the holder got the lock, by Redis' clock.
	Since time.Time
	// Left is how long the holder's lease lasts without another renewal; 0 if Redis did not say.
	Left time.Duration
}

func (e *HeldError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("lock %q not acquired: others wait for it", e.Key)
	}
	return fmt.Sprintf(
		"lock %q not acquired: held by %s since %s, lease ends in %s", e.Key, e.Holder, e.Since.UTC().Format(time.RFC3339),
		e.Left.Round(time.Millisecond),
	)
}

func (e *HeldError) Unwrap() error { return ErrNotAcquired }

// KeyError is returned when a key of the lock holds something else, or was written by a release
// with another layout. Nothing was overwritten.
type KeyError struct{ Text string }

func (e *KeyError) Error() string { return e.Text }
