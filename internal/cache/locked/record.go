package locked

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// record is what is known of one node. Whoever holds it guards state; node has
// atomics of its own.
type record struct {
	state cell.NodeState
	node  *selection.Node
}

// prepared is a state ready to be taken over, made before a lock is taken.
type prepared struct {
	state cell.NodeState
	// profile is nil when it is the one that the node has.
	profile *selection.Profile
}

// prepare compares the state with what is known of the node; nil is nothing.
func prepare(state *cell.NodeState, known *selection.Node) prepared {
	p := prepared{state: *state}
	p.state.Status = normalStatus(state.Status)
	p.state.Resources = resourcesOf(string(state.Resources))
	if known == nil || !sameProfile(known.Profile().Node(), &p.state.Node) {
		node := p.state.Node
		p.profile = selection.Compile(&node)
	}
	return p
}

// put takes p over into nodes. It reports whether candidates may have changed.
func put(nodes map[string]*record, p *prepared, cells int) (changed bool) {
	id := p.state.Node.ID
	known, ok := nodes[id]
	switch {
	case !ok && p.profile == nil: // removed since
		p.profile = selection.Compile(&p.state.Node)
		fallthrough
	case !ok:
		known = &record{node: selection.NewNode(p.profile, cell.NodeCell(id, cells))}
		nodes[id] = known
	case p.profile != nil:
		known.node.SetProfile(p.profile)
	}
	known.state = p.state
	known.node.SetUsed(p.state.Used)
	known.node.SetDraining(p.state.Status != freeslot.StatusOnline)
	return p.profile != nil
}

func (r *record) heartbeat(used int, status freeslot.Status, seenAt int64, resources json.RawMessage) {
	r.state.Used, r.state.Status, r.state.Resources = used, normalStatus(status), resources
	r.node.SetUsed(used)
	r.node.SetDraining(r.state.Status != freeslot.StatusOnline)
	r.node.Seen(seenAt)
}

// normalStatus is online or draining: a node of any other status takes no jobs.
func normalStatus(s freeslot.Status) freeslot.Status {
	if s == freeslot.StatusOnline {
		return s
	}
	return freeslot.StatusDraining
}

func resourcesOf(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// sameProfile compares the JSON forms: profiles are small and change rarely, and
// a field added later cannot be forgotten here.
func sameProfile(a, b *freeslot.Node) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// refused corrects a node's figures by the fresh state that came with a refusal.
func refused(node *selection.Node, r cell.Refusal) {
	switch r.Reason {
	case cell.RefusedFull:
		node.SetUsed(r.Used)
	case cell.RefusedDraining:
		node.SetDraining(true)
	case cell.RefusedSilent, cell.RefusedGone:
		node.MarkSilent()
	}
}

// sorted orders states by id.
func sorted(states []cell.NodeState) []cell.NodeState {
	slices.SortFunc(states, func(a, b cell.NodeState) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	return states
}

// clone copies a map whose values stay shared.
func clone[V any](nodes map[string]V) map[string]V {
	if nodes == nil {
		return make(map[string]V)
	}
	return maps.Clone(nodes)
}
