package events

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// Kind says what happened to a node. The letters are the wire form.
type Kind byte

// The kinds of events.
const (
	// Register: new, restarted, or its profile changed; Body is the profile (freeslot.Node).
	Register Kind = 'r'
	// Heartbeat: alive; Body is the resources object.
	Heartbeat Kind = 'h'
	// Offline: left.
	Offline Kind = 'o'
	// SlotFull: its last free slot was taken.
	SlotFull Kind = 'f'
	// SlotFree: it has free slots again.
	SlotFree Kind = 'e'
)

func (k Kind) String() string {
	switch k {
	case Register:
		return "node_register"
	case Heartbeat:
		return "node_heartbeat"
	case Offline:
		return "node_offline"
	case SlotFull:
		return "slot_full"
	case SlotFree:
		return "slot_free"
	default:
		return "unknown"
	}
}

// wireVersion is the first field of every event. A reader that meets another
// version counts it as a gap, and so reads the truth from Redis.
const wireVersion = "1"

// Event is one change of one node.
type Event struct {
	Kind     Kind
	Revision uint64
	// AtMS is Redis' clock when the change was made.
	AtMS           int64
	Node           string
	Epoch          string
	Status         freeslot.Status
	MaxConcurrency int
	// Used is the number of slots in use after the change.
	Used int
	// Body is JSON or empty, by Kind.
	Body string
}

// Decode reads the wire form that the scripts publish:
//
//	version kind revision at_ms node epoch status max used body
//
// with one space between. Body is the rest of the message and can be empty.
func Decode(message string) (Event, error) {
	var field [9]string
	rest := message
	for i := range field {
		var ok bool
		if field[i], rest, ok = strings.Cut(rest, " "); !ok {
			return Event{}, fmt.Errorf("event has %d fields, expected 10", i+1)
		}
	}
	if field[0] != wireVersion {
		return Event{}, fmt.Errorf("event has wire version %q, expected %s", field[0], wireVersion)
	}
	if len(field[1]) != 1 || Kind(field[1][0]).String() == "unknown" {
		return Event{}, fmt.Errorf("event has kind %q", field[1])
	}
	e := Event{Kind: Kind(field[1][0]), Node: field[4], Epoch: field[5], Status: freeslot.Status(field[6]), Body: rest}
	if e.Node == "" {
		return Event{}, fmt.Errorf("event names no node")
	}
	var err error
	if e.Revision, err = strconv.ParseUint(field[2], 10, 64); err != nil {
		return Event{}, fmt.Errorf("event revision: %w", err)
	}
	if e.AtMS, err = strconv.ParseInt(field[3], 10, 64); err != nil {
		return Event{}, fmt.Errorf("event time: %w", err)
	}
	if e.MaxConcurrency, err = strconv.Atoi(field[7]); err != nil {
		return Event{}, fmt.Errorf("event max_concurrency: %w", err)
	}
	if e.Used, err = strconv.Atoi(field[8]); err != nil {
		return Event{}, fmt.Errorf("event slots in use: %w", err)
	}
	return e, nil
}

// Append appends the wire form of e to dst; the scripts do the same in Lua.
func (e Event) Append(dst []byte) []byte {
	return fmt.Appendf(dst, "%s %c %d %d %s %s %s %d %d %s",
		wireVersion, byte(e.Kind), e.Revision, e.AtMS, e.Node, e.Epoch, e.Status, e.MaxConcurrency, e.Used, e.Body)
}
