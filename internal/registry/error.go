package registry

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/script"
)

var (
	// ErrUnknown is returned when Redis does not have the instance. A started provider registers it
	// again by itself.
	ErrUnknown = errors.New("registry: instance is not registered")
	// ErrSuperseded is returned when another provider has taken the instance over. The loser stops.
	ErrSuperseded = errors.New("registry: another provider has taken the instance over")
	// ErrClosed is returned by calls after Stop.
	ErrClosed = errors.New("registry: stopped")
	// ErrNotStarted is returned by calls before Start.
	ErrNotStarted = errors.New("registry: not started")
	// ErrNotSubscribed is returned for a list of a service that the consumer does not follow.
	ErrNotSubscribed = errors.New("registry: service is not followed")
)

// HolderError says who has an instance's id. It matches ErrSuperseded where the caller was the
// holder before; else it is a conflict, which ends when the holder is silent for three of its
// intervals.
type HolderError struct {
	Service, ID string
	// Epoch, Host and Port are the holder's.
	Epoch, Host string
	Port        int
	// Silent is since when the holder has not beaten; Interval is how often it should.
	Silent, Interval time.Duration
	// Superseded: the caller had the id before.
	Superseded bool
}

func (e *HolderError) Error() string {
	address := net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
	switch {
	case e.Superseded:
		return fmt.Sprintf("superseded: instance %s of %s is held by another provider at %s", e.ID, e.Service, address)
	case e.Interval == 0:
		return fmt.Sprintf("conflict: instance %s of %s is held by %s, which sends no heartbeats; it must be removed first", e.ID, e.Service, address)
	}
	return fmt.Sprintf("conflict: instance %s of %s is held by %s, last heard of %s ago; it can be taken over once that is silent for %s",
		e.ID, e.Service, address, e.Silent, 3*e.Interval)
}

// Is lets errors.Is find ErrSuperseded.
func (e *HolderError) Is(target error) bool { return target == ErrSuperseded && e.Superseded }

// DeniedError is an error by which Redis denies its user a command or a key.
type DeniedError struct {
	Err error
	// Advice names the user, and the command that prints the needed rules.
	Advice string
}

func (e *DeniedError) Error() string { return e.Err.Error() + " (" + e.Advice + ")" }

// Unwrap returns what Redis said.
func (e *DeniedError) Unwrap() error { return e.Err }

// UnreadError is a list that lacks the services of some tags, which could not be read.
type UnreadError struct{ tags []error } // nil for those that were read

func (e *UnreadError) Error() string { return errors.Join(e.tags...).Error() }

// Unwrap returns the errors of the tags.
func (e *UnreadError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.tags), func(err error) bool { return err == nil })
}

// Unread reports whether a service is one of those that could not be read.
func (e *UnreadError) Unread(service string) bool {
	return e.tags[script.CellOf(service, len(e.tags))] != nil
}
