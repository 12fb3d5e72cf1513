package events

import (
	"maps"
	"slices"

	"github.com/freeslot/freeslot"
)

// Kind says what happened to a node. The letters are the wire form.
type Kind byte

// The kinds of events.
const (
	// Register: the node is new, was restarted, or its profile changed. Body is the profile
	// (freeslot.Node).
	Register Kind = 'r'
	// Heartbeat: the node lives. Body is the resources object, or empty if the former resources
	// stay in force. MaxConcurrency is 0 or as in the profile, depending on the agent's release.
	Heartbeat Kind = 'h'
	// Offline: the node is gone. Body is [Reaped] if it was removed because it fell silent,
	// otherwise [Left].
	Offline Kind = 'o'
	// SlotFull: the node's last free slot was taken.
	SlotFull Kind = 'f'
	// SlotFree: the node has free slots again.
	SlotFree Kind = 'e'
	// StatusChange: an operator drained the node, or ended that.
	StatusChange Kind = 'c'
)

var kindNames = map[Kind]string{
	Register: "node_register", Heartbeat: "node_heartbeat", Offline: "node_offline",
	SlotFull: "slot_full", SlotFree: "slot_free", StatusChange: "node_config_update",
}

// Kinds returns the kinds above. The caller owns the slice.
func Kinds() []Kind { return slices.Sorted(maps.Keys(kindNames)) }

// String returns the kind's name in metrics; "unknown" for any other byte.
func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return "unknown"
}

// The bodies of a node's last event: it was reaped, or its agent or an operator removed it. An
// empty body comes from an older release and says neither.
const (
	Reaped = `{"reaped":true}`
	Left   = `{"reaped":false}`
)

// Event is one change of one node.
type Event struct {
	Kind     Kind
	Revision uint64
	// AtMS is the time of the change by Redis' clock.
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
