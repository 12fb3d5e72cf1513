package events

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// wireVersion is the second field of every event. A reader treats another version as a gap and
// reads the nodes from Redis.
const wireVersion = "1"

// The fields before the body, in their order.
const (
	fieldTime = iota
	fieldVersion
	fieldKind
	fieldRevision
	fieldNode
	fieldEpoch
	fieldStatus
	fieldMax
	fieldUsed
	fields
)

// Decode reads the wire form that the scripts publish:
//
//	at_ms version kind revision node epoch status max used body
//
// separated by one space. Body is the rest of the message and can be empty. The event's strings are
// parts of message; Decode allocates nothing.
func Decode(message string) (Event, error) {
	var field [fields]string
	rest := message
	for i := range field {
		var ok bool
		if field[i], rest, ok = strings.Cut(rest, " "); !ok {
			return Event{}, fmt.Errorf("event has %d fields, expected %d", i+1, fields+1)
		}
	}
	if field[fieldVersion] != wireVersion {
		return Event{}, fmt.Errorf("event has wire version %q, expected %s", field[fieldVersion], wireVersion)
	}
	kind := field[fieldKind]
	if len(kind) != 1 || kindNames[Kind(kind[0])] == "" {
		return Event{}, fmt.Errorf("event has kind %q", kind)
	}
	e := Event{
		Kind: Kind(kind[0]), Node: field[fieldNode], Epoch: field[fieldEpoch], Status: status(field[fieldStatus]), Body: rest,
	}
	if e.Node == "" {
		return Event{}, fmt.Errorf("event names no node")
	}
	var err error
	if e.Revision, err = strconv.ParseUint(field[fieldRevision], 10, 64); err != nil {
		return Event{}, fmt.Errorf("event revision: %w", err)
	}
	if e.AtMS, err = strconv.ParseInt(field[fieldTime], 10, 64); err != nil {
		return Event{}, fmt.Errorf("event time: %w", err)
	}
	if e.MaxConcurrency, err = strconv.Atoi(field[fieldMax]); err != nil {
		return Event{}, fmt.Errorf("event max_concurrency: %w", err)
	}
	if e.Used, err = strconv.Atoi(field[fieldUsed]); err != nil {
		return Event{}, fmt.Errorf("event slots in use: %w", err)
	}
	return e, nil
}

// statusOffline is the status in the last event of a node; no node has it.
const statusOffline = "offline"

var statuses = []freeslot.Status{freeslot.StatusOnline, freeslot.StatusDraining, freeslot.StatusDrained, statusOffline}

// status returns a constant if there is one, so that keeping the status does not keep a whole
// message in memory.
func status(text string) freeslot.Status {
	if i := slices.Index(statuses, freeslot.Status(text)); i >= 0 {
		return statuses[i]
	}
	return freeslot.Status(text)
}

// Append appends the wire form of e to dst. It is for tests and benchmarks: in production the
// scripts publish the events.
func (e Event) Append(dst []byte) []byte {
	return fmt.Appendf(dst, "%d %s %c %d %s %s %s %d %d %s",
		e.AtMS, wireVersion, e.Kind, e.Revision, e.Node, e.Epoch, e.Status, e.MaxConcurrency, e.Used, e.Body)
}
