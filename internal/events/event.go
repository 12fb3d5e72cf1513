package events

import "github.com/freeslot/freeslot"

// Kind says what happened to a node. The letters are the wire form.
type Kind byte

// The kinds of events.
const (
	// Register: new, restarted, or its profile changed; Body is the profile (freeslot.Node).
	Register Kind = 'r'
	// Heartbeat: alive; Body is the resources object, or empty where those of before stay in
	// force. MaxConcurrency is 0 or as in the profile, by the agent's release.
	Heartbeat Kind = 'h'
	// Offline: left.
	Offline Kind = 'o'
	// SlotFull: its last free slot was taken.
	SlotFull Kind = 'f'
	// SlotFree: it has free slots again.
	SlotFree Kind = 'e'
	// StatusChange: an operator drained it, or undid that.
	StatusChange Kind = 'c'
)

// Kinds are the kinds above; the slice is the caller's.
func Kinds() []Kind {
	return []Kind{Register, Heartbeat, Offline, SlotFull, SlotFree, StatusChange}
}

// known tells whether k is one of the kinds above.
func (k Kind) known() bool {
	switch k {
	case Register, Heartbeat, Offline, SlotFull, SlotFree, StatusChange:
		return true
	default:
		return false
	}
}

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
	case StatusChange:
		return "node_config_update"
	default:
		return "unknown"
	}
}

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
