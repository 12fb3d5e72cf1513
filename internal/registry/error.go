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

// HolderError says which provider has an instance's id. It matches ErrSuperseded if the caller was
// the holder before. Otherwise it is a conflict, which ends when the holder is silent for three of
// its intervals.
type HolderError struct {
	Service, ID string
	// Epoch, Host and Port describe the holder. They are empty if the caller was superseded by one
	// that is gone.
	Epoch, Host string
	Port        int
	// Silent is the time since the holder's last heartbeat; Interval is how often it should beat.
	Silent, Interval time.Duration
	// Superseded is true if the caller had the id before.
	Superseded bool
}

func (e *HolderError) Error() string {
	address := net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
	switch {
	case e.Superseded && e.Host == "":
		return fmt.Sprintf(
			"superseded: instance %s of %s was taken over by another provider, which has ended", e.ID, e.Service,
		)
	case e.Superseded:
		return fmt.Sprintf("superseded: instance %s of %s is held by another provider at %s", e.ID, e.Service, address)
	case e.Interval == 0:
		return fmt.Sprintf(
			"conflict: instance %s of %s is held by %s, which sends no heartbeats; it must be removed first", e.ID, e.Service,
			address,
		)
	}
	return fmt.Sprintf("conflict: instance %s of %s is held by %s, last heard of %s ago; it can be taken over once "+
		"that is silent for %s",
		e.ID, e.Service, address, e.Silent, 3*e.Interval)
}

// Is lets errors.Is find ErrSuperseded.
func (e *HolderError) Is(target error) bool { return target == ErrSuperseded && e.Superseded }

// DeniedError is returned when Redis denies its user a command or a key.
type DeniedError struct {
	Err error
	// Advice names the user, and the command that prints the needed rules.
	Advice string
}

func (e *DeniedError) Error() string { return e.Err.Error() + " (" + e.Advice + ")" }

// Unwrap returns the error of Redis.
func (e *DeniedError) Unwrap() error { return e.Err }

// UnreadError comes with a list that lacks the services of some tags, because they could not be
// read.
type UnreadError struct{ tags []error } // nil for the tags that were read

func (e *UnreadError) Error() string { return errors.Join(e.tags...).Error() }

// Unwrap returns the errors of the tags.
func (e *UnreadError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.tags), func(err error) bool { return err == nil })
}

// Unread reports whether a service could not be read.
func (e *UnreadError) Unread(service string) bool {
	return e.tags[script.CellOf(service, len(e.tags))] != nil
}
