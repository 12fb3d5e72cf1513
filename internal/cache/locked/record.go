package locked

import (
	"encoding/json"
	"reflect"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// record holds one node. Its holder guards state; node has atomics of its own.
type record struct {
	state cell.NodeState
	node  *selection.Node
}

// setFigures sets the figures that change with every heartbeat.
func (r *record) setFigures(used int, status freeslot.Status, resources string) {
	r.state.Used, r.state.Resources = used, nil
	if resources != "" {
		r.state.Resources = json.RawMessage(resources)
	}
	r.state.Status = normalStatus(status)
	r.node.SetUsed(used)
	r.node.SetDraining(r.state.Status != freeslot.StatusOnline)
}

// normalStatus returns online or draining: a node with any other status takes no jobs.
func normalStatus(s freeslot.Status) freeslot.Status {
	if s == freeslot.StatusOnline {
		return s
	}
	return freeslot.StatusDraining
}

// profileChange returns the compiled profile of a state, or nil if the node has it already. It is
// called before any lock is taken.
func profileChange(state *cell.NodeState, known *selection.Node) *selection.Profile {
	if known != nil && reflect.DeepEqual(known.Profile().Node(), &state.Node) {
		return nil
	}
	node := state.Node
	return selection.Compile(&node)
}
