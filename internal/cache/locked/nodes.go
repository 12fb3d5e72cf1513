package locked

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Nodes is a picture of the fleet that is told of changes and chosen from: what is
// measured side by side. *State and *Plain are such. All methods are safe for
// concurrent use, but the changes of one node must come one after the other.
type Nodes interface {
	// Put registers a node or replaces what is known of it. The state must be a valid
	// one, neither gone nor broken, and what it refers to must not change any more. It
	// is no sign of life: a node that is new does not qualify before its first Heartbeat.
	Put(state *cell.NodeState)
	// Heartbeat is a sign of life at seenAt, nanoseconds on the clock of
	// [selection.Query.Now]; or other figures alone, with an earlier seenAt. Resources
	// are JSON, empty for none. A node that was never Put is ignored.
	Heartbeat(node string, used int, status freeslot.Status, seenAt int64, resources string)
	Remove(node string)
	// SetConfig replaces how nodes are chosen; cfg must be valid and not change any more.
	SetConfig(cfg *selection.Config)
	// State is what was last told of a node. Its Revision and LastHeartbeatMS are of
	// the last Put: a Heartbeat does not tell them.
	State(id string) (cell.NodeState, bool)
	// States are all nodes, ordered by id.
	States() []cell.NodeState
	// Choose appends candidates for "service with requirement r" to dst, as
	// [selection.Class.Choose] does.
	Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node
}

// Config is how a State or a Plain behaves. The zero value is usable.
type Config struct {
	// Cells is the number of cells of the system; 0 means 1.
	Cells int
	// Selection is how nodes are chosen until SetConfig says otherwise; nil is the
	// zero selection.Config.
	Selection *selection.Config
}

// withDefaults returns c with zero fields replaced.
func (c Config) withDefaults() Config {
	c.Cells = max(c.Cells, 1)
	if c.Selection == nil {
		c.Selection = new(selection.Config)
	}
	return c
}
