package events

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// wireVersion is the second field of every event. A reader that meets another
// version counts it as a gap, and so reads the truth from Redis.
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
// with one space between. Body is the rest of the message and can be empty.
// The event's strings are parts of message; nothing is allocated.
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
	if len(kind) != 1 || !Kind(kind[0]).known() {
		return Event{}, fmt.Errorf("event has kind %q", kind)
	}
	e := Event{Kind: Kind(kind[0]), Node: field[fieldNode], Epoch: field[fieldEpoch], Status: status(field[fieldStatus]), Body: rest}
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

// status returns the constant where there is one, so that a status that is kept
// does not keep a whole message in memory.
func status(text string) freeslot.Status {
	switch text {
	case string(freeslot.StatusOnline):
		return freeslot.StatusOnline
	case string(freeslot.StatusDraining):
		return freeslot.StatusDraining
	case string(freeslot.StatusDrained):
		return freeslot.StatusDrained
	case statusOffline:
		return statusOffline
	default:
		return freeslot.Status(text)
	}
}

// statusOffline is what the last event of a node says; no node has it.
const statusOffline = "offline"

// Append appends the wire form of e to dst; the scripts do the same in Lua.
func (e Event) Append(dst []byte) []byte {
	dst = append(strconv.AppendInt(dst, e.AtMS, 10), ' ')
	dst = append(dst, wireVersion...)
	dst = append(dst, ' ', byte(e.Kind), ' ')
	dst = append(strconv.AppendUint(dst, e.Revision, 10), ' ')
	dst = append(append(dst, e.Node...), ' ')
	dst = append(append(dst, e.Epoch...), ' ')
	dst = append(append(dst, e.Status...), ' ')
	dst = append(strconv.AppendInt(dst, int64(e.MaxConcurrency), 10), ' ')
	dst = append(strconv.AppendInt(dst, int64(e.Used), 10), ' ')
	return append(dst, e.Body...)
}
